// A later form is refused by name, before anyone joins; every earlier one is read, with what it meant for ever.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { keptBody, openDocument, signDocument } from "#web/phone/protocol/documents.js";
import { DocumentError, FormTooNew } from "#web/phone/protocol/errors.js";
import { ADDED, completed, numbered } from "#web/phone/protocol/forms.js";
import { newKeys } from "#web/phone/protocol/keys.js";

afterEach(() => { for (const kind of Object.keys(ADDED)) delete ADDED[kind]; });

test("an earlier form is read with its fixed values, wherever they are, and stays as it was written", () => {
  ADDED.x = [{ "texts.*.more": "-", "settings.brand_new": 3 }, { end: null }];
  const said = { form: 1, texts: { de: {}, zh: { a: 1 } }, settings: { clip: 2 } };
  const whole = { texts: { de: { more: "-" }, zh: { a: 1, more: "-" } }, settings: { clip: 2, brand_new: 3 }, end: null };
  assert.deepEqual(completed("x", said), whole);
  assert.deepEqual(completed("x", { form: 2, settings: { brand_new: 5 } }), { settings: { brand_new: 5 }, end: null });
  assert.deepEqual(completed("x", numbered("x", { end: 4 })), { end: 4 });
  assert.deepEqual(said.settings, { clip: 2 });
});

test("form 1 has no field of form 2, but in what its requester may leave out", () => {
  ADDED.x = [{ "settings.brand_new": 3, "training.rate": 0.5 }];
  assert.throws(() => completed("x", { form: 1, settings: { brand_new: 5 } }), DocumentError);
  assert.deepEqual(completed("x", { form: 1, training: { rate: 0.25 } }), { training: { rate: 0.25 } });
  assert.deepEqual(completed("x", { form: 1, training: {} }), { training: { rate: 0.5 } });
});

test("a later form is refused by name, and what is none is refused", () => {
  assert.throws(() => completed("definition", { form: 2 }), FormTooNew);
  for (const form of [undefined, null, 0, 1.5, "1", true]) assert.throws(() => completed("definition", { form }), { name: "DocumentError" }, String(form));
});

test("what a device keeps is read in its own form for ever", async () => {
  const own = await newKeys();
  const kept = await signDocument("consent-receipt", { task: "t", who: "w", digest: "d", at: 1 }, own.signing);
  ADDED["consent-receipt"] = [{ more: 7 }];
  assert.deepEqual(keptBody(kept), { task: "t", who: "w", digest: "d", at: 1, more: 7 });
  await assert.rejects(openDocument(kept, "consent-receipt", own.signingPublic), /a field that no/); // this page has no such field
});

test("a name that every object has is a name", () => {
  ADDED.x = [{ "texts.*.more": 1 }];
  const { texts } = completed("x", JSON.parse('{"form": 1, "texts": {"__proto__": {}}}'));
  assert.ok(Object.hasOwn(texts, "__proto__"));
  assert.equal(Object.getPrototypeOf(texts), Object.prototype);
});
