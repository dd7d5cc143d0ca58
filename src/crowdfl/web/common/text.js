// What a page says, in its reader's language: code holds keys, catalogues hold sentences.
//
// A catalogue is a module `text/LANGUAGE.js` whose default export has sections of sentences. A sentence is text with {places}, or an
// object of such texts by the plural category of {count}. What all pages say is in common/text, a page's own in its folder `text`.

/** @typedef {string | Partial<Record<Intl.LDMLPluralRule, string>>} Sentence */
/** @typedef {Record<string, Record<string, Sentence>>} Catalogue */

/** Each language by its own name. @type {Readonly<Record<string, string>>} */
export const LANGUAGES = { en: "English", de: "Deutsch", zh: "中文", fr: "Français", es: "Español", ar: "العربية" };
/** Those that consoles speak too. */
export const CONSOLES = ["en", "de", "zh"];
const RIGHT_TO_LEFT = ["ar", "fa", "he", "ur"];
const KEPT = "crowdfl language"; // in localStorage: the reader's own choice

let spoken = "en";
let offered = Object.keys(LANGUAGES);
/** For Intl. */
let numbers = "en";
let figures = new Intl.NumberFormat(numbers);
/** @type {readonly string[] | null} What its reader reads, where a page is told; else the browser says it. */
let read = null;
/** @type {Catalogue} */
let sentences = {};

/** The language that the page speaks now. */
export const language = () => spoken;

/** The languages that the page can speak. */
export const spokenHere = () => offered;

/** A number by itself, in the reader's digits; no place is parted from the next. @param {number} value */
export const digits = (value) => figures.format(value);

/** For Intl: by the reader's region, too. 1.020,50 in Spain is 1,020.50 in Mexico, and Arabic has two kinds of digits. */
export const locale = () => numbers;

/** BCP 47 tags, the best first: the reader's own choice, what the browser says, and what the page speaks. @returns {readonly string[]} */
export const readersLanguages = () => read ?? [kept() ?? "", ...globalThis.navigator?.languages ?? [], spoken].filter(Boolean);

/** For a reader of these, whatever the browser says; null: as it says. @param {readonly string[] | null} languages */
export function readAs(languages) {
  read = languages;
}

/** Which way a language is written. @param {string} tag */
export const directionOf = (tag) => (RIGHT_TO_LEFT.includes(tag.toLowerCase().split("-")[0]) ? "rtl" : "ltr");

/** For an element that holds words of this language. @param {string} tag */
export const written = (tag) => ({ lang: tag, dir: directionOf(tag) });

/** The first of the reader's languages that the page speaks. @param {readonly string[]} wanted BCP 47 tags. */
export function bestLanguage(wanted) {
  const known = wanted.map((tag) => tag.toLowerCase().split("-")[0]).find((tag) => offered.includes(tag));
  return known ?? "en";
}

/** Which of the languages that somebody has written in is for this reader, if any. @param {readonly string[]} wanted The best first. @param {readonly string[]} known */
export const firstOf = (wanted, known) => wanted.flatMap(formsOf).find((form) => known.includes(form));

/** A language as somebody may name it: de-AT as itself and as de, zh-CN as zh-Hans too. @param {string} tag */
function formsOf(tag) {
  try {
    const { language: short, script, region } = new Intl.Locale(tag).maximize();
    return [tag, `${short}-${script}-${region}`, `${short}-${region}`, `${short}-${script}`, short];
  } catch {
    return []; // no language at all
  }
}

const REGIONAL = ["de", "fr", "es", "ar"]; // the pages' Chinese is simplified everywhere

/** @param {string} code */
function localeOf(code) {
  const own = readersLanguages().find((tag) => tag.toLowerCase().startsWith(`${code}-`) && formsOf(tag).length);
  return own && REGIONAL.includes(code) ? own : code;
}

/** Make the page speak; nothing may be said before. @param {string} code @param {...Catalogue} catalogues */
export function speak(code, ...catalogues) {
  spoken = code;
  numbers = localeOf(code);
  figures = new Intl.NumberFormat(numbers, { useGrouping: false, maximumFractionDigits: 20 });
  sentences = Object.assign({}, ...catalogues);
  if (!globalThis.document) return;
  document.documentElement.lang = code;
  document.documentElement.dir = directionOf(code);
}

/**
 * Speak the reader's language.
 * @param {(code: string) => Promise<{ default: Catalogue }>} load The page's own catalogue. @param {readonly string[]} [codes] That it has.
 */
