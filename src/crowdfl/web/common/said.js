// What services say in English, in their reader's language: consoles look each sentence up by its English words, with {} for values.
//
// A catalogue `said/LANGUAGE.js` has pairs of texts; {1} is the first value. A value may be such a sentence itself.
import { isSaid, language, locale, t } from "./text.js";

/** @type {{ pattern: RegExp, words: string }[]} The longest first: it says most exactly what is meant. */
let sentences = [];

/** After `speak`; in English there is nothing to look up. */
export async function readServices() {
  if (language() === "en") return;
  const pairs = /** @type {[string, string][]} */ ((await import(`./said/${language()}.js`)).default);
  sentences = pairs.map(([english, words]) => ({ pattern: patternOf(english), words, length: english.length })).sort((a, b) => b.length - a.length);
}

/** @param {string} english */
const patternOf = (english) => new RegExp(`^${english.split("{}").map((piece) => piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("(.+?)")}$`, "s");

/** The same in the reader's language, or null. @param {string} text @returns {string | null} */
export function translated(text) {
  for (const { pattern, words } of sentences) {
    const found = pattern.exec(text);
    if (found) return words.replace(/\{(\d+)\}/g, (_, place) => valueOf(found[place]));
  }
  return null;
}

/** What no catalogue has stays as it is. @param {string} text */
export const said = (text) => translated(text) ?? text;

const JOINTS = /(, | and | or | to |; |\n)/;
const ATOM = /^\S+$|^"[^"]*"$/;
const NUMBER = /^(-?\d+(?:,\d{3})*(?:\.(\d+))?)(%| [kM]B|)$/;

/** @param {string} text @returns {string} */
function valueOf(text) {
  const whole = translated(text) ?? (isSaid(`state.${text}`) ? t(`state.${text}`) : null);
  if (whole !== null) return whole;
  const parts = text.split(JOINTS);
  if (parts.length > 1 && parts.every((part, place) => place % 2 || ATOM.test(part) || translated(part) !== null))
    return parts.map((part, place) => (place % 2 ? translated(part.trim())?.replace(/^|$/g, " ") ?? part : valueOf(part))).join("");
  return numberOf(text);
}

/** As its reader writes it. @param {string} text */
function numberOf(text) {
  const [, number, decimals = "", unit] = NUMBER.exec(text) ?? [];
  const value = Number(number?.replaceAll(",", ""));
  if (!Number.isSafeInteger(Math.round(value))) return text;
  const digits = { minimumFractionDigits: decimals.length, maximumFractionDigits: decimals.length };
  return new Intl.NumberFormat(locale(), digits).format(value) + unit;
}
