// Numbers as people read them. Nothing here computes: amounts stay integers.

const MILLION = 1_000_000n;
const NONE = "–"; // what is not known

/** @typedef {number | null | undefined} Maybe */

/**
 * An amount of money in millionths, exactly, with at least two decimals: 1250000 is "1.25".
 * @param {bigint | number | string} millionths A number must be a safe integer: a float has lost money already.
 */
export function money(millionths) {
  if (typeof millionths === "number" && !Number.isSafeInteger(millionths)) {
    throw new TypeError("an amount of money must be an integer of millionths");
  }
  const amount = BigInt(millionths);
  const size = amount < 0n ? -amount : amount;
  const decimals = String(size % MILLION).padStart(6, "0").replace(/0{1,4}$/, "");
  return `${amount < 0n ? "-" : ""}${size / MILLION}.${decimals}`;
}

// English as the pages are, in the reader's own time zone.
const MOMENTS = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const SECONDS = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const FIRST_MILLISECONDS = 1e11; // as seconds this would be the year 5138

/** A point in time, from seconds or milliseconds since 1970. @param {Maybe} when */
export function formatTime(when, format = MOMENTS) {
  if (!known(when)) return NONE;
  const date = new Date(Math.abs(when) < FIRST_MILLISECONDS ? when * 1000 : when);
  return Number.isNaN(date.getTime()) ? NONE : format.format(date); // a stranger's number may be no moment
}

/** The same to the second, for what happens one after the other. @param {Maybe} when */
export const formatSeconds = (when) => formatTime(when, SECONDS);

/** @type {readonly [number, string, string][]} How many seconds, one of them, several. */
const UNITS = [[86_400, "day", "days"], [3_600, "h", "h"], [60, "min", "min"], [1, "s", "s"]];

/** A length of time by its two largest units: 7500 is "2 h 5 min". @param {Maybe} seconds @returns {string} */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 10) return `${trimmed(seconds, 1)} s`;
  const whole = rounded(Math.round(seconds));
  const first = UNITS.findIndex(([size]) => whole >= size);
  return UNITS.slice(first, first + 2).map(([size, one, many], place) => {
    const count = Math.floor((place ? whole % UNITS[first][0] : whole) / size);
    return count || !place ? `${count} ${count === 1 ? one : many}` : "";
  }).filter(Boolean).join(" ");
}

/** To the second of the two units, so that 3599.6 s do not become "59 min 60 s". @param {number} seconds */
function rounded(seconds) {
  const first = UNITS.findIndex(([size]) => seconds >= size);
  const unit = UNITS[Math.min(first + 1, UNITS.length - 1)][0];
  return Math.round(seconds / unit) * unit;
}

const SIZES = ["kB", "MB", "GB", "TB"];

/** 1,536 bytes are "1.5 kB": a thousand each. @param {Maybe} count */
export function bytes(count) {
  if (!known(count)) return NONE;
  if (count < 1000) return count === 1 ? "1 byte" : `${count} bytes`;
  const power = Math.min(Math.floor(Math.log10(count) / 3), SIZES.length);
  const value = count / 1000 ** power;
  if (value >= 999.5 && power < SIZES.length) return `1 ${SIZES[power]}`;
  return `${trimmed(value, value < 10 ? 1 : 0)} ${SIZES[power - 1]}`;
}

/** A share between 0 and 1: 0.875 is "87.5%". @param {Maybe} share */
export function percent(share) {
  return known(share) ? `${(100 * share).toFixed(1)}%` : NONE;
}

/** @param {Maybe} value @returns {value is number} */
function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** @param {number} value @param {number} decimals */
function trimmed(value, decimals) {
  return String(Number(value.toFixed(decimals)));
}

/** @param {number} count @param {string} word */
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