export async function speakReaders(load, codes = Object.keys(LANGUAGES)) {
  offered = [...codes];
  const code = bestLanguage([kept() ?? "", ...navigator.languages]);
  const [shared, own] = await Promise.all([import(`./text/${code}.js`), load(code)]);
  speak(code, shared.default, own.default);
  for (const link of document.querySelectorAll(".skip")) link.textContent = t("shell.skip");
}

/** Speak another language from now on, also when the page is opened again. @param {string} code */
export function chooseLanguage(code) {
  localStorage.setItem(KEPT, code);
  location.reload();
}

function kept() {
  try {
    return globalThis.localStorage?.getItem(KEPT) ?? null;
  } catch {
    return null; // a browser may refuse it
  }
}

/**
 * A sentence. Numbers are written as its reader writes them.
 * @param {string} key Section and name, such as `invite.join`. @param {Record<string, string | number | bigint>} [values]
 */
export function t(key, values = {}) {
  return sentence(key, values).replace(/\{(\w+)\}/g, (_, name) => shown(values[name], key, name));
}

/**
 * The same with elements in its places. @param {string} key @param {Record<string, Node | string | number>} values
 * @returns {(Node | string)[]}
 */
export function withNodes(key, values) {
  return sentence(key, values).split(/(\{\w+\})/).filter(Boolean).map((piece) => {
    const name = /^\{(\w+)\}$/.exec(piece)?.[1];
    const value = name === undefined ? piece : values[name];
    return typeof value === "object" ? value : name === undefined ? piece : shown(value, key, name);
  });
}

/** What stands between two sentences: Chinese has no space there. */
export const between = () => (spoken === "zh" ? "" : " ");

/** Sentences, one after the other; what is empty is left out. @param {...(string | false | null | undefined | 0)} said */
export const together = (...said) => said.filter(Boolean).join(between());

/** Whether there is such a sentence: for names that come from elsewhere. @param {string} key */
export function isSaid(key) {
  const [section, name] = key.split(".");
  return Object.hasOwn(sentences, section) && Object.hasOwn(sentences[section], name);
}

/**
 * Who learns what of a task, a row for each party: what catalogues have of its profile, then of all.
 * @param {string} profile @param {boolean} [recruits] Whether SP lets people in: then it is a reader, or all others, by itself.
 */
export const learntRows = (profile, recruits = false) => [profile, "every"].flatMap((place) =>
  Object.keys(sentences.learnt).filter((key) => key.startsWith(`${place}_`)).map((key) => {
    const [usual, hidden] = [`party.${key.slice(place.length + 1)}`, `hidden.${key}`];
    const party = recruits && isSaid(`${usual}Recruiting`) ? `${usual}Recruiting` : usual;
    return { key, party: t(party), learns: t(`learnt.${key}`), hidden: isSaid(hidden) ? t(hidden) : "" };
  }));

/** @typedef {{ why: string, by: string, reason: string }} Ending How a task ended, as SP says it: two codes, and words for everyone. */

/** @param {Ending} ending @param {(words: string) => string} said The words, as this page shows what others wrote. */
export function endingWords({ why, by, reason }, said) {
  const how = t(`ending.${why}`, { by: t(`by.${by}`) });
  return reason ? t("ending.because", { how, reason: said(reason) }) : how;
}

/** Several things, joined as one writes them. @param {readonly string[]} items @param {Intl.ListFormatType} [type] */
export const listOf = (items, type = "conjunction") => new Intl.ListFormat(spoken, { type }).format(items.map(apart));

/** The same for elements: each piece is an item, or what stands between two. @param {readonly string[]} items */
export const listParts = (items) => new Intl.ListFormat(spoken, { type: "conjunction" }).formatToParts(items);

const TO_THE_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;

/** What may run the other way than the words around it keeps its own direction, as in a <bdi>. @param {string} text */
export const apart = (text) => (text && (directionOf(spoken) === "rtl" || TO_THE_LEFT.test(text)) ? `\u2068${text}\u2069` : text);

/** @param {string} key @param {Record<string, unknown>} values */
function sentence(key, values) {
  if (!isSaid(key)) throw new Error(`no catalogue has ${key}`);
  const [section, name] = key.split(".");
  const found = sentences[section][name];
  if (typeof found === "string") return found;
  return found[new Intl.PluralRules(spoken).select(Number(values.count))] ?? found.other ?? key;
}

/** @param {unknown} value @param {string} key @param {string} name */
function shown(value, key, name) {
  if (value === undefined) throw new Error(`${key} needs ${name}`);
  return typeof value === "number" || typeof value === "bigint" ? new Intl.NumberFormat(numbers).format(value) : apart(String(value));
}
