// The smaller parts: messages, links, settings, errors of services, keys, forms of bytes.
import assert from "node:assert/strict";
import { test } from "node:test";

import {
  base64, base64url, concat, equal, fromBase64, fromBase64url, fromHex, fromNumber, hex, toNumber, u32, utf8,
} from "#web/phone/protocol/bytes.js";
import { CrowdFLError, errorFrom, NotReady, ServiceError, TaskEnded, TaskNotRunning } from "#web/phone/protocol/errors.js";
import { enrolmentRequest, openDefinition, openDocument, openRecruited } from "#web/phone/protocol/documents.js";
import { parseLink } from "#web/phone/protocol/invitation.js";
import { newKeys, newTicketKey } from "#web/phone/protocol/keys.js";
import { decode, encode } from "#web/phone/protocol/messages.js";
import { BONUS, checkPlaceKept, openReward, placeNote, rewardBy } from "#web/phone/protocol/rewards.js";
import { requireCompany, sharesTask } from "#web/phone/protocol/settings.js";
import { sign, verify } from "#web/phone/protocol/signing.js";
import { definitionOf, refuses, vectors } from "./support.js";

const TASK = "ab".repeat(32);
const links = vectors("phone_links");
const papers = vectors("phone_documents");

test("a message is read as it was written", () => {
  const fields = [utf8("bytes"), "text \u{1f600}", 0, 2n ** 100n, ["a", ""], [1, 0n], [utf8("x"), new Uint8Array(0)]];
  /** @type {import("#web/phone/protocol/messages.js").FieldType[]} */
  const types = ["bytes", "text", "number", "number", "list of text", "list of number", "list of bytes"];
  const expected = [utf8("bytes"), "text \u{1f600}", 0n, 2n ** 100n, ["a", ""], [1n, 0n], [utf8("x"), new Uint8Array(0)]];
  const bytes = encode(77, fields);
  assert.deepEqual(decode(77, types, bytes), expected);
  assert.deepEqual(decode(77, types, concat(Uint8Array.of(9), bytes).subarray(1)), expected);
});

test("a message that says too much of itself is refused before anything is taken", async () => {
  const head = concat(utf8("CFLM"), Uint8Array.of(2, 77));
  const limit = { field: 10, entries: 2 };
  await refuses("LimitExceeded", () => decode(77, ["bytes"], concat(head, u32(11)), limit));
  await refuses("LimitExceeded", () => decode(77, ["bytes"], concat(head, u32(0xffffffff)), limit));
  await refuses("Truncated", () => decode(77, ["bytes"], concat(head, u32(10)), limit));
  await refuses("Truncated", () => decode(77, ["bytes"], concat(head, Uint8Array.of(0, 0, 0)), limit));
  await refuses("LimitExceeded", () => decode(77, ["list of number"], encode(77, [[0, 0, 0]]), { field: 100, entries: 2 }));
  await refuses("Truncated", () => decode(77, ["list of text"], encode(77, [Uint8Array.of(0, 0, 0, 2, 97)])));
  await refuses("FormatError", () => decode(77, ["number"], encode(77, [Uint8Array.of(0, 1)])));
  await refuses("FormatError", () => decode(77, ["number"], encode(77, [Uint8Array.of(0)])));
  await refuses("FormatError", () => decode(77, ["number"], encode(77, [new Uint8Array(4097).fill(1)])));
  await refuses("FormatError", () => decode(77, ["text"], encode(77, [Uint8Array.of(255)])));
});

test("a link gives the invitation back to the letter", async () => {
  for (const given of links.good) {
    const url = new URL(given.link);
    for (const fragment of [url.hash, url.hash.slice(1)]) {
      const { kgcKey, spKey, place, ...found } = parseLink(fragment, url.origin);
      const { task, invitation, kgc, sp, expires, device } = given;
      assert.deepEqual(found, { task, invitation, kgc, sp, expires, replaces: device > 1 });
      assert.match(place, /^[0-9a-f]{8}$/);
      assert.deepEqual([hex(kgcKey), hex(spKey)], [given.kgc_key, given.sp_key]);
      const document = found.invitation.slice(found.invitation.indexOf(" ") + 1);
      assert.equal((await openDocument(document, "invitation", fromHex(links.requester))).task, task);
    }
  }
});

