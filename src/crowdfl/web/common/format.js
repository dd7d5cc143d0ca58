// Numbers as people read them, in their language. Nothing here computes: amounts stay integers.
import { locale } from "./text.js";

const MILLION = 1_000_000n;
const CENT = 10_000n; // millionths
const NONE = "–"; // what is not known

/** @typedef {number | null | undefined} Maybe */

/**
 * An amount of money. With a currency as people read it, rounded down to the cent: what is shown can be paid. Without one exactly, with
 * at least two decimals, as people type it: 1250000 is "1.25".
 * @param {bigint | number | string} millionths A number must be a safe integer: a float has lost money already.
 * @param {string} [currency] By its ISO 4217 code.
 */
export function money(millionths, currency) {
  if (typeof millionths === "number" && !Number.isSafeInteger(millionths)) {
    throw new TypeError("an amount of money must be an integer of millionths");
  }
  const amount = BigInt(millionths);
  if (currency) return moneyFormat(currency).format(inCents(amount));
  const size = amount < 0n ? -amount : amount;
  const decimals = String(size % MILLION).padStart(6, "0").replace(/0{1,4}$/, "");
  return `${amount < 0n ? "-" : ""}${size / MILLION}.${decimals}`;
}

/** With every decimal, as somebody has signed it: 0.005 is no nothing. @param {bigint} millionths @param {string} currency */
export const moneyExactly = (millionths, currency) =>
  new Intl.NumberFormat(local(), { style: "currency", currency, maximumFractionDigits: 6 }).format(Number(millionths) / Number(MILLION));

/** From so much to so much. @param {bigint} low @param {bigint} high @param {string} currency */
export function moneyRange(low, high, currency) {
  const [from, to] = [inCents(low), inCents(high)];
  return from === to ? money(low, currency) : moneyFormat(currency).formatRange(from, to);
}

/** @param {string} currency */
const moneyFormat = (currency) => new Intl.NumberFormat(local(), { style: "currency", currency });

/** @param {bigint} millionths */
const inCents = (millionths) => Number(millionths / CENT) / 100;

/** English with the day before the month. */
const local = () => (locale() === "en" ? "en-GB" : locale());

/** @type {Map<string, Intl.DateTimeFormat>} Making one is slow. */
const MOMENTS = new Map();

/** @param {"short" | "medium"} timeStyle In the reader's own time zone. */
function momentFormat(timeStyle) {
  const name = `${local()} ${timeStyle}`;
  const made = MOMENTS.get(name) ?? new Intl.DateTimeFormat(local(), { dateStyle: "medium", timeStyle });
  MOMENTS.set(name, made);
  return made;
}

const FIRST_MILLISECONDS = 1e11; // as seconds this would be the year 5138

/** A point in time, from seconds or milliseconds since 1970. @param {Maybe} when @param {"short" | "medium"} [timeStyle] */
export function formatTime(when, timeStyle = "short") {
  if (!known(when)) return NONE;
  const date = new Date(Math.abs(when) < FIRST_MILLISECONDS ? when * 1000 : when);
  return Number.isNaN(date.getTime()) ? NONE : momentFormat(timeStyle).format(date); // a stranger's number may be no moment
}

/** The same to the second, for what happens one after the other. @param {Maybe} when */
export const formatSeconds = (when) => formatTime(when, "medium");

/** @type {readonly [number, string][]} */
const UNITS = [[86_400, "day"], [3_600, "hour"], [60, "minute"], [1, "second"]];

/** @param {number} count @param {string} unit @param {Intl.NumberFormatOptions} [options] */
const withUnit = (count, unit, options) => new Intl.NumberFormat(locale(), { style: "unit", unit, ...options }).format(count);

/** A length of time by its two largest units: 7500 is "2 hr 5 min". @param {Maybe} seconds @returns {string} */
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 10) return withUnit(seconds, "second", { maximumFractionDigits: 1 });
  const whole = rounded(Math.round(seconds));
  const first = UNITS.findIndex(([size]) => whole >= size);
  return UNITS.slice(first, first + 2).map(([size, unit], place) => {
    const count = Math.floor((place ? whole % UNITS[first][0] : whole) / size);
    return count || !place ? withUnit(count, unit, { unitDisplay: unit === "day" ? "long" : "short" }) : "";
  }).filter(Boolean).join(" ");
}

/** To the second of the two units, so that 3599.6 s do not become "59 min 60 s". @param {number} seconds */
function rounded(seconds) {
  const first = UNITS.findIndex(([size]) => seconds >= size);
  const unit = UNITS[Math.min(first + 1, UNITS.length - 1)][0];
  return Math.round(seconds / unit) * unit;
}

const SIZES = ["kilobyte", "megabyte", "gigabyte", "terabyte"];

/** 1,536 bytes are "1.5 kB": a thousand each. @param {Maybe} count */
export function bytes(count) {
  if (!known(count)) return NONE;
  if (count < 1000) return withUnit(count, "byte", { unitDisplay: "long" });
  const power = Math.min(Math.floor(Math.log10(count) / 3), SIZES.length);
  const value = count / 1000 ** power;
  if (value >= 999.5 && power < SIZES.length) return withUnit(1, SIZES[power]);
  return withUnit(value, SIZES[power - 1], { maximumFractionDigits: value < 10 ? 1 : 0 });
}

/** A share between 0 and 1: 0.875 is "87.5%". @param {Maybe} share */
export function percent(share) {
  if (!known(share)) return NONE;
  return new Intl.NumberFormat(locale(), { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 }).format(share);
}

/** @param {Maybe} value @returns {value is number} */
function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}
