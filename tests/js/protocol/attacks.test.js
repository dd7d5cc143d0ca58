// What a dishonest platform, or a bad line, may show a phone: a named error, never a wrong result.
import assert from "node:assert/strict";
import { test } from "node:test";

import { readPublication, readRecord, standing } from "#web/phone/protocol/average.js";
import { openBundle, requireRing } from "#web/phone/protocol/bundle.js";
import { bind, concat, fromHex, hex, sha256, utf8 } from "#web/phone/protocol/bytes.js";
import { placeOf, startChain } from "#web/phone/protocol/chain.js";
import { enrolmentRequest, openEnrolled, signDocument } from "#web/phone/protocol/documents.js";
import { readEnd } from "#web/phone/protocol/ends.js";
import { CrowdFLError } from "#web/phone/protocol/errors.js";
import { expand } from "#web/phone/protocol/expansion.js";
import { newKeys } from "#web/phone/protocol/keys.js";
import { decode, encode } from "#web/phone/protocol/messages.js";
import { makeClaim, openReward } from "#web/phone/protocol/rewards.js";
import { fromLittleEndian, toLittleEndian } from "#web/phone/protocol/ring.js";
import { openSealed, sealTo } from "#web/phone/protocol/seal.js";
import { sharesTask } from "#web/phone/protocol/settings.js";
import { sign, verify } from "#web/phone/protocol/signing.js";
import { makeUpload } from "#web/phone/protocol/upload.js";
import { altered, definitionOf, keysFrom, pairOf, publicOf, refuses, vectors } from "./support.js";

/** @typedef {import("#web/phone/protocol/bytes.js").Bytes} Bytes */
const ENROLMENT = vectors("enrolment");

const { keys: secrets, initial, average, reward, uploads, settings, task: id } = vectors("shares_messages");
const definition = definitionOf({ task: id, settings, parameters: initial.length });
const task = sharesTask(definition);
const csp = { signing: await pairOf("Ed25519", secrets["csp signing"]) };
const sealing = await pairOf("X25519", secrets["csp sealing"]);
const audiences = { participants: await pairOf("X25519", secrets.participants), requester: await pairOf("X25519", secrets.requester) };
const readers = [await publicOf(audiences.participants), await publicOf(audiences.requester)];
const dealt = [await publicOf(csp.signing), await publicOf(sealing), ...readers, fromHex(secrets.participants), 40];
const bundle = await openBundle(encode(52, dealt));
const start = await startChain(task, Float64Array.from(initial, (value) => Number(value) / task.unit));
const publication = fromHex(average.publication);
const owner = uploads.find((/** @type {{ who: string }} */ { who }) => who === reward.who);
const keys = await keysFrom(owner.signing, owner.reading);
const envelope = fromHex(reward.envelope);
const names = uploads.map((/** @type {{ who: string }} */ { who }) => who);

/**
 * A publication that CSP itself has signed, with something about it changed.
 * @param {Partial<{ task: string, number: number, base: Bytes, accepted: string[], rejected: string[], reasons: string[],
 *   round: number, t: Bytes, samples: bigint, server: string, sums: Bytes, opened: Bytes, masks: Bytes[], hashes: Bytes[],
 *   signer: { signing: CryptoKeyPair } }>} change
 */