test("a link to a listed task holds no invitation: SP is asked for one", () => {
  for (const given of links.listed) {
    const url = new URL(given.link);
    const { kgcKey, spKey, ...found } = parseLink(url.hash, url.origin);
    const { task, kgc, sp } = given;
    assert.deepEqual(found, { task, invitation: "", kgc, sp, expires: null, place: "", replaces: false });
    assert.deepEqual([hex(kgcKey), hex(spKey)], [given.kgc_key, given.sp_key]);
  }
});

test("a task that SP lists is joined by nobody whose owner has not said all the same, unless noise hides people", async () => {
  const task = /** @type {any} */ ({ minParticipants: 1000, recruits: true, hasNoise: false });
  await refuses("TooFewParticipants", () => requireCompany(task, 5));
  requireCompany(task, 5, true);
  requireCompany({ ...task, hasNoise: true }, 5);
  requireCompany({ ...task, recruits: false }, 5);
  await refuses("TooFewParticipants", () => requireCompany({ ...task, minParticipants: 3 }, 5, true));
});

test("what SP signs for a key of this phone's is for that key, task and a first device, or it is not used", async () => {
  const key = await newTicketKey();
  const invitation = (/** @type {object} */ changed = {}) => `crowdfl invitation ${"A".repeat(86)} ${JSON.stringify({ form: 1, task: "t", number: "0".repeat(32), device: 1, key: key.open, expires: 5, ...changed })}`;
  assert.equal(openRecruited(invitation(), "t", key), `${base64url(key.secret)} ${invitation()}`);
  for (const changed of [{ task: "u" }, { device: 2 }, { key: "00".repeat(32) }]) {
    await refuses("DocumentError", () => openRecruited(invitation(changed), "t", key));
  }
  assert.notDeepEqual((await newTicketKey()).secret, key.secret);
  const ticket = openRecruited(invitation(), "t", key);
  const { request } = await enrolmentRequest("t", ticket, await newKeys()); // the private half fits
  assert.match(request, /^crowdfl enrolment-request /);
});

for (const { name, fragment, error } of links.bad) {
  test(`a link with ${name} is refused: ${error}`, () =>
    refuses(error, () => parseLink(fragment, "https://sp.example")));
}

test("a link to plain HTTP is refused, other than to this device", async () => {
  /** @type {import("#web/phone/protocol/messages.js").FieldType[]} */
  const types = ["text", "bytes", "bytes", "text", "text", "bytes", "bytes"];
  const fields = decode(70, types, fromHex(links.good[0].message));
  const link = (/** @type {string} */ kgc) => base64url(encode(70, [...fields.slice(0, 3), kgc, ...fields.slice(4)]));
  for (const kgc of ["http://kgc.example", "http://localhost.example", "http://127.0.0.1.example", "http://[::2]"]) {
    await refuses("PlainHttpRefused", () => parseLink(link(kgc), "https://sp.example"));
  }
  for (const kgc of ["https://a@kgc.example", "https://kgc.example/?a", "https://kgc.example/#a", "ftp://k.example", "//x"]) {
    await refuses("FormatError", () => parseLink(link(kgc), "https://sp.example"));
  }
  for (const kgc of ["http://localhost:7101", "http://127.0.0.1:7101", "http://[::1]:7101", "https://kgc.example/a"]) {
    assert.equal(parseLink(link(kgc + "/"), "https://sp.example").kgc, kgc);
  }
});

