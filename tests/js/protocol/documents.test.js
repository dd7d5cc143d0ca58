// Documents as Python signs them: numbers, characters and the order of names are its own.
import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex, hex, sha256, text, utf8 } from "#web/phone/protocol/bytes.js";
import {
  checkReceipt, openAppointment, openCertificate, openDefinition, openDocument, openReceipt, requireKey, signDocument,
} from "#web/phone/protocol/documents.js";
import { dumpJson, floatText, parseJson, plain } from "#web/phone/protocol/json.js";
import { newKeys } from "#web/phone/protocol/keys.js";
import { toMillionths } from "#web/phone/protocol/settings.js";
import { pairOf, publicOf, refuses, vectors } from "./support.js";

const { keys, definitions, bad, others, money } = vectors("phone_documents");
/** @type {Record<string, import("#web/phone/protocol/bytes.js").Bytes>} */
const publics = {};
for (const [name, digits] of Object.entries(keys)) publics[name] = await publicOf(await pairOf("Ed25519", digits));

for (const given of definitions) {
  test(`a definition, ${given.name}, has Python's id and canonical form`, async () => {
    const found = await openDefinition(given.text);
    assert.equal(found.task, given.task);
    assert.deepEqual(found.requester, publics.requester);
    const body = /** @type {Map<string, any>} */ (parseJson(given.text)).get("body");
    assert.equal(`crowdfl definition 1 ${dumpJson(body)}`, given.signed);
  });
}

for (const { name, text: written, error } of bad) {
  test(`a definition with ${name} is refused: ${error}`, () => refuses(error, () => openDefinition(written)));
}

test("every byte of a definition counts: none can be altered, left out or cut off", async () => {
  const written = definitions[0].text;
  const whole = await openDefinition(written);
  const outcomes = new Set();
  for (let place = 0; place < written.length; place += 3) {
    const without = written.slice(0, place) + written.slice(place + 1);
    for (const other of [written.slice(0, place), without, flipped(written, place)]) {
      const found = await openDefinition(other).catch((error) => error.name);
      if (typeof found === "string") outcomes.add(found);
      else assert.deepEqual(found, whole, `something else was read from ${other}`); // spaces, or digits of the signature's case
    }
  }
  assert.deepEqual([...outcomes].sort(), ["BadSignature", "DocumentError"]);
});

/** @param {string} written @param {number} place */
function flipped(written, place) {
  return written.slice(0, place) + String.fromCharCode(written.charCodeAt(place) ^ 1) + written.slice(place + 1);
}

test("a definition comes as ordinary values", async () => {
  const { body } = await openDefinition(definitions[0].text);
  assert.deepEqual(body.arrays, [["weight", [2, 3]], ["bias", [3]], ["scale", []]]);
  assert.deepEqual([body.claim_window, body.settings.clip, body.settings.budget], [604800, 2, "36.00"]);
  assert.deepEqual(structuredClone(body), body);
});

test("names such as __proto__ are names, and change no object", async () => {
  const odd = definitions.find((/** @type {{ name: string }} */ { name }) => name.startsWith("names in the order"));
  const { body } = await openDefinition(odd.text);
  assert.ok(Object.hasOwn(body.training, "__proto__"));
  assert.equal(Object.getPrototypeOf(body.training), Object.prototype);
});

test("whole numbers that a double does not hold stay exact", () => {
  const read = plain(parseJson("[9007199254740993, 9007199254740991, -0, 1.0]"));
  assert.deepEqual(read, [9007199254740993n, 9007199254740991, 0, 1]);
});

test("numbers are written as Python's repr", () => {
  /** @type {[number, string][]} */
  const said = [[1e16, "1e+16"], [1e15, "1000000000000000.0"], [1e-5, "1e-05"], [0.0001, "0.0001"], [-1.5e-300, "-1.5e-300"],
    [123456789012345680, "1.2345678901234568e+17"], [1e22, "1e+22"], [5e-324, "5e-324"], [-0, "-0.0"], [100, "100.0"]];
  for (const [value, written] of said) assert.equal(floatText(value), written);
});