async function published(change = {}) {
  const { task: name = id, number = 1, base = start.base, accepted = names, rejected = [], reasons = [], round = 1 } = change;
  const { t = new Uint8Array(32).fill(7), samples = 15n, server = "SP", signer = csp } = change;
  const place = placeOf(task, round, start.base);
  const seeds = [t, new Uint8Array(32).fill(8)];
  const expanded = seeds.map((seed) => (seed.length === 32 ? seed : new Uint8Array(32)));
  const [first, second] = await Promise.all(expanded.map((seed) => expand(seed, place("crowdfl mask 1 sums"), 20)));
  const [one, two] = await Promise.all(expanded.map((seed) => expand(seed, place("crowdfl mask 1 total"), 16)));
  const total = toLittleEndian(fromLittleEndian(one) + fromLittleEndian(two) + samples, 16);
  const { sums = added(first, second) } = change;
  const seals = [];
  for (const [i, from] of [server, "CSP"].entries()) {
    for (const [j, audience] of ["participants", "requester"].entries()) {
      seals.push(await sealTo(readers[j], seeds[i], place("crowdfl mask seed 2", utf8(from), utf8(audience))));
    }
  }
  const { opened = await sha256(bind("crowdfl opened 1", sums, total)) } = change;
  const { masks = await Promise.all(seeds.map(sha256)), hashes = await Promise.all(seals.map(sha256)) } = change;
  const fields = [name, number, base, accepted, rejected, reasons, opened, masks, hashes];
  const statement = concat(utf8("crowdfl record 2"), encode(57, [...fields, new Uint8Array(0)]));
  const record = encode(57, [...fields, await sign(signer, statement)]);
  return encode(59, [sums, total, seals, record]);
}

/** Modulo 2^40, element by element. @param {Bytes} a @param {Bytes} b */
function added(a, b) {
  const pieces = [];
  for (let from = 0; from < a.length; from += 5) {
    const sum = fromLittleEndian(a.slice(from, from + 5)) + fromLittleEndian(b.slice(from, from + 5));
    pieces.push(toLittleEndian(sum, 5));
  }
  return concat(...pieces);
}

const read = (/** @type {Bytes} */ bytes, round = 1, chain = start) => readPublication(task, bundle, chain, bytes, round);

test("a publication of zero sums is read: what is changed below is what is refused", async () => {
  const opened = await read(await published());
  assert.deepEqual(opened.chain.weights, start.weights);
  assert.equal(opened.total, 15);
});

test("CSP's own word is refused where it breaks the task's rules", async () => {
  const twice = [...names.slice(0, 2), names[0]];
  /** @type {[string, Parameters<typeof published>[0]][]} */
  const cases = [
    ["ChainBroken", { task: "f".repeat(64) }],
    ["ChainBroken", { number: 2 }],
    ["RolledBack", { base: new Uint8Array(32) }],
    ["RolledBack", { base: start.base.slice(1) }],
    ["TooFewParticipants", { accepted: names.slice(0, 2) }],
    ["TooFewParticipants", { accepted: twice }],
    ["TooFewParticipants", { accepted: [] }],
    ["NothingToAverage", { samples: 2n }],
    ["NothingToAverage", { samples: 31n }],
    ["NothingToAverage", { samples: 0n }],
    ["NothingToAverage", { samples: -1n }],
    ["SealBroken", { t: new Uint8Array(31) }],
    ["SealBroken", { t: new Uint8Array(0) }],
    ["SealBroken", { server: "CSP" }],
    ["SealBroken", { masks: [new Uint8Array(32), new Uint8Array(32)] }],
    ["SealBroken", { masks: [] }],
    ["ChainBroken", { opened: new Uint8Array(32) }],
    ["ChainBroken", { hashes: Array(4).fill(new Uint8Array(32)) }],
    ["SealBroken", { round: 2 }],
    ["LengthMismatch", { sums: new Uint8Array(15) }],
    ["LengthMismatch", { sums: new Uint8Array(25) }],
    ["ProtocolError", { rejected: ["a", "b"], reasons: ["broken_seal"] }],
    ["FormatError", { rejected: ["a"], reasons: ["its seal does not open"] }],
    ["FormatError", { rejected: ["a"], reasons: [""] }],
    ["FormatError", { rejected: ["a"], reasons: ["constructor"] }],
    ["BadSignature", { signer: keys }],
  ];
  for (const [error, change] of cases) await refuses(error, async () => read(await published(change)));
});