test("a task of shares is read with all that a phone needs", async () => {
  const task = sharesTask(await openDefinition(papers.definitions[0].text));
  const { parameters, unit, clip, maxNorm, minParticipants, rounds, payment, roundsUntil, claimsUntil, claimsEarly, shape } = task;
  assert.deepEqual([parameters, unit, clip, maxNorm, minParticipants], [10, 1e6, 2, 5, 5]);
  assert.deepEqual([rounds, payment, roundsUntil, claimsUntil, claimsEarly], [3, 36_000_000n, 1_798_761_600, 1_799_366_400, true]);
  assert.deepEqual(shape.map(([name]) => name), ["weight", "bias", "scale"]);
});

const given = { task: "0".repeat(64), parameters: 3 };
/** @param {Record<string, unknown>} settings */
const withSettings = (settings) => sharesTask(definitionOf({ ...given, settings: { profile: "shares", ...settings } }));

test("tasks of other profiles are refused with words", () => {
  for (const profile of ["hardened", "paper", "quantum", undefined, 7]) {
    assert.throws(() => withSettings({ profile }), { name: "UnsupportedTask", message: /program|newest version/ });
  }
});

test("what a round pays can be claimed while the task runs where CSP's record says it, and not where a claim shows more", () => {
  const pays = [null, "equal", "samples", "distance"].map((pay) => withSettings({ pay, budget: "2" }));
  assert.deepEqual(pays.map(({ claimsEarly }) => claimsEarly), [true, true, false, false]);
});

test("fixed pay is an amount, and its budget follows from it", async () => {
  const fixed = { pay: "fixed", each: "2.00", bonus: "1.00", budget: "24.00", max_participants: 12 };
  const task = withSettings(fixed);
  assert.deepEqual([task.each, task.bonus, task.payment, task.claimsEarly], [2_000_000n, 1_000_000n, 24_000_000n, true]);
  for (const wrong of [{ each: null }, { budget: "23.00" }, { each: "0", budget: "0" }, { budget: null }]) {
    await refuses("DocumentError", () => withSettings({ ...fixed, ...wrong }));
  }
});

test("a bonus is what CSP's word says, and nobody else's", async () => {
  const [csp, other, keys] = [await newKeys(), await newKeys(), await newKeys()];
  const task = { ...withSettings({ pay: "fixed", each: "2.00", bonus: "1.00", budget: "24.00", max_participants: 12 }), task: TASK };
  const bundle = /** @type {any} */ ({ ringBits: 64, cspSigning: csp.signingPublic });
  const word = async (/** @type {string} */ of, /** @type {string[]} */ names, signer = csp) => {
    const unsigned = encode(95, [of, names, new Uint8Array(0)]);
    return rewardBy(task, encode(95, [of, names, await sign(signer, concat(utf8("crowdfl bonus 1"), unsigned))]));
  };
  const read = async (/** @type {any} */ shown) => openReward(task, bundle, keys, shown, BONUS);
  assert.equal(await read(await word(TASK, ["x", keys.who])), 1_000_000n);
  await assert.rejects(read(await word(TASK, ["x"])), { name: "UploadRejected" });
  await assert.rejects(read(await word("f".repeat(64), [keys.who])), { name: "ProtocolError" });
  await assert.rejects(read(await word(TASK, [keys.who], other)), { name: "BadSignature" });
});

test("where unclaimed pay goes is what its owner has signed, and CSP has kept", async () => {
  const [csp, other, keys] = [await newKeys(), await newKeys(), await newKeys()];
  const task = { ...withSettings({ pay: "fixed", each: "2.00", budget: "24.00", max_participants: 12 }), task: TASK };
  const [bundle, destination] = [/** @type {any} */ ({ cspSigning: csp.signingPublic, ringBits: 64 }), new Uint8Array(32).fill(7)];
  const note = /** @type {any} */ (await placeNote(task, keys, destination, 2));
  const [, who, hash, counter, signature] = decode(98, ["text", "text", "bytes", "number", "bytes"], note);
  assert.deepEqual([who, hash, counter], [keys.who, destination, 2n]);
  await verify(keys.signingPublic, concat(utf8("crowdfl place 1"), encode(98, [TASK, who, hash, counter, new Uint8Array(0)])), signature);
  const word = async (/** @type {any[]} */ fields, signer = csp) =>
    encode(99, [...fields, await sign(signer, concat(utf8("crowdfl place kept 1"), encode(99, [...fields, new Uint8Array(0)])))]);
  const check = async (/** @type {any} */ kept) => checkPlaceKept(task, bundle, keys, { destination, counter: 2 }, kept);
  await check(await word([TASK, keys.who, destination, 2]));
  await assert.rejects(check(await word([TASK, keys.who, destination, 1])), { name: "ClaimRefused" }, "an older one");
  await assert.rejects(check(await word([TASK, keys.who, new Uint8Array(32), 2])), { name: "ClaimRefused" });
  await assert.rejects(check(await word([TASK, keys.who, destination, 2], other)), { name: "BadSignature" });
  assert.equal(await placeNote(withSettings({ pay: "samples", budget: "2" }), keys, destination, 1), null, "nobody but its owner knows that reward");
});

