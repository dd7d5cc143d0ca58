// Every case of vectors/ that a phone meets, good and bad, byte for byte.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { parseRecord, readPublication } from "#web/phone/protocol/average.js";
import { limitsOf, openBundle } from "#web/phone/protocol/bundle.js";
import { fromHex, hex, sha256, utf8 } from "#web/phone/protocol/bytes.js";
import { chainToBytes, placeOf, startChain } from "#web/phone/protocol/chain.js";
import { enrolmentRequest, openEnrolled } from "#web/phone/protocol/documents.js";
import { expand } from "#web/phone/protocol/expansion.js";
import { encode } from "#web/phone/protocol/messages.js";
import { REASONS } from "#web/phone/protocol/reasons.js";
import { makeClaim, openReward } from "#web/phone/protocol/rewards.js";
import { elementBytes, littleEndian, minusElements, signedDifference } from "#web/phone/protocol/ring.js";
import { openSealed, sealTo } from "#web/phone/protocol/seal.js";
import { sharesTask } from "#web/phone/protocol/settings.js";
import { leavesOf } from "#web/phone/protocol/leaves.js";
import { makeUpload } from "#web/phone/protocol/upload.js";
import { definitionOf, keysFrom, pairOf, publicOf, receiveUpload, refuses, vectors } from "./support.js";

const EXPANSION = vectors("shares_expansion");
const MESSAGES = vectors("shares_messages");
const ENROLMENT = vectors("enrolment");

const task = sharesTask(definitionOf({ ...MESSAGES, parameters: MESSAGES.initial.length }));
const sealing = await pairOf("X25519", MESSAGES.keys["csp sealing"]);
const csp = await pairOf("Ed25519", MESSAGES.keys["csp signing"]);
const readers = [await pairOf("X25519", MESSAGES.keys.participants), await pairOf("X25519", MESSAGES.keys.requester)];
const publics = await Promise.all([csp, sealing, ...readers].map(publicOf));
const bundle = await openBundle(encode(52, [...publics, fromHex(MESSAGES.keys.participants), MESSAGES.ring]));
const start = await startChain(task, Float64Array.from(MESSAGES.initial, (value) => Number(value) / task.unit));
const place = placeOf(task, 1, start.base);

/** @param {string[]} values */
const integers = (values) => BigInt64Array.from(values, BigInt);

for (const { seed, context, length, ...said } of EXPANSION.expansions) {
  test(`a seed becomes ${length} bytes with the context ${context || "nothing"}`, async () => {
    const bytes = await expand(fromHex(seed), fromHex(context), length);
    assert.equal(bytes.length, length);
    if ("bytes" in said) assert.equal(hex(bytes), said.bytes);
    else assert.deepEqual([hex(await sha256(bytes)), hex(bytes.slice(-16))], [said.sha256, said.last]);
  });
}

for (const { bits, values, bytes } of EXPANSION.rings) {
  test(`elements of ${bits} bits are the numbers that they stand for`, () => {
    const zeros = new Uint8Array(values.length * elementBytes(bits));
    assert.equal(hex(minusElements(integers(values), zeros, bits)), bytes);
    assert.deepEqual(signedDifference(fromHex(bytes), [zeros], bits), integers(values));
  });
}

for (const { bits, values, seed, context, csp: theirs, sp } of EXPANSION.sharings) {
  test(`numbers are shared in a ring of ${bits} bits`, async () => {
    const stream = await expand(fromHex(seed), fromHex(context), theirs.length / 2);
    assert.equal(hex(stream), theirs);
    assert.equal(hex(minusElements(integers(values), stream, bits)), sp);
  });
}

for (const { step, bits, bytes, error } of EXPANSION.bad) {
  if (step === "compare") continue; // between the servers
  test(`a ring of ${bits} bits, ${bytes?.length ?? 0} digits: ${error}`, () =>
    refuses(error, () => (step === "ring" ? elementBytes(bits) : signedDifference(fromHex(bytes), [fromHex(bytes)], bits))));
}

test("the task, its ring and its first base are those of the vectors", () => {
  assert.deepEqual([bundle.ringBits, task.payment, hex(start.base)], [40, BigInt(MESSAGES.payment), MESSAGES.base]);
  assert.deepEqual(start.weights, integers(MESSAGES.initial));
});

for (const { label, bytes, leaves } of MESSAGES.leaves) {
  test(`the leaves of ${bytes} bytes`, () => {
    const made = createHash("shake256", { outputLength: bytes }).update(`crowdfl message vectors 1: ${label}`).digest();
    assert.equal(hex(leavesOf(new Uint8Array(made))), leaves);
  });
}

