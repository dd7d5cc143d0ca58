// Documents are checked as the bytes that came, and read after that; nothing is written a second time.
import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex, hex, sha256, text, utf8 } from "#web/phone/protocol/bytes.js";
import {
  checkReceipt, keptBody, openAppointment, openDefinition, openDocument, openExtension, requireKey, signDocument,
} from "#web/phone/protocol/documents.js";
import { newKeys } from "#web/phone/protocol/keys.js";
import { toMillionths } from "#web/phone/protocol/amounts.js";
import { pairOf, publicOf, refuses, vectors } from "./support.js";

const { keys, definitions, bad, others, money } = vectors("phone_documents");
/** @type {Record<string, import("#web/phone/protocol/bytes.js").Bytes>} */
const publics = {};
for (const [name, digits] of Object.entries(keys)) publics[name] = await publicOf(await pairOf("Ed25519", digits));

for (const given of definitions) {
  test(`a definition, ${given.name}, has Python's id`, async () => {
    const found = await openDefinition(given.text);
    assert.equal(found.task, given.task);
    assert.equal(found.task, hex(await sha256(fromHex(given.signed))));
    assert.deepEqual(found.requester, publics.requester);
    assert.deepEqual(found.body, keptBody(given.text));
  });
}

for (const { name, text: written, error } of bad) {
  test(`a definition with ${name} is refused: ${error}`, () => refuses(error, () => openDefinition(written)));
}

test("every byte of a definition counts: none can be altered, left out or cut off", async () => {
  const written = definitions[0].text;
  const outcomes = new Set();
  for (let place = 0; place < written.length; place += 3) {
    const without = written.slice(0, place) + written.slice(place + 1);
    const flipped = written.slice(0, place) + String.fromCharCode(written.charCodeAt(place) ^ 1) + written.slice(place + 1);
    for (const other of [written.slice(0, place), without, flipped]) {
      if (other !== written) outcomes.add(await openDefinition(other).then(() => other, (error) => error.name));
    }
  }
  assert.deepEqual([...outcomes].sort(), ["BadSignature", "DocumentError"]);
});

test("names such as __proto__ are names, and change no object", async () => {
  const odd = definitions.find((/** @type {{ name: string }} */ { name }) => name === "characters escaped");
  const { body } = await openDefinition(odd.text);
  assert.ok(Object.hasOwn(body.training, "__proto__"));
  assert.equal(Object.getPrototypeOf(body.training), Object.prototype);
});

test("half of a character is read as it was signed: not at all", async () => {
  const own = await newKeys();
  const odd = await signDocument("appointment", { task: "\ufffd", fingerprint: "f", csp: "" }, own.signing);
  const { task } = await openDocument(odd.replace("\ufffd", "\ud83d"), "appointment", own.signingPublic);
  assert.equal(task, "\ufffd");
});

test("a document that is signed here is opened with its key and as its kind alone", async () => {
  const own = await newKeys();
  const body = { task: "t", fingerprint: '\u00e9\u{1f600}"\\\u007f', csp: "" };
  const written = await signDocument("appointment", body, own.signing);
  assert.match(written, /^crowdfl appointment [A-Za-z0-9_-]{86} \{/);
  assert.deepEqual(await openDocument(written, "appointment", own.signingPublic), body);
  await refuses("BadSignature", () => openDocument(written, "appointment", publics.kgc));
  await refuses("DocumentError", () => openDocument(written, "receipt", own.signingPublic));
  await refuses("BadSignature", () => openDocument(written.replace("appointment", "receipt"), "receipt", own.signingPublic));
});

test("what KGC and SP sign is read", async () => {
  const appointment = await openAppointment(others.appointment.text, publics.kgc);
  const { task } = others;
  assert.deepEqual(appointment, { task, fingerprint: hex(await sha256(utf8("keys"))), csp: hex(publics.csp) });
  const certificate = await openDocument(others.certificate.text, "certificate", publics.kgc);
  assert.deepEqual(certificate, { task: others.task, who: others.who, invitation: "an invitation", request: "a request" });
  const receipt = await openDocument(others.receipt.text, "receipt", publics.sp);
  const digest = hex(await sha256(utf8("upload")));
  assert.deepEqual(receipt, { task: others.task, round: 2, who: others.who, digest, late: false, unused: false });
});

for (const kind of ["appointment", "certificate"]) {
  for (const { name, text: written, error } of others[kind].bad) {
    test(`of KGC, ${kind} with ${name} is refused: ${error}`, () => refuses(error, () => openDocument(written, kind, publics.kgc)));
  }
}

const sent = { task: others.task, round: 2, who: others.who, upload: fromHex(others.upload) };

test("a receipt for the upload says whether it was late, and whether it is used", async () => {
  assert.deepEqual(await checkReceipt(others.receipt.text, publics.sp, sent), { late: false, unused: false });
});

for (const { name, text: written, error } of others.receipt.bad) {
  test(`a receipt with ${name} proves nothing and is refused: ${error}`, () =>
    refuses(error, () => checkReceipt(written, publics.sp, sent)));
}

test("a receipt serves no other task, round, person or upload", async () => {
  const changes = [{ task: "f".repeat(64) }, { round: 1 }, { who: "0".repeat(20) }, { upload: utf8("another") }];
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

test("a later last day of claims is CSP's, of this task, and no further than the time to claim", async () => {
  const { task, ends, "claims-extension": given } = others;
  const dates = /** @type {any} */ ({ task, roundsUntil: ends.rounds_until, claimsUntil: ends.claims_until });
  assert.equal(await openExtension(given.text, publics.csp, dates), 1_799_971_200);
  await refuses("BadSignature", () => openExtension(given.text, publics.sp, dates));
  for (const { text: written, name } of given.bad) {
    await assert.rejects(openExtension(written, publics.csp, dates), (/** @type {Error} */ wrong) => ["BadSignature", "DocumentError", "FormTooNew"].includes(wrong.name), name);
  }
});