test("of the last round CSP's record is checked, whatever is sealed beside it", async () => {
  const check = async (/** @type {Parameters<typeof published>[0]} */ change) => readRecord(task, bundle, start, await published(change), 1);
  const read = await readRecord(task, bundle, start, publication, 1);
  assert.deepEqual([hex(read.record), read.accepted], [average.record, names]);
  assert.deepEqual((await check({ server: "CSP", masks: [] })).accepted, names);
  /** @type {[string, Parameters<typeof published>[0]][]} */
  const cases = [
    ["ChainBroken", { task: "f".repeat(64) }],
    ["ChainBroken", { number: 2 }],
    ["RolledBack", { base: new Uint8Array(32) }],
    ["TooFewParticipants", { accepted: names.slice(0, 2) }],
    ["BadSignature", { signer: keys }],
  ];
  for (const [error, change] of cases) await refuses(error, () => check(change));
});

test("the end of a round is CSP's word about that round, and says of this phone what it says", async () => {
  /** @param {Partial<{task: string, number: number, shown: string[], rejected: string[], reasons: string[], signer: { signing: CryptoKeyPair }}>} change */
  const end = async ({ task: name = id, number = 1, shown = names, rejected = [], reasons = [], signer = csp } = {}) => {
    const fields = [name, number, shown, rejected, reasons];
    return encode(69, [...fields, await sign(signer, concat(utf8("crowdfl round end 1"), encode(69, [...fields, new Uint8Array(0)])))]);
  };
  const read = async (/** @type {Parameters<typeof end>[0]} */ change) => readEnd(task, bundle, keys.who, await end(change), 1);
  assert.deepEqual(await read({}), { why: null, shown: true, record: null });
  assert.deepEqual(await read({ shown: [] }), { why: null, shown: false, record: null });
  assert.equal((await read({ rejected: [keys.who], reasons: ["out_of_bounds"] })).why, "out_of_bounds");
  await refuses("ProtocolError", () => read({ task: "f".repeat(64) }));
  await refuses("ProtocolError", () => read({ number: 2 }));
  await refuses("ProtocolError", () => read({ rejected: [keys.who] }));
  await refuses("BadSignature", () => read({ signer: keys }));
  const [, , , record] = decode(59, ["bytes", "bytes", "list of bytes", "bytes"], publication);
  assert.deepEqual(await readEnd(task, bundle, keys.who, record, 1), { why: null, shown: true, record });
  await refuses("ProtocolError", () => readEnd(task, bundle, keys.who, record, 2));
});

test("what was published is refused where it is not what CSP's record says, and the last round has nothing for participants", async () => {
  const types = /** @type {import("#web/phone/protocol/messages.js").FieldType[]} */ (["bytes", "bytes", "list of bytes", "bytes"]);
  const [sums, total, seals, record] = decode(59, types, publication);
  const [ours, theirs, ...rest] = seals;
  for (const given of [[], [theirs, seals[3]], [ours], seals.slice(0, 3)]) {
    await refuses("SealBroken", () => read(encode(59, [sums, total, given, record])));
  }
  await refuses("LimitExceeded", () => read(encode(59, [sums, total, [...seals, ours], record])));
  for (const given of [[theirs, ours, ...rest], [altered(ours, 40, 1), theirs, ...rest]]) {
    await refuses("ChainBroken", () => read(encode(59, [sums, total, given, record])));
  }
  await refuses("ChainBroken", () => read(encode(59, [altered(sums, 0, 1), total, seals, record])));
  await refuses("ChainBroken", () => read(encode(59, [sums, altered(total, 0, 1), seals, record])));
});

test("an average is read once, in its place, and by those who hold the model before it", async () => {
  const { chain } = await read(publication);
  await refuses("ChainBroken", () => read(publication, 2));
  await refuses("RolledBack", () => read(publication, 1, chain));
  await refuses("ChainBroken", () => read(publication, 2, chain));
  await refuses("ChainBroken", () => read(publication, 1, { ...start, number: 1 }));
  await refuses("ChainBroken", () => read(publication, 0));
  const others = sharesTask({ ...definition, task: "e".repeat(64) });
  await refuses("ChainBroken", () => readPublication(others, bundle, start, publication, 1));
});