for (const given of MESSAGES.uploads) {
  test(`the upload of ${given.who} is made again byte for byte, its seal too`, async () => {
    const keys = await keysFrom(given.signing, given.reading);
    assert.equal(keys.who, given.who);
    const drawn = { ...drawnFor(given), ephemeral: await ephemeralOf(given) };
    const made = await makeUpload(task, bundle, keys, start, trained(given), given.samples, 1, drawn);
    assert.equal(hex(made.bytes), given.body);
    assert.deepEqual([made.clipped, made.scaled], [0, null]);
  });

  test(`the upload of ${given.who} with a fresh seal differs in seal and signature alone, and CSP opens it`, async () => {
    const keys = await keysFrom(given.signing, given.reading);
    const made = await makeUpload(task, bundle, keys, start, trained(given), given.samples, 1, drawnFor(given));
    const standing = { round: 1, base: start.base, signing: () => keys.signingPublic };
    const received = await receiveUpload(task, bundle, made.bytes, standing);
    const wanted = await receiveUpload(task, bundle, fromHex(given.body), standing);
    assert.notDeepEqual(received.sealed, wanted.sealed);
    assert.deepEqual({ ...received, sealed: 0, signature: 0 }, { ...wanted, sealed: 0, signature: 0 });
    const context = place("crowdfl share seed 1", utf8(given.who), received.digest);
    assert.equal(hex(await openSealed(sealing, received.sealed, context)), given.seed);
    assert.equal(hex(await openSealed(sealing, wanted.sealed, context)), given.seed);
  });
}

const ONCE = MESSAGES["counted once"];
const once = sharesTask(definitionOf({ ...MESSAGES, settings: { ...MESSAGES.settings, ...ONCE.settings }, parameters: 4 }));
const onceBundle = { ...bundle, ringBits: ONCE.ring };

for (const given of ONCE.uploads) {
  test(`where everyone counts once, the upload of ${given.who} holds no number of samples, byte for byte`, async () => {
    const drawn = { ...drawnFor(given), ephemeral: await ephemeralOf(given) };
    const keys = await keysFrom(given.signing, given.reading);
    for (const samples of [given.samples, 100_000]) { // more than `max_samples` is nobody's concern
      const made = await makeUpload(once, onceBundle, keys, start, trained(given), samples, 1, drawn);
      assert.equal(hex(made.bytes), given.body);
    }
    assert.equal(given["csp samples"], "");
  });
}

/** @param {{ seed: string, salt: string }} given */
const drawnFor = ({ seed, salt }) => ({ seed: fromHex(seed), salt: fromHex(salt) });

/** @param {{ change: string[] }} given */
function trained({ change }) {
  return Float64Array.from(change, (value, i) => (Number(MESSAGES.initial[i]) + Number(value)) / task.unit);
}

/** The key that the generator sealed with: fixed bytes for a label. @param {{ who: string }} given */
async function ephemeralOf({ who }) {
  const { createHash } = await import("node:crypto");
  for (const index of [0, 1, 2]) {
    const label = (/** @type {string} */ what) =>
      createHash("shake256", { outputLength: 32 }).update(`crowdfl message vectors 1: ${what}`).digest("hex");
    const keys = await keysFrom(label(`person ${index} signing`), label(`person ${index} reading`));
    if (keys.who === who) return pairOf("X25519", label(`upload ${index} ephemeral`));
  }
  throw new Error("nobody of that name in the vectors");
}

for (const { name, body, error } of MESSAGES.bad) {
  test(`an upload with ${name} is refused: ${error}`, async () => {
    const keys = new Map();
    for (const one of MESSAGES.uploads) keys.set(one.who, (await keysFrom(one.signing, one.reading)).signingPublic);
    const standing = { round: 1, base: start.base, signing: (/** @type {string} */ who) => keys.get(who) };
    await refuses(error, () => receiveUpload(task, bundle, fromHex(body), standing));
  });
}

test("a reader gets the next model out of the publication", async () => {
  const opened = await readPublication(task, bundle, start, fromHex(MESSAGES.average.publication), 1);
  assert.deepEqual(opened.chain.weights, integers(MESSAGES.average.model));
  assert.equal(hex(opened.chain.base), MESSAGES.average.base);
  assert.equal(hex(chainToBytes(opened.chain)), MESSAGES.average.chain);
  assert.equal(opened.total, MESSAGES.average.total);
  assert.deepEqual(opened.accepted, MESSAGES.uploads.map((/** @type {{ who: string }} */ { who }) => who));
  assert.equal(opened.rejected.size, 0);
});

test("where everyone counts once, a publication has no total, and a reader gets the next model", async () => {
  const shown = fromHex(ONCE.average.publication);
  const opened = await readPublication(once, onceBundle, start, shown, 1);
  assert.equal(hex(chainToBytes(opened.chain)), ONCE.average.chain);
  assert.deepEqual([opened.total, hex(opened.record)], [null, ONCE.average.record]);
  await refuses("LengthMismatch", () => readPublication({ ...once, countBytes: 16 }, onceBundle, start, shown, 1));
});

