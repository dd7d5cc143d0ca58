// Catalogues: complete in every language, and nothing that a person reads outside of them.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

import { fingerprints } from "../../../tools/looked-at.mjs";
import { Refusal } from "#web/common/api.js";
import { formatTime, money } from "#web/common/format.js";
import { readServices, said, translated } from "#web/common/said.js";
import { bestLanguage, CONSOLES, directionOf, endingWords, firstOf, isSaid, LANGUAGES, learntRows, listOf, listParts, readAs, readersLanguages, speak, t, withNodes } from "#web/common/text.js";

const WEB = new URL("../../../src/crowdfl/web/", import.meta.url);
const PAGES = ["phone", "tasks", "console", "requester"];
/** What a folder's catalogues are written in. @param {string} folder */
const languagesOf = (folder) => (["console", "requester"].includes(folder) ? CONSOLES : Object.keys(LANGUAGES));
/** What looks like a sentence and is none: fonts, conditions, names of languages. */
const NO_SENTENCES = ["day at ", "13px system-ui, sans-serif", "(prefers-color-scheme: dark)", ...Object.values(LANGUAGES), "crowdfl language"];

/** @param {string} folder */
const scripts = (folder) => readdirSync(new URL(folder, WEB), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".js") && !/^(text|said)\//.test(file)).map((file) => `${folder}/${file}`);

/** @param {string} folder @param {string} code */
const catalogue = async (folder, code) => (await import(new URL(`${folder}/text/${code}.js`, WEB).href)).default;

/** Every sentence by its key. @param {any} sections @returns {Map<string, any>} */
const flat = (sections) => new Map(Object.entries(sections).flatMap(([section, sentences]) =>
  Object.entries(sentences).map(([name, text]) => [`${section}.${name}`, text])));

/** @param {any} text */
const placesOf = (text) => [...new Set(JSON.stringify(text).match(/\{\w+\}/g) ?? [])].sort();

for (const folder of ["common", ...PAGES]) {
  test(`${folder}: every language says the same things, with the same places`, async () => {
    const english = flat(await catalogue(folder, "en"));
    assert.deepEqual(readdirSync(new URL(`${folder}/text`, WEB)).sort(), languagesOf(folder).map((code) => `${code}.js`).sort());
    for (const code of languagesOf(folder)) {
      const own = flat(await catalogue(folder, code));
      assert.deepEqual([...own.keys()].sort(), [...english.keys()].sort(), code);
      for (const [key, text] of own) {
        const needed = new Set(Object.values(typeof text === "string" ? { other: text } : text).map((one) => one.trim()));
        assert.ok(!needed.has(""), `${code}: ${key} is empty`);
        assert.deepEqual(placesOf(text), placesOf(english.get(key)), `${code}: ${key}`);
        if (typeof text !== "string") {
          const wanted = new Intl.PluralRules(code).resolvedOptions().pluralCategories;
          assert.deepEqual(Object.keys(text).sort(), [...wanted].sort(), `${code}: ${key} must have these plurals`);
        }
      }
    }
  });
}

test("a sentence that has changed in English is looked at in every language", async () => {
  const looked = JSON.parse(readFileSync(new URL("./looked-at.json", import.meta.url), "utf8"));
  const now = await fingerprints();
  const stale = Object.keys({ ...looked, ...now }).filter((key) => looked[key] !== now[key]);
  assert.deepEqual(stale, [], "change these in every language where they must, then `node --import ./tools/resolve.mjs tools/looked-at.mjs`");
});

test("who learns what is said to every reader, row by row", async () => {
  speak("en", await catalogue("common", "en"));
  const english = ["shares", "hardened", "paper"].map((profile) => learntRows(profile, true));
  for (const code of Object.keys(LANGUAGES).filter((one) => one !== "en")) {
    speak(code, await catalogue("common", code));
    for (const [place, profile] of ["shares", "hardened", "paper"].entries()) {
      const rows = learntRows(profile, true);
      assert.deepEqual(rows.map(({ key }) => key), english[place].map(({ key }) => key), code);
      for (const [number, { party, learns, hidden }] of rows.entries()) {
        const own = english[place][number];
        assert.ok(party !== own.party && learns !== own.learns && (hidden !== own.hidden || !hidden), `${code}: ${own.key}`);
      }
    }
  }
});

