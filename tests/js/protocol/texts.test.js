// The requester's texts in the reader's language.
import assert from "node:assert/strict";
import { test } from "node:test";

import { signConsent, checkConsentReceipt, consentCopy, keptBody, openDocument, signDocument } from "#web/phone/protocol/documents.js";
import { hex, sha256, utf8 } from "#web/phone/protocol/bytes.js";
import { newKeys } from "#web/phone/protocol/keys.js";
import { sharesTask } from "#web/phone/protocol/settings.js";
import { textsIn } from "#web/phone/protocol/texts.js";
import { definitionOf, refuses, vectors } from "./support.js";

const GERMAN = { purpose: "Gehen erkennen", terms: "", readers: "", consent: "Wir messen.", words: { walking: "Gehen" } };
const CHINESE = { purpose: "", terms: "", readers: "", consent: "", words: {} };
const BODY = {
  purpose: "Recognise walking", terms: "None", readers: "We", language: "en", consent: { version: "2", text: "We measure." },
  texts: { de: GERMAN, "zh-Hans": CHINESE }, who: { name: "Ada", logo: "long" },
};

for (const [languages, found] of /** @type {const} */ ([
  [["de-AT", "en"], "de"], [["en-GB", "de"], "en"], [["fr", "de"], "de"], [["zh-CN"], "zh-Hans"], [["zh-TW", "fr"], "en"], [["not a tag!"], "en"], [[], "en"],
])) {
  test(`a reader of ${languages} reads ${found}`, () => assert.equal(textsIn(BODY, languages).language, found));
}

test("what is not translated is read as the task says it", () => {
  const german = textsIn(BODY, ["de"]);
  assert.deepEqual([german.purpose, german.terms, german.word("walking"), german.word("sitting")], ["Gehen erkennen", "None", "Gehen", "sitting"]);
  assert.deepEqual(german.languages, { purpose: "de", terms: "en", readers: "en", consent: "de" });
  assert.deepEqual(["walking", "sitting"].map(german.wordLanguage), ["de", "en"]);
  assert.deepEqual(german.consent, { version: "2", text: "Wir messen.", language: "de" });
  assert.deepEqual(textsIn(BODY, ["zh-CN"]).consent, { version: "2", text: "We measure.", language: "" });
  assert.equal(textsIn({ ...BODY, consent: { version: "", text: "" } }, ["en"]).consent, null);
  assert.equal(textsIn(BODY, ["de"]).word("constructor"), "constructor");
});

test("a definition whose texts cannot be is refused", () => {
  const { task, body, requester } = definitionOf({ task: "0".repeat(64), settings: vectors("shares_messages").settings, parameters: 3 });
  const read = (/** @type {Record<string, unknown>} */ more) => sharesTask({ task, requester, body: { ...body, ...more } });
  assert.equal(read({ texts: { de: GERMAN } }).task, task);
  const wrong = [{ texts: { german: GERMAN } }, { texts: { de: { purpose: "x" } } }, { texts: { de: { ...GERMAN, words: { a: 1 } } } }, { language: "EN" },
    { consent: { version: "1" } }, { consent: { version: "1", text: "x".repeat(50_000) } }];
  for (const more of wrong) assert.throws(() => read(more), { name: "DocumentError" }, JSON.stringify(more).slice(0, 80));
});

test("a consent is signed over the text that was read, and its receipt is for it alone", async () => {
  const [keys, sp, task] = [await newKeys(), await newKeys(), "0".repeat(64)];
  const consent = await signConsent(/** @type {any} */ ({ task, body: BODY }), keys, 7, "de");
  const said = keptBody(consent);
  assert.deepEqual([said.text, said.version, said.language, said.at], [hex(await sha256(utf8("Wir messen."))), "2", "de", 7]);
  const receipt = { task, who: keys.who, digest: hex(await sha256(utf8(consent))), at: 8 };
  const sent = { task, who: keys.who, consent };
  const signed = await signDocument("consent-receipt", receipt, sp.signing);
  await checkConsentReceipt(signed, sp.signingPublic, sent);
  await refuses("BadSignature", () => checkConsentReceipt(signed, keys.signingPublic, sent));
  for (const other of [{ task: "f".repeat(64) }, { who: "x" }, { digest: "00" }]) {
    const wrong = await signDocument("consent-receipt", { ...receipt, ...other }, sp.signing);
    await refuses("DocumentError", () => checkConsentReceipt(wrong, sp.signingPublic, sent));
  }
  const copy = JSON.parse(consentCopy(BODY, consent, signed));
  assert.deepEqual([copy.text, copy.consent, copy.receipt, copy["asked by"]], ["Wir messen.", consent, signed, { name: "Ada" }]);
  await refuses("DocumentError", () => openDocument(consent, "consent-receipt", keys.signingPublic));
});