test("the reward is opened, and its claim is made byte for byte", async () => {
  const { who, amount, envelope, claim } = MESSAGES.reward;
  const owner = MESSAGES.uploads.find((/** @type {{ who: string }} */ one) => one.who === who);
  const keys = await keysFrom(owner.signing, owner.reading);
  assert.equal(await openReward(task, bundle, keys, fromHex(envelope), 1), BigInt(amount));
  assert.equal(hex(await makeClaim(task, keys, { rewards: [{ round: 1, envelope: fromHex(envelope) }] }, bundle)), claim);
});

test("an equal part is read off the record, and its claim is made byte for byte", async () => {
  const { who, amount, envelope, claim } = MESSAGES["equal reward"];
  const owner = MESSAGES.uploads.find((/** @type {{ who: string }} */ one) => one.who === who);
  const [keys, equally] = [await keysFrom(owner.signing, owner.reading), { ...task, pay: "equal" }];
  assert.equal(await openReward(equally, bundle, keys, fromHex(envelope), 1), BigInt(amount));
  assert.equal(hex(await makeClaim(equally, keys, { rewards: [{ round: 1, envelope: fromHex(envelope) }] }, bundle)), claim);
});

test("a claim names unused rounds and where to be paid, with rewards and without", async () => {
  const { who, envelope, beside } = MESSAGES["equal reward"];
  const owner = MESSAGES.uploads.find((/** @type {{ who: string }} */ one) => one.who === who);
  const [keys, equally] = [await keysFrom(owner.signing, owner.reading), { ...task, pay: "equal" }];
  const more = { unused: [...beside.unused].reverse(), destination: fromHex(beside.destination), counter: beside.counter };
  assert.equal(hex(await makeClaim(equally, keys, { rewards: [{ round: 1, envelope: fromHex(envelope) }], ...more }, bundle)), beside.claim);
  assert.equal(hex(await makeClaim(equally, keys, { rewards: [], ...more }, bundle)), beside["claim without rewards"]);
  await refuses("ClaimRefused", () => makeClaim(equally, keys, { rewards: [{ round: 1, envelope: fromHex(envelope) }], unused: [1] }, bundle));
});

for (const { name, record, reasons, error } of MESSAGES.records) {
  test(`a signed record names reasons by code alone: ${name}`, async () => {
    const parsed = parseRecord(fromHex(record), limitsOf(task, bundle).record, bundle.cspSigning);
    if (error) await assert.rejects(parsed, { name: error });
    else assert.deepEqual([...(await parsed).rejected.values()], reasons);
  });
}

test("the vectors have every reason", () => {
  const named = new Set(MESSAGES.records.flatMap((/** @type {{ reasons?: string[] }} */ { reasons = [] }) => reasons));
  assert.deepEqual([...named], [...REASONS]);
});

test("the request to enrol is the one of the vectors", async () => {
  const { task: name, ticket, invitation, private: own, who, request, context } = ENROLMENT;
  const keys = await keysFrom(own.signing, own.reading);
  const made = await enrolmentRequest(name, ticket, keys);
  assert.equal(keys.who, who);
  assert.deepEqual([made.request, made.invitation], [request, invitation]);
  assert.equal(new TextDecoder().decode(made.context), context);
});

test("KGC's answer is taken apart as it was put together", async () => {
  const { task: name, ticket, private: own, kgc, opened, certificate, bundle: dealt } = ENROLMENT;
  const keys = await keysFrom(own.signing, own.reading);
  const info = await enrolmentRequest(name, ticket, keys);
  const found = await openEnrolled(await sealTo(keys.readingPublic, fromHex(opened), info.context), info, keys, fromHex(kgc));
  assert.deepEqual([found.certificate, hex(found.bundle)], [certificate, dealt]);
});

for (const { opened, error } of ENROLMENT["cut short"]) {
  test(`an answer of KGC that holds ${opened || "nothing"} is refused: ${error}`, async () => {
    const { task: name, ticket, private: own } = ENROLMENT;
    const keys = await keysFrom(own.signing, own.reading);
    const info = await enrolmentRequest(name, ticket, keys);
    const sealed = await sealTo(keys.readingPublic, fromHex(opened), info.context);
    await refuses(error, () => openEnrolled(sealed, info, keys, keys.signingPublic));
  });
}

test("64-bit numbers lie little-endian, as the chain's bytes say", () => {
  assert.equal(hex(littleEndian(BigInt64Array.of(-2n))), "feffffffffffffff");
});
