// KGC and SP over fetch: what is sent, what is tried again, and uploads that go on where they stopped.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Platform } from "#web/phone/agent/api.js";
import { hex, sha256 } from "#web/phone/protocol/bytes.js";
import {
  Conflict, CrowdFLError, LimitExceeded, NotAuthenticated, NotReady, ServiceUnavailable, TooLate, Truncated, WrongProtocol,
} from "#web/phone/protocol/errors.js";
import { newKeys } from "#web/phone/protocol/keys.js";
import { TASK } from "./fakes.js";

/** @typedef {{method: string, path: string, body: Uint8Array<ArrayBuffer>, headers: Record<string, string>, options: RequestInit}} Asked */
/** @typedef {(asked: Asked) => Response | Promise<Response>} Answer */

const keys = await newKeys();
const OWN = `/v1/tasks/${TASK}/rounds/1/uploads/${keys.who}`;

/** @param {unknown} value @param {number} [status] @param {Record<string, string>} [headers] */
const json = (value, status = 200, headers = {}) => new Response(JSON.stringify(value), { status, headers });
/** @param {string} slug @param {number} status @param {Record<string, string>} [headers] */
const problem = (slug, status, headers) => json({ type: `urn:crowdfl:problem:${slug}`, detail: `it is ${slug}` }, status, headers);
/** @param {BodyInit} body */
const octets = (body) => new Response(body, { headers: { "Content-Type": "application/octet-stream" } });

/** A platform whose every request goes to `answer`. @param {Answer} answer @param {object} [options] */
function reach(answer, options = {}) {
  /** @type {Asked[]} */
  const asked = [];
  /** @type {number[]} */
  const slept = [];
  let time = 0;
  const fetch = async (/** @type {any} */ url, /** @type {any} */ given) => {
    const target = new URL(url);
    asked.push({ method: given.method, path: target.pathname + target.search, body: given.body ?? new Uint8Array(), headers: given.headers, options: given });
    return answer(asked[asked.length - 1]);
  };
  const sleep = async (/** @type {number} */ seconds) => {
    slept.push(seconds);
    time += seconds;
  };
  const now = () => 1_700_000_000;
  const platform = new Platform("https://sp.example", "https://kgc.example/", /** @type {any} */ (fetch),
    { sleep, clock: () => time, now, piece: 10, whole: 10, ...options });
  return { platform, asked, slept };
}

/** SP's reception of uploads in pieces. */
class Reception {
  /** @type {Uint8Array<ArrayBuffer>} */
  arrived = new Uint8Array();
  receipts = 0;
  /** @type {((asked: Asked) => Response | null) | null} */
  before = null;

  /** @param {Asked} asked */
  answer(asked) {
    const special = this.before?.(asked);
    if (special) return special;
    if (asked.path.includes("/offset?")) return json({ offset: this.arrived.length });
    if (asked.path.endsWith("/commit")) return this._commit(asked);
    return this._append(asked);
  }

  /** @param {Asked} asked */
  _append({ path, body }) {
    const offset = Number(path.split("offset=")[1]);
    if (offset !== 0 && offset !== this.arrived.length) return problem("conflict", 409);
    this.arrived = Uint8Array.from([...this.arrived.slice(0, offset), ...body]);
    return json({ offset: this.arrived.length });
  }

  /** @param {Asked} asked */
  async _commit({ body }) {
    const { digest } = JSON.parse(new TextDecoder().decode(body));
    if (!this.arrived.length) return problem("not-ready", 404);
    if (hex(await sha256(this.arrived)) !== digest) return problem("truncated", 400);
    this.receipts += 1;
    return json({ receipt: "signed" }, 201);
  }
}

const UPLOAD = Uint8Array.from({ length: 35 }, (_, i) => i);
const patches = (/** @type {Asked[]} */ asked) => asked.filter(({ method }) => method === "PATCH").map(({ path }) => Number(path.split("=")[1]));

test("a request says its protocol, carries no cookie and follows no redirect", async () => {
  const { platform, asked } = reach(() => json({ definition: "d", appointment: "a" }));
  assert.deepEqual(await platform.papers(TASK), { definition: "d", appointment: "a" });
  const { options, headers } = asked[0];
  assert.deepEqual([options.credentials, options.redirect, options.referrerPolicy, options.cache], ["omit", "error", "no-referrer", "no-store"]);
  assert.deepEqual(headers, { "X-CrowdFL-Protocol": "3" });
});

test("a participant's request is signed over its path with the query, its time, and its body or the upload's name", async () => {
  const reception = new Reception();
  const { platform, asked } = reach((one) => reception.answer(one));
  await platform.send(TASK, 1, keys, UPLOAD);
  for (const { method, path, headers, body } of asked) {
    const [, who, time, signature] = /who="(.+)", time="(.+)", signature="(.+)"/.exec(headers.Authorization) ?? [];
    const digest = hex(await sha256(method === "PATCH" ? UPLOAD : body));
    const text = ["crowdfl request 1", method, path, time, digest].join("\n");
    const good = await crypto.subtle.verify("Ed25519", keys.signing.publicKey, Buffer.from(signature, "hex"), Buffer.from(text));
    assert.deepEqual([who, time, headers["X-Content-SHA256"], good], [keys.who, "1700000000", digest, true]);
  }
});