test("a publication that is cut off anywhere is refused", async () => {
  for (let length = 0; length < publication.length; length += 1) {
    const outcome = await read(publication.slice(0, length)).catch((error) => error);
    assert.ok(outcome instanceof CrowdFLError, `${length} bytes`);
    assert.equal(outcome.name, "Truncated", `${length} bytes`);
  }
  await refuses("TrailingBytes", () => read(concat(publication, Uint8Array.of(0))));
});

test("a publication with any bit altered is refused, or names another model than everybody else's", async () => {
  const honest = hex((await read(publication)).chain.base);
  for (let place = 0; place < publication.length; place += 1) {
    const outcome = await read(altered(publication, place, 1 << (place % 8))).catch((error) => error);
    if (outcome instanceof Error) assert.ok(outcome instanceof CrowdFLError, `byte ${place}: ${outcome.stack}`);
    else assert.notEqual(hex(outcome.chain.base), honest); // SP's own sums: nobody else has them, and no upload would fit
  }
});

test("one's own standing is CSP's word", async () => {
  const rejected = ["somebody"];
  const opened = await read(await published({ rejected, reasons: ["broken_seal"] }));
  assert.equal(standing(opened, names[0]), null);
  assert.equal(standing(opened, "somebody"), "broken_seal");
  assert.equal(standing(opened, "nobody"), "not_passed_on");
});

test("a reward is for one person, one round and one task", async () => {
  const somebody = await newKeys();
  await refuses("SealBroken", () => openReward(task, bundle, somebody, envelope, 1));
  await refuses("SealBroken", () => openReward(task, bundle, { ...keys, who: somebody.who }, envelope, 1));
  await refuses("SealBroken", () => openReward(task, bundle, keys, envelope, 2));
  await refuses("SealBroken", () => openReward({ ...task, task: "f".repeat(64) }, bundle, keys, envelope, 1));
  await refuses("RewardsOff", () => openReward({ ...task, payment: 0n }, bundle, keys, envelope, 1));
  await refuses("RewardsOff", () => makeClaim({ ...task, payment: 0n }, keys, { rewards: [] }, bundle));
});

test("an envelope that is cut off or altered anywhere is refused", async () => {
  for (let place = 0; place < envelope.length; place += 1) {
    for (const bytes of [envelope.slice(0, place), altered(envelope, place, 1 << (place % 8))]) {
      const outcome = await openReward(task, bundle, keys, bytes, 1).catch((error) => error);
      assert.ok(outcome instanceof CrowdFLError, `byte ${place}: ${outcome}`);
    }
  }
});

test("an equal part is by CSP's record of that round and task, of those who are in it", async () => {
  const [equally, shown] = [{ ...task, pay: "equal" }, fromHex(vectors("shares_messages")["equal reward"].envelope)];
  const somebody = await newKeys();
  await refuses("UploadRejected", () => openReward(equally, bundle, somebody, shown, 1));
  await refuses("ProtocolError", () => openReward(equally, bundle, keys, shown, 2));
  await refuses("ProtocolError", () => openReward({ ...equally, task: "f".repeat(64) }, bundle, keys, shown, 1));
  await refuses("BadSignature", () => openReward(equally, { ...bundle, cspSigning: somebody.signingPublic }, keys, shown, 1));
  for (let place = 0; place < shown.length; place += 1) {
    const outcome = await openReward(equally, bundle, keys, altered(shown, place, 1), 1).catch((error) => error);
    assert.ok(outcome instanceof CrowdFLError || outcome === task.payment / 3n, `byte ${place}: ${outcome}`);
  }
});

/**
 * An envelope as SP and CSP make it.
 * @param {bigint} v @param {bigint} mask @param {number} width @param {{ signing: CryptoKeyPair }} [signer]
 */