for (const page of PAGES) {
  test(`${page}: each key that code names is in the catalogue, and each sentence is named`, async () => {
    const files = [...scripts(page), ...scripts("common")];
    const code = files.map((file) => readFileSync(new URL(file, WEB), "utf8")).join("\n");
    const own = flat(await catalogue(page, "en"));
    const known = new Set([...own.keys(), ...flat(await catalogue("common", "en")).keys()]);
    const named = [...code.matchAll(/\b(?:t|withNodes)\(\s*"([\w.]+)"/g)].map(([, key]) => key);
    for (const key of named) assert.ok(known.has(key), `no catalogue has ${key}`);
    // A key that is put together, as in t(`round.${state}`), names its whole section.
    const whole = new Set([...code.matchAll(/`(\w+)\.\w*\$\{/g)].map(([, section]) => section));
    const unused = [...own.keys()].filter((key) => !code.includes(`"${key}"`) && !whole.has(key.split(".")[0]));
    assert.deepEqual(unused, [], "no code says these");
  });
}

/** Text literals of a script, without its comments, errors and keys. @param {string} code */
function literals(code) {
  const bare = code.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|[^:"'`\\])\/\/.*$/gm, "$1");
  return [...bare.matchAll(/"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)].map(([whole, plain, made]) => ({ whole, text: plain ?? made.replace(/\$\{[^}]*\}/g, " "), before: bare.slice(0, bare.indexOf(whole)).trimEnd().slice(-40) }));
}

/** Whether a person would read it: words with a space between, or a word as a label has it. @param {{ text: string, before: string }} literal */
const isProse = ({ text, before }) => (/\p{L}{2,}[,.:;]? \p{L}{2,}/u.test(text) || /^\p{Lu}\p{Ll}{2,}[.!?]?$/u.test(text)) &&
  !/(Error|Refused|Conflict|Task|Unavailable|import|from|case|matchMedia|startsWith|postMessage|"aria-labelledby":|data ===)\(?$|from$|import$/.test(before);

test("no sentence stands outside of the catalogues", () => {
  const files = [...PAGES.filter((page) => page !== "phone").flatMap(scripts), ...scripts("phone/app"), ...scripts("common")];
  const found = files.flatMap((file) =>
    literals(readFileSync(new URL(file, WEB), "utf8")).filter((one) => isProse(one) && !NO_SENTENCES.includes(one.text)).map(({ whole }) => `${file}: ${whole}`));
  assert.deepEqual(found, []);
});

test("no page shows a service's English as it is", () => {
  const files = [...PAGES.flatMap(scripts), ...scripts("common")];
  assert.deepEqual(files.filter((file) => /lang: "en"/.test(readFileSync(new URL(file, WEB), "utf8"))), []);
});

test("a service's sentence is looked up by its words, with values as its reader writes them", async () => {
  speak("de", await catalogue("common", "de"));
  await readServices();
  assert.equal(said("There is no such task here."), "Diese Aufgabe gibt es hier nicht.");
  assert.equal(said("`rounds` is 'three'; expected a whole number, at least 1 and at most 2,000"), "`rounds` ist 'three'; erwartet wird eine ganze Zahl, mindestens 1 und höchstens 2.000");
  assert.equal(said('`closes` is \'x\'; expected "everyone" or "deadline"'), '`closes` ist \'x\'; erwartet wird "everyone" oder "deadline"');
  assert.equal(endingWords({ why: "cancelled", by: "requester", reason: "" }, said), "abgebrochen von dem Auftraggeber");
  assert.equal(endingWords({ why: "expired", by: "lifetime", reason: "it took too long" }, said), "abgelaufen wegen der Lebensdauer der Aufgabe: sie hat zu lange gedauert");
  assert.equal(said("deposit d1 was confirmed before, and that is final"), "die Einzahlung d1 ist schon entschieden (bestätigt), und das ist endgültig");
  assert.equal(said("SP 1.5 MB a round, 1,200.0 MB in all"), "SP 1,5 MB je Runde, 1.200,0 MB insgesamt");
  const unknown = "words that no catalogue has, and 5 of them";
  assert.deepEqual([said(unknown), translated(unknown)], [unknown, null]);
  const refused = (/** @type {string} */ detail) => new Refusal(404, { title: "There is no such task here.", detail }).message;
  assert.equal(refused(unknown), `Diese Aufgabe gibt es hier nicht.\nIm Einzelnen (englisch): ${unknown}`);
  assert.equal(refused("no round is finished yet"), "noch keine Runde ist fertig");
});

test("prose is told from code", () => {
  const code = 'h("p.soft", null, "Try again"); const a = `Round ${n} of it`; // "not this one"\nt("a.b"); button("Join");';
  assert.deepEqual(literals(code).filter(isProse).map(({ whole }) => whole), ['"Try again"', "`Round ${n} of it`", '"Join"']);
});

test("a sentence has its places filled and its number in the right form", () => {
  speak("en", { a: { people: { one: "{count} person in {place}", other: "{count} people in {place}" }, plain: "Hello" } });
  assert.equal(t("a.people", { count: 1, place: "Bern" }), "1 person in Bern");
  assert.equal(t("a.people", { count: 1200, place: "Bern" }), "1,200 people in Bern");
  assert.deepEqual(withNodes("a.people", { count: 2, place: "X" }), ["2", " people in ", "X"]);
  assert.ok(isSaid("a.plain") && !isSaid("a.toString") && !isSaid("constructor.name"));
  assert.throws(() => t("a.people", { count: 1 }), /needs place/);
  assert.throws(() => t("a.nothing"), /no catalogue/);
  assert.equal(listOf(["a", "b", "c"], "disjunction"), "a, b or c".replace(" or", ", or"));
});

test("a reader may be another than the browser says, and reads in a direction", () => {
  readAs(["fa", "de"]);
  assert.deepEqual(readersLanguages(), ["fa", "de"]);
  readAs(null);
  assert.ok(readersLanguages().length);
  assert.deepEqual(["ar-EG", "he", "en", "zh-Hans"].map(directionOf), ["rtl", "rtl", "ltr", "ltr"]);
});

test("numbers, amounts and dates are as in the reader's own region", () => {
  const plain = (/** @type {string} */ text) => text.replace(/[\u200e\u200f\u2066-\u2069]/g, "").replace(/[\u00a0\u202f]/g, " ");
  const says = { a: { count: { one: "{count}", other: "{count}" } } };
  const seen = (/** @type {string} */ tag, /** @type {string} */ code) => {
    readAs([tag]);
    speak(code, says);
    return [t("a.count", { count: 1234.5 }), money(1_250_000_000n, "CHF"), formatTime(1_789_000_000).slice(0, 12)].map(plain);
  };
  assert.deepEqual(seen("es-ES", "es").slice(0, 2), ["1234,5", "1250,00 CHF"]);
  assert.deepEqual(seen("es-MX", "es").slice(0, 2), ["1,234.5", "CHF 1,250.00"]);
  assert.deepEqual(seen("fr", "fr").slice(0, 2), ["1 234,5", "1 250,00 CHF"]);
  assert.deepEqual(seen("ar-EG", "ar").slice(0, 2), ["١٬٢٣٤٫٥", "١٬٢٥٠٫٠٠ CHF"]);
  assert.deepEqual(seen("ar-MA", "ar").slice(0, 2), ["1.234,5", "1.250,00 CHF"]);
  assert.equal(seen("en-US", "en")[0], "1,234.5");
  assert.match(seen("en-US", "en")[2], /^1\d Sept? 2026/);
  assert.equal(seen("not a tag!", "ar")[0], seen("ar", "ar")[0]);
  readAs(null);
  speak("en");
});

test("words that run the other way keep their own direction", () => {
  speak("ar", { a: { of: "من {place}" } });
  assert.equal(t("a.of", { place: "sp.example:7102" }), "من \u2068sp.example:7102\u2069");
  assert.equal(t("a.of", { place: "" }), "من ");
  speak("en", { a: { of: "of {place}" } });
  assert.equal(t("a.of", { place: "sp.example:7102" }), "of sp.example:7102");
  assert.equal(t("a.of", { place: "مشي" }), "of \u2068مشي\u2069");
  assert.equal(listOf(["مشي", "sitting"]), "\u2068مشي\u2069 and sitting");
  assert.deepEqual(listParts(["a", "b"]).map(({ value }) => value), ["a", " and ", "b"]);
});

test("a reader gets the first language that something is written in", () => {
  for (const [wanted, known, found] of /** @type {const} */ ([
    [["fa-IR", "en"], ["en", "fa"], "fa"], [["zh-CN"], ["zh-Hans"], "zh-Hans"], [["fr-CH", "de"], ["de", "it"], "de"], [["ar-MA"], ["en", "ar"], "ar"], [["tlh"], ["en"], undefined],
  ])) assert.equal(firstOf(wanted, known), found);
});

test("the reader's first language that is spoken is chosen", () => {
  assert.equal(bestLanguage(["it-CH", "de-CH", "en"]), "de");
  assert.deepEqual([bestLanguage(["fr-CA"]), bestLanguage(["es-419"]), bestLanguage(["ar-MA", "fr"])], ["fr", "es", "ar"]);
  assert.equal(bestLanguage(["zh-Hant-TW"]), "zh");
  assert.equal(bestLanguage(["", "tlh"]), "en");
  assert.equal(bestLanguage(["constructor"]), "en");
});