test("a short upload goes whole, a long one in pieces", async () => {
  const short = reach(() => json({ receipt: "signed" }, 201));
  assert.equal(await short.platform.send(TASK, 1, keys, UPLOAD.slice(0, 10)), "signed");
  assert.deepEqual(short.asked.map(({ method, path }) => [method, path]), [["PUT", OWN]]);
  const reception = new Reception();
  const long = reach((one) => reception.answer(one));
  /** @type {number[]} */
  const sent = [];
  assert.equal(await long.platform.send(TASK, 1, keys, UPLOAD, (at) => sent.push(at)), "signed");
  assert.deepEqual([patches(long.asked), sent, reception.receipts], [[0, 10, 20, 30], [0, 10, 20, 30], 1]);
});

test("an interrupted upload goes on at SP's offset", async () => {
  const reception = new Reception();
  reception.arrived = UPLOAD.slice(0, 20);
  const { platform, asked } = reach((one) => reception.answer(one));
  await platform.send(TASK, 1, keys, UPLOAD);
  assert.deepEqual(patches(asked), [20, 30]);
  assert.deepEqual(reception.arrived, UPLOAD);
});

test("a piece whose answer was lost is not sent twice", async () => {
  const reception = new Reception();
  let lost = true;
  const { platform, asked } = reach(async (one) => {
    const answered = await reception.answer(one);
    if (one.method !== "PATCH" || !lost || !one.path.endsWith("=10")) return answered;
    lost = false;
    throw new TypeError("Failed to fetch");
  });
  await platform.send(TASK, 1, keys, UPLOAD);
  assert.deepEqual(patches(asked), [0, 10, 10, 20, 30]); // the second one is refused: SP has it
  assert.deepEqual(reception.arrived, UPLOAD);
});

test("other bytes at SP are replaced from the beginning", async () => {
  const reception = new Reception();
  reception.arrived = new Uint8Array(35);
  const { platform } = reach((one) => reception.answer(one));
  assert.equal(await platform.send(TASK, 1, keys, UPLOAD), "signed");
  assert.deepEqual(reception.arrived, UPLOAD);
});

test("more bytes at SP than the upload has are replaced", async () => {
  const reception = new Reception();
  reception.arrived = new Uint8Array(50);
  const { platform } = reach((one) => reception.answer(one));
  assert.equal(await platform.send(TASK, 1, keys, UPLOAD), "signed");
  assert.deepEqual(reception.arrived, UPLOAD);
});

test("an upload that SP loses again and again, or never takes, comes to an end", async () => {
  const losing = new Reception();
  losing.before = ({ path }) => {
    if (!path.endsWith("/commit")) return null;
    losing.arrived = new Uint8Array();
    return problem("not-ready", 404);
  };
  await assert.rejects(reach((one) => losing.answer(one)).platform.send(TASK, 1, keys, UPLOAD), ServiceUnavailable);
  const stuck = reach(({ method }) => json({ offset: method === "PATCH" ? 10 : 10 }));
  await assert.rejects(stuck.platform.send(TASK, 1, keys, UPLOAD), ServiceUnavailable);
  const lying = reach(() => json({ offset: -5 }));
  await assert.rejects(lying.platform.send(TASK, 1, keys, UPLOAD), ServiceUnavailable);
});

test("a round that has not opened is told as such when all bytes wait there", async () => {
  const reception = new Reception();
  reception.before = ({ path }) => (path.endsWith("/commit") ? problem("not-ready", 404) : null);
  await assert.rejects(reach((one) => reception.answer(one)).platform.send(TASK, 1, keys, UPLOAD), NotReady);
});

test("a refusal is the error that the service raised", async () => {
  for (const [slug, status, kind] of /** @type {const} */ ([["too-late", 409, TooLate], ["conflict", 409, Conflict], ["truncated", 400, Truncated]])) {
    const { platform, slept } = reach(() => problem(slug, status));
    await assert.rejects(platform.status(TASK), kind);
    assert.deepEqual(slept, []);
  }
});

test("what may pass is tried again until the deadline, as late as the service asks", async () => {
  let left = 2;
  const busy = reach(() => (left-- > 0 ? problem("service-unavailable", 503, { "Retry-After": "7" }) : json({ status: { state: "running", rounds: [] } })));
  assert.equal((await busy.platform.status(TASK)).state, "running");
  assert.deepEqual(busy.slept, [7, 7]);
  /** @type {unknown[]} */
  const heard = [];
  const away = reach(() => { throw new TypeError("Failed to fetch"); });
  away.platform.attach((error) => heard.push(error));
  await assert.rejects(away.platform.status(TASK), (error) => error instanceof ServiceUnavailable && error.passes);
  const total = away.slept.reduce((sum, one) => sum + one, 0);
  assert.ok(total > 60 && total <= 120, `${total} seconds`);
  assert.equal(heard.length, away.slept.length);
});