test("a task without a budget, or whose pay is none, pays nothing", () => {
  const tasks = [{}, { budget: "2", pay: "none" }, { budget: "2" }, { budget: 2 }].map(withSettings);
  assert.deepEqual(tasks.map(({ payment }) => payment), [0n, 0n, 2_000_000n, 2_000_000n]);
});

test("settings that Python refuses are refused", async () => {
  /** @type {Record<string, unknown[]>} */
  const wrong = {
    total: ["hidden", null], decimals: [-1, 13, 1.5, "6", true], clip: [0, -1, 1e16, "2", null], max_participants: [2, 4.5],
    max_samples: [0, 1e16], min_participants: [2, 37], per_round: [2, 37, 4.5], cohort: [1, null], lanes: [null, 65537, -1, 0], pay: ["other", 1], weighting: ["votes", null], check: [null, "all"],
    max_norm: [0, "5"], window: [0], late: [-1], rounds: [0, 1.5], key_bits: [0], mask_bits: [19], distance_floor: [-1],
    budget: ["-1", "much", true, "0.0000001"], unknown: [1],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) await refuses("DocumentError", () => withSettings({ [name]: value }));
  }
  await refuses("DocumentError", () => withSettings({ decimals: 12, clip: 9008 }));
  await refuses("DocumentError", () => withSettings({ per_round: 4, min_participants: 5 }));
  assert.equal(withSettings({ per_round: 4 }).maxParticipants, 4);
  await refuses("DocumentError", () => withSettings({ check: "none", budget: "1" }));
  await refuses("DocumentError", () => withSettings({ weighting: "equal" })); // without `max_norm`
  for (const pay of ["samples", "distance"]) await refuses("DocumentError", () => withSettings({ weighting: "equal", max_norm: 2, pay }));
});

test("more people or rounds than a page keeps account of are refused with words", async () => {
  for (const settings of [{ max_participants: 1e15 }, { rounds: 1e15 }]) await refuses("UnsupportedTask", () => withSettings(settings));
});

test("a budget is an amount of money also where nobody is paid: it is shown to people", async () => {
  await refuses("DocumentError", () => withSettings({ budget: "1,000,000 dollars for you", pay: "none" }));
});

test("a model that is none, or too large, is refused", async () => {
  const settings = { profile: "shares" };
  await refuses("UnsupportedTask", () => sharesTask(definitionOf({ ...given, parameters: 2 ** 40, settings })));
  await refuses("UnsupportedTask", () => sharesTask(definitionOf({ ...given, parameters: 20_000_000, settings }))); // an upload of 160 MB
  const lacking = definitionOf({ ...given, settings });
  Reflect.deleteProperty(lacking.body.settings, "max_norm");
  await refuses("DocumentError", () => sharesTask(lacking));
  const empty = definitionOf({ ...given, settings });
  empty.body.arrays = [];
  await refuses("DocumentError", () => sharesTask(empty));
});

test("a crowd that is too small for its member is refused", async () => {
  const task = withSettings({ min_participants: 4 });
  await refuses("TooFewParticipants", () => requireCompany(task));
  requireCompany(task, 4);
});