test("what JSON does not have is refused", async () => {
  for (const wrong of ["NaN", "Infinity", "-Infinity", "01", "1.", ".5", "+1", "1e", "'a'", "[1,]", '{"a":1,}', '"\\x"', '"\\u12"',
    "tru", "1e999", '"\u0001"', "", " ", '{"a" 1}', "{1:2}", "[1 2]", '"', '"\\', "\ufeff1"]) {
    await refuses("DocumentError", () => parseJson(wrong));
  }
});

test("a document that is signed here is one that Python would have written", async () => {
  const own = await newKeys();
  const body = { task: "t", odd: '\u00e9\u{1f600}"\\\u007f', "\u{1f600}": "1", "\uffee": "2" };
  const written = await signDocument("a kind", body, own.signing);
  const signature = JSON.parse(written).signature;
  const dumped = String.raw`{"odd": "\u00e9\ud83d\ude00\"\\\u007f", "task": "t", "\uffee": "2", "\ud83d\ude00": "1"}`;
  assert.equal(written, `{"body": ${dumped}, "kind": "a kind", "signature": "${signature}"}`);
  assert.deepEqual(await openDocument(written, "a kind", own.signingPublic), body);
  await refuses("BadSignature", () => openDocument(written, "a kind", publics.kgc));
  await refuses("DocumentError", () => openDocument(written, "another kind", own.signingPublic));
});

test("what KGC and SP sign is read", async () => {
  const appointment = await openAppointment(others.appointment.text, publics.kgc);
  assert.deepEqual(appointment, { task: others.task, fingerprint: hex(await sha256(utf8("keys"))) });
  const certificate = await openCertificate(others.certificate.text, publics.kgc);
  assert.deepEqual([certificate.task, certificate.who], [others.task, others.who]);
  assert.deepEqual(certificate.signing, publics.participant);
  const receipt = await openReceipt(others.receipt.text, publics.sp);
  const digest = hex(await sha256(utf8("upload")));
  assert.deepEqual(receipt, { task: others.task, round: 2, who: others.who, digest, late: false });
});

for (const [kind, open] of Object.entries({ appointment: openAppointment, certificate: openCertificate })) {
  for (const { name, text: written, error } of others[kind].bad) {
    test(`of KGC, ${kind} with ${name} is refused: ${error}`, () => refuses(error, () => open(written, publics.kgc)));
  }
}

const sent = { task: others.task, round: 2, who: others.who, upload: fromHex(others.upload) };

test("a receipt for the upload says whether it was late", async () => {
  assert.equal(await checkReceipt(others.receipt.text, publics.sp, sent), false);
});

for (const { name, text: written, error } of others.receipt.bad) {
  test(`a receipt with ${name} proves nothing and is refused: ${error}`, () =>
    refuses(error, () => checkReceipt(written, publics.sp, sent)));
}

test("a receipt serves no other task, round, person or upload", async () => {
  const changes = [{ task: "f".repeat(32) }, { round: 1 }, { who: "0".repeat(20) }, { upload: utf8("another") }];
  for (const change of changes) {
    await refuses("DocumentError", () => checkReceipt(others.receipt.text, publics.sp, { ...sent, ...change }));
  }
});

test("a key that KGC did not appoint is refused", async () => {
  const appointment = await openAppointment(others.appointment.text, publics.kgc);
  requireKey(appointment, await sha256(utf8("keys")));
  await refuses("KeyMismatch", async () => requireKey(appointment, await sha256(utf8("other keys"))));
});

test("amounts of money are millionths, exactly as Python counts them", async () => {
  for (const [amount, millionths] of money.amounts) assert.equal(toMillionths(amount), BigInt(millionths), amount);
  for (const amount of money.refused) await refuses("DocumentError", () => toMillionths(amount));
  assert.equal(toMillionths(7), 7_000_000n);
});

test("a document of a million characters is not even parsed", () =>
  refuses("DocumentError", () => openDefinition(" ".repeat(1_000_001))));

test("text that is not UTF-8 is refused", async () => {
  await refuses("FormatError", () => text(Uint8Array.of(0xed, 0xa0, 0x80)));
  assert.equal(text(utf8("\ufeffa")), "\ufeffa");
});