test("a claim is sent once: whether it was paid, the next call finds out", async () => {
  const { platform, asked } = reach(() => { throw new TypeError("Failed to fetch"); });
  await assert.rejects(platform.claim(TASK, UPLOAD, keys), ServiceUnavailable);
  assert.equal(asked.length, 1);
  const paid = reach(() => json({ paid: { 1: 5 }, unused: {}, disputed: { 2: 7 } }));
  assert.deepEqual(await paid.platform.claim(TASK, UPLOAD, keys), { paid: new Map([[1, 5n]]), unused: new Map(), disputed: new Map([[2, 7n]]) });
  for (const amount of [0.5, -5, 1e308]) {
    const wrong = reach(() => json({ paid: { 1: amount }, unused: {}, disputed: {} }));
    await assert.rejects(wrong.platform.claim(TASK, UPLOAD, keys), ServiceUnavailable);
  }
});

test("a phone whose clock is wrong signs with the service's time, and believes no other day", async () => {
  /** @param {number} ahead */
  const served = (ahead) => (/** @type {Asked} */ { headers }) => {
    const time = Number(/time="(\d+)"/.exec(headers.Authorization)?.[1]);
    const right = 1_700_000_000 + ahead;
    const date = { Date: new Date(right * 1000).toUTCString() };
    return Math.abs(time - right) > 300 ? problem("not-authenticated", 401, date) : octets("reward");
  };
  const off = reach(served(4000));
  assert.equal(new TextDecoder().decode(await off.platform.reward(TASK, 1, keys)), "reward");
  await off.platform.reward(TASK, 2, keys);
  assert.equal(off.asked.length, 3, "the second call knows the time");
  const far = reach(served(200_000));
  await assert.rejects(far.platform.reward(TASK, 1, keys), NotAuthenticated);
  assert.equal(far.asked.length, 1);
});

test("an answer of somebody in between is not taken for the service's", async () => {
  const page = () => new Response("<html>log in to the network</html>", { headers: { "Content-Type": "text/html" } });
  const { platform } = reach(page);
  /** @type {(() => Promise<unknown>)[]} */
  const calls = [() => platform.papers(TASK), () => platform.status(TASK), () => platform.initial(TASK), () => platform.average(TASK, 1, keys),
    () => platform.reward(TASK, 1, keys), () => platform.quit(TASK, keys, false), () => platform.uploaded(TASK, 1, keys), () => platform.enrol(TASK, "c", null),
    () => platform.enrolAtKgc(TASK, "i", "r"), () => platform.claim(TASK, UPLOAD, keys), () => platform.send(TASK, 1, keys, UPLOAD)];
  for (const call of calls) await assert.rejects(call, (error) => error instanceof ServiceUnavailable && error.passes);
});

test("a service that speaks another version is named as the reason", async () => {
  const { platform } = reach(() => json({}, 200, { "X-CrowdFL-Protocol": "4" }));
  await assert.rejects(platform.papers(TASK), (error) => error instanceof WrongProtocol && /version 4/.test(error.message));
});

test("an answer without end is cut off", async () => {
  const part = new Uint8Array(16 * 1024 * 1024);
  const endless = () => new Response(new ReadableStream({ pull: (stream) => stream.enqueue(part) }), { headers: { "Content-Type": "application/octet-stream" } });
  await assert.rejects(reach(endless).platform.initial(TASK), LimitExceeded);
});

test("an answer that holds no model may not be as long as one", async () => {
  let sent = 0;
  const piece = new Uint8Array(1024 * 1024).fill(32);
  const spaces = () => new Response(new ReadableStream({ pull: (stream) => { sent += 1; stream.enqueue(piece); } }));
  await assert.rejects(reach(spaces).platform.status(TASK), LimitExceeded);
  assert.ok(sent < 20, `${sent} MiB were taken`);
});

test("calls that are under way end with their signal", async () => {
  const stopper = new AbortController();
  const { platform } = reach(({ options }) => new Promise((_, reject) => {
    options.signal?.addEventListener("abort", () => reject(options.signal?.reason));
    stopper.abort(new DOMException("stopped", "AbortError"));
  }));
  platform.attach(() => {}, stopper.signal);
  await assert.rejects(platform.status(TASK), { name: "AbortError" });
});

test("no error holds an invitation, a certificate or what was uploaded", async () => {
  const { platform } = reach(() => problem("forbidden", 403));
  for (const call of [() => platform.enrolAtKgc(TASK, "SECRET", "SECRET"), () => platform.enrol(TASK, "SECRET", "SECRET")]) {
    const error = await call().catch((found) => found);
    assert.ok(error instanceof CrowdFLError && !error.message.includes("SECRET") && !String(error.stack).includes("SECRET"));
  }
});

test("the digest of an upload that SP holds, or null", async () => {
  assert.equal(await reach(() => json({ digest: null })).platform.uploaded(TASK, 1, keys), null);
  assert.equal(await reach(() => json({ digest: "ab" })).platform.uploaded(TASK, 1, keys), "ab");
});