test("a service's problem is the error that it raised", () => {
  for (const { status, problem, error, passes, text } of papers.problems) {
    const found = errorFrom(status, problem);
    assert.ok(found instanceof CrowdFLError);
    assert.deepEqual([found.name, found.passes], [error, passes], JSON.stringify(problem));
    if (text) assert.equal(found.message, text);
  }
});

test("errors are a tree: what waits for one kind gets those below it", () => {
  assert.ok(new TaskEnded("x") instanceof TaskNotRunning);
  assert.ok(!(new NotReady("x") instanceof ServiceError));
  assert.deepEqual([new TaskEnded("x").name, String(new TaskEnded("why"))], ["TaskEnded", "TaskEnded: why"]);
});

test("a long or twisted message of a service becomes one short line", () => {
  const { message } = errorFrom(400, { type: "urn:crowdfl:problem:forbidden", detail: "\u{1f600}\n\u202e".repeat(2000) });
  assert.match(message, /^[\u{1f600} ?]*$/u);
  assert.equal(Array.from(message).length, 2000);
});

test("private keys cannot be exported, and survive being kept", async () => {
  const keys = await newKeys();
  for (const pair of [keys.signing, keys.reading]) {
    assert.equal(pair.privateKey.extractable, false);
    await assert.rejects(crypto.subtle.exportKey("pkcs8", pair.privateKey));
    await assert.rejects(crypto.subtle.exportKey("jwk", pair.privateKey));
  }
  assert.match(keys.who, /^[0-9a-f]{20}$/);
  const kept = structuredClone(keys);
  assert.deepEqual(kept.signingPublic, keys.signingPublic);
  assert.notEqual((await newKeys()).who, keys.who);
});

test("bytes keep their forms", async () => {
  const bytes = Uint8Array.from({ length: 10_000 }, (_, i) => (i * 7) % 256);
  assert.deepEqual(fromBase64(base64(bytes)), bytes);
  for (const length of [0, 1, 2, 3, 4]) {
    const few = bytes.slice(250, 250 + length);
    assert.deepEqual(fromBase64url(base64url(few)), few);
  }
  assert.deepEqual(fromHex(hex(bytes)), bytes);
  assert.equal(equal(bytes, bytes.slice(1)), false);
  assert.equal(equal(bytes, bytes.slice()), true);
  assert.equal(toNumber(Uint8Array.of(1, 0)), 256n);
  assert.deepEqual([fromNumber(256n), fromNumber(0n), fromNumber(1n, 3)].map(hex), ["0100", "", "000001"]);
  for (const wrong of ["abc", "zz", "0x", " 00"]) await refuses("FormatError", () => fromHex(wrong));
  for (const wrong of ["a", "a===", "YQ", "Y Q=", "YQ=a"]) await refuses("FormatError", () => fromBase64(wrong));
  for (const wrong of [-1, 2 ** 32, 1.5, NaN]) await refuses("FormatError", () => u32(wrong));
  await refuses("FormatError", () => fromNumber(256n, 1));
});

test("a plan that cannot be is refused", () => {
  const { task, body, requester } = definitionOf({ task: "t", settings: { profile: "shares" }, parameters: 2 });
  const planned = (/** @type {Record<string, unknown>} */ plan) => sharesTask({ task, requester, body: { ...body, plan } });
  assert.equal(planned({ ...body.plan, every: "day at 18:00 Europe/Berlin", enrol_until: "2026-12-01T18:00:00+01:00" }).rounds, 5);
  const { goal: _goal, ...lacking } = body.plan;
  const wrong = [{ enrol_until: "soon" }, { start_at: 5 }, { start_with: 2 }, { every: 0 }, { every: "day at 25 o'clock" }, { closes: "never" }, { more: 1 }];
  for (const plan of [lacking, ...wrong.map((one) => ({ ...body.plan, ...one }))]) {
    assert.throws(() => planned(plan), { name: "DocumentError" }, JSON.stringify(plan));
  }
});
