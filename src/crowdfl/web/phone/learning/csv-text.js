// The text of CSV files as Python's `csv`, `float` and `datetime.fromisoformat` read it.
import { DataMalformed } from "../protocol/errors.js";

const LONGEST_FIELD = 131_072;
const LINE = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
const DIGITS = "\\d(?:_?\\d)*";
const NUMBER = new RegExp(`^[+-]?(?:${DIGITS}(?:\\.(?:${DIGITS})?)?|\\.${DIGITS})(?:[eE][+-]?${DIGITS})?$`);
const DATE = /^(\d{4})(?:-(\d{2})-(\d{2})|(\d{2})(\d{2})|-W(\d{2})(?:-(\d))?|W(\d{2})(\d)?)(?:[^](.+))?$/;
const CLOCK = /^(\d{2})(?::(\d{2})(?::(\d{2})(?:[.,](\d+))?)?|(\d{2})(?:(\d{2})(?:[.,](\d+))?)?)?$/;
const ZONE = /^(.*?)(?:(Z)|([+-])(.*))?$/;
const DAY = 86_400;

/**
 * Rows of fields. A field may be quoted, and may then hold line ends, which are left out.
 * @param {string} text @param {string} delimiter @param {string} file
 */
export function rowsOf(text, delimiter, file) {
  const lines = text.split(LINE);
  if (lines[lines.length - 1] === "") lines.pop();
  /** @type {string[][]} */
  const rows = [];
  /** @type {{ row: string[], open: string | null }} A field whose quote has not been closed goes on in the next line. */
  let state = { row: [], open: null };
  for (const line of lines) {
    state = readLine(line, delimiter, state);
    if (state.row.some((field) => field.length > LONGEST_FIELD)) throw new DataMalformed(`${file} is not CSV text: a field is too long`);
    if (state.open !== null) continue;
    rows.push(state.row);
    state = { row: [], open: null };
  }
  return state.open === null ? rows : [...rows, [...state.row, state.open]];
}

/** @param {string} line @param {string} delimiter @param {{ row: string[], open: string | null }} before */
function readLine(line, delimiter, { row, open }) {
  if (open === null && !line.includes('"')) return { row: line === "" ? row : line.split(delimiter), open: null };
  const fields = [...row];
  let field = open ?? "";
  let isQuoted = open !== null;
  let isFresh = open === null; // a quote opens a field only as its first character
  for (let at = 0; at < line.length; at++) {
    const mark = line[at];
    if (isQuoted) {
      if (mark !== '"') field += mark;
      else if (line[at + 1] === '"') field += line[++at];
      else isQuoted = false;
    } else if (mark === delimiter) {
      fields.push(field);
      [field, isFresh] = ["", true];
      continue;
    } else if (mark === '"' && isFresh) isQuoted = true;
    else field += mark;
    isFresh = false;
  }
  return isQuoted ? { row: fields, open: field } : { row: [...fields, field], open: null };
}

/**
 * A finite number, or null. With a delimiter other than the comma, a comma is the decimal sign.
 * @param {string} text @param {string} delimiter
 */
export function numberOf(text, delimiter) {
  const plain = (delimiter === "," ? text : text.replaceAll(",", ".")).trim();
  if (!NUMBER.test(plain)) return null;
  const value = Number(plain.replaceAll("_", ""));
  return Number.isFinite(value) ? value : null;
}

/** Seconds since 1970 of a date and time in ISO 8601, or null; without a zone, UTC. @param {string} text */
export function secondsOfDate(text) {
  const match = DATE.exec(text.trim());
  const day = match && dayOf(match);
  if (match === null || day === null) return null;
  const [, clock, , sign, offset] = ZONE.exec(match[10] ?? "00") ?? [];
  const time = microsOf(clock);
  const shift = offset === undefined ? 0 : microsOf(offset);
  if (time === null || shift === null || shift >= DAY * 1e6) return null;
  return (day * DAY * 1e6 + time - (sign === "-" ? -shift : shift)) / 1e6;
}

/** Days since 1970, or null if there is no such day. @param {RegExpExecArray} match */
function dayOf(match) {
  const year = Number(match[1]);
  if (year === 0) return null;
  const week = match[6] ?? match[8];
  if (week !== undefined) return dayOfWeek(year, Number(week), Number(match[7] ?? match[9] ?? 1));
  const [month, day] = [Number(match[2] ?? match[4]), Number(match[3] ?? match[5])];
  const moment = new Date(0);
  moment.setUTCFullYear(year, month - 1, day);
  return moment.getUTCMonth() === month - 1 && moment.getUTCDate() === day ? moment.getTime() / (DAY * 1000) : null;
}

/**
 * ISO weeks begin on Monday; the first one holds January 4th.
 * @param {number} year @param {number} week @param {number} weekday
 */
function dayOfWeek(year, week, weekday) {
  const start = (/** @type {number} */ of) => {
    const fourth = new Date(0);
    fourth.setUTCFullYear(of, 0, 4);
    return fourth.getTime() / (DAY * 1000) - ((fourth.getUTCDay() + 6) % 7);
  };
  const weeks = (start(year + 1) - start(year)) / 7;
  return week >= 1 && week <= weeks && weekday >= 1 && weekday <= 7 ? start(year) + (week - 1) * 7 + weekday - 1 : null;
}

/** Microseconds of a time of day; further digits are cut off. @param {string} text */
function microsOf(text) {
  const match = CLOCK.exec(text);
  if (!match) return null;
  const [hours, minutes, seconds] = [match[1], match[2] ?? match[5] ?? 0, match[3] ?? match[6] ?? 0].map(Number);
  const fraction = (match[4] ?? match[7] ?? "").slice(0, 6).padEnd(6, "0");
  return hours < 24 && minutes < 60 && seconds < 60 ? ((hours * 60 + minutes) * 60 + seconds) * 1e6 + Number(fraction) : null;
}