async function rewarded(v, mask, width, signer = csp) {
  const salt = new Uint8Array(32).fill(3);
  const digits = fromHex(mask ? mask.toString(16).padStart(2 * Math.ceil(mask.toString(16).length / 2), "0") : "");
  const commitment = await sha256(concat(utf8("crowdfl commitment 1"), Uint8Array.of(0, 32), salt, digits));
  const context = utf8(`crowdfl task ${id} round 1`);
  const value = fromHex(v.toString(16).padStart(2 * width, "0"));
  const parts = [context, utf8(keys.who), commitment, value].flatMap((part) => [Uint8Array.of(0, 0, 0, part.length), part]);
  const signature = await sign(signer, concat(utf8("crowdfl reward statement 1"), ...parts));
  const place = concat(utf8("crowdfl reward 2"), Uint8Array.of(0, 0, 0, context.length), context, utf8(keys.who));
  return encode(18, [mask, salt, await sealTo(keys.readingPublic, concat(value, signature), place)]);
}

test("rewards lie between nothing and the round's budget", async () => {
  const exact = { ...task, pay: "distance" };
  const open = async (/** @type {bigint} */ v, /** @type {bigint} */ mask) =>
    openReward(exact, bundle, keys, await rewarded(v, mask, 16), 1);
  assert.equal(await open(5n, 5n), 0n);
  assert.equal(await open(0n, 0n), 0n);
  assert.equal(await open(task.payment, 0n), task.payment);
  assert.equal(await open(2n, 2n ** 128n - 3n), 5n);
  await refuses("RewardOutOfRange", () => open(task.payment + 1n, 0n));
  await refuses("RewardOutOfRange", () => open(0n, 1n));
  await refuses("BadSignature", async () => openReward(exact, bundle, keys, await rewarded(1n, 0n, 16, keys), 1));
});

test("by samples a reward is one's part of the total, rounded down", async () => {
  const open = async (/** @type {bigint} */ count, /** @type {bigint} */ total, mask = 0n) =>
    openReward(task, bundle, keys, await rewarded(BigInt.asUintN(256, count + (total << 128n) + mask), mask, 32), 1);
  assert.equal(await open(2n, 3n), (task.payment * 2n) / 3n);
  assert.equal(await open(1n, 7n, 2n ** 256n - 5n), task.payment / 7n);
  assert.equal(await open(9n, 9n), task.payment);
  for (const [count, total] of [[10n, 9n], [1n, 0n], [0n, 0n]]) await refuses("RewardOutOfRange", () => open(count, total));
});

test("a claim holds each round once, in order, and only what was earned", async () => {
  await refuses("ClaimRefused", () => makeClaim(task, keys, { rewards: [{ round: 1, envelope }, { round: 1, envelope }] }, bundle));
  await refuses("SealBroken", () => makeClaim(task, keys, { rewards: [{ round: 2, envelope }] }, bundle));
  const less = { round: 1, envelope: await rewarded(1n, 0n, 32) };
  await refuses("RewardOutOfRange", () => makeClaim(task, keys, { rewards: [less] }, bundle));
});

test("a bundle that is not one is refused", async () => {
  await refuses("FormatError", () => openBundle(encode(52, [...dealt.slice(0, 4), new Uint8Array(31), 40])));
  await refuses("FormatError", () => openBundle(encode(52, [new Uint8Array(0), ...dealt.slice(1)])));
  await refuses("WidthError", () => openBundle(encode(52, [...dealt.slice(0, 5), 41])));
  await refuses("WidthError", () => openBundle(encode(52, [...dealt.slice(0, 5), 2n ** 70n])));
  await refuses("FormatError", () => openBundle(encode(51, dealt)));
  const narrow = await openBundle(encode(52, [...dealt.slice(0, 5), 16]));
  await refuses("KeyMismatch", () => requireRing(task, narrow));
  await refuses("KeyMismatch", () => makeUpload(task, narrow, keys, start, new Float64Array(4), 1, 1));
  await refuses("KeyMismatch", () => readPublication(task, narrow, start, publication, 1));
});

test("CSP's sealing key that no secret can be agreed with is refused", async () => {
  for (const key of [new Uint8Array(32), Uint8Array.of(1, ...new Uint8Array(31)), new Uint8Array(31)]) {
    await refuses("InvalidKey", () => sealTo(key, utf8("seed"), utf8("context")));
  }
});

test("two uploads of the same model share no byte of seed, seal or shares", async () => {
  const trained = new Float64Array(4);
  const one = await makeUpload(task, bundle, keys, start, trained, 1, 1);
  const other = await makeUpload(task, bundle, keys, start, trained, 1, 1);
  const shares = [one, other].map(({ bytes }) => hex(bytes.slice(-20)));
  assert.notEqual(shares[0], shares[1]);
  assert.equal(one.bytes.length, other.bytes.length);
});

test("a seal opens for its reader, in its place, as it was made", async () => {
  const [reader, other] = [await newKeys(), await newKeys()];
  const sealed = await sealTo(reader.readingPublic, utf8("text"), utf8("here"));
  assert.deepEqual(await openSealed(reader.reading, sealed, utf8("here")), utf8("text"));
  await refuses("SealBroken", () => openSealed(other.reading, sealed, utf8("here")));
  await refuses("SealBroken", () => openSealed(reader.reading, sealed, utf8("there")));
  await refuses("SealBroken", () => openSealed(reader.reading, concat(new Uint8Array(32), sealed.slice(32)), utf8("here")));
  for (let place = 0; place < sealed.length; place += 1) {
    await refuses("SealBroken", () => openSealed(reader.reading, altered(sealed, place), utf8("here")));
    await refuses("SealBroken", () => openSealed(reader.reading, sealed.slice(0, place), utf8("here")));
  }
});


test("KGC's answer is for this request alone", async () => {
  const kgc = await newKeys();
  const own = await newKeys();
  const [letters, body] = [ENROLMENT.ticket.slice(0, 43), JSON.parse(ENROLMENT.ticket.slice(ENROLMENT.ticket.indexOf("{")))];
  const invited = (/** @type {object} */ changes = {}) => `${letters} crowdfl invitation S ${JSON.stringify({ form: 1, ...body, ...changes })}`;
  const info = await enrolmentRequest(id, invited(), own);
  const certificate = { task: id, who: own.who, invitation: info.invitation, request: info.request };
  const answered = async (/** @type {Record<string, string>} */ body, { signer = kgc, context = info.context } = {}) => {
    const text = await signDocument("certificate", body, signer.signing);
    return sealTo(own.readingPublic, encode(71, [text, utf8("bundle")]), context);
  };
  const open = async (/** @type {Bytes} */ sealed) => openEnrolled(sealed, info, own, kgc.signingPublic);
  assert.deepEqual((await open(await answered(certificate))).bundle, utf8("bundle"));
  const another = await enrolmentRequest(id, invited({ number: "0".repeat(32) }), own);
  await refuses("SealBroken", async () => open(await answered(certificate, { context: another.context })));
  await refuses("BadSignature", async () => open(await answered(certificate, { signer: own })));
  await refuses("DocumentError", async () => open(await answered({ ...certificate, task: "f".repeat(64) })));
  await refuses("DocumentError", async () => open(await answered({ ...certificate, invitation: another.invitation })));
  await refuses("DocumentError", async () => open(await answered({ ...certificate, request: another.request })));
  await refuses("DocumentError", async () => open(await answered({ ...certificate, who: kgc.who })));
});

test("a phone signs with the link's key for the number and the device that the requester signed", async () => {
  const own = await newKeys();
  const { task, number, device, key } = JSON.parse(ENROLMENT.invitation.slice(ENROLMENT.invitation.indexOf("{")));
  const { request } = await enrolmentRequest(task, ENROLMENT.ticket, own);
  const said = JSON.parse(request.slice(request.indexOf("{")));
  assert.deepEqual([said.task, said.number, said.device], [task, number, device]);
  assert.deepEqual([said.signing, said.reading], [hex(own.signingPublic), hex(own.readingPublic)]);
  const context = utf8(`crowdfl enrolment 3 ${task} ${number} ${device} ${said.signing} ${said.reading}`);
  await verify(own.signingPublic, context, fromHex(said.proof));
  const other = ENROLMENT.ticket.replace(key, hex(own.signingPublic)); // a link whose key was changed on its way
  await refuses("FormatError", () => enrolmentRequest(task, other, own));
});
