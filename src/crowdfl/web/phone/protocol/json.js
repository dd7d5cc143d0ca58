// JSON whose numbers keep the form they are written in. Documents are signed over what Python's json.dumps makes of them, where
// 604800.0 and 604800 are two things, and in JavaScript they are one.

import { DocumentError } from "./errors.js";

/** @typedef {null | boolean | string | NumberToken | Json[] | Map<string, Json>} Json */

const DEEPEST = 400;
const LONGEST_INTEGER = 4300; // digits: Python reads no more
const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const WORDS = /** @type {const} */ ([["true", true], ["false", false], ["null", null]]);
/** @type {Record<string, string>} */
const UNESCAPED = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
/** @type {Record<string, string>} */
const ESCAPED = { '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** A number, and how Python would write it. */
export class NumberToken {
  /** @param {string} written As JSON has it. */
  constructor(written) {
    this.isInteger = /^-?[0-9]+$/.test(written);
    this.text = this.isInteger ? integerText(written) : floatText(Number(written));
    this.value = Number(this.text);
  }
}

/** @param {string} written */
function integerText(written) {
  if (written.length > LONGEST_INTEGER) throw new DocumentError("a document holds a number that is too long");
  return written === "-0" ? "0" : written;
}

/**
 * As Python's repr: the shortest digits, fixed from 0.0001 up to 16 digits, else with an exponent of two digits or more.
 * @param {number} value
 */
export function floatText(value) {
  if (!Number.isFinite(value)) throw new DocumentError("a document holds a number that is too large");
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [mantissa, power] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  return fixed(value < 0 ? "-" : "", mantissa.replace(/[-.]/g, ""), exponent);
}

/**
 * @param {string} sign
 * @param {string} digits
 * @param {number} exponent Of the first digit.
 */
function fixed(sign, digits, exponent) {
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

/**
 * @param {string} text
 * @returns {Json}
 */
export function parseJson(text) {
  return new Parser(text).whole();
}

class Parser {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.place = 0;
  }

  whole() {
    const value = this.value(0);
    this.skip();
    if (this.place !== this.text.length) this.fail();
    return value;
  }

  /**
   * @param {number} depth
   * @returns {Json}
   */
  value(depth) {
    if (depth > DEEPEST) throw new DocumentError("a document is nested too deeply");
    this.skip();
    const first = this.text[this.place];
    if (first === "{") return this.object(depth);
    if (first === "[") return this.array(depth);
    if (first === '"') return this.string();
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.place)) {
        this.place += word.length;
        return value;
      }
    }
    return new NumberToken(this.take(NUMBER) || this.fail());
  }

  /** @param {number} depth */
  object(depth) {
    /** @type {Map<string, Json>} */
    const members = new Map();
    this.each("}", () => {
      this.skip();
      const name = this.string();
      this.expect(":");
      members.set(name, this.value(depth + 1));
    });
    return members;
  }

  /** @param {number} depth */
  array(depth) {
    /** @type {Json[]} */
    const entries = [];
    this.each("]", () => entries.push(this.value(depth + 1)));
    return entries;
  }

  /**
   * What is between brackets, with commas.
   * @param {string} end
   * @param {() => void} read
   */
  each(end, read) {
    this.place += 1;
    if (this.found(end)) return;
    do read();
    while (this.found(","));
    this.expect(end);
  }

  string() {
    if (this.text[this.place] !== '"') this.fail();
    this.place += 1;
    let read = this.take(PLAIN);
    while (this.text[this.place] === "\\") read += this.escape() + this.take(PLAIN);
    if (this.text[this.place] !== '"') this.fail();
    this.place += 1;
    return read;
  }

  escape() {
    const letter = this.text[this.place + 1] ?? "";
    const code = this.text.slice(this.place + 2, this.place + 6);
    if (letter === "u" && /^[0-9a-fA-F]{4}$/.test(code)) {
      this.place += 6;
      return String.fromCharCode(parseInt(code, 16));
    }
    this.place += 2;
    return Object.hasOwn(UNESCAPED, letter) ? UNESCAPED[letter] : this.fail();
  }

  /** @param {RegExp} pattern Sticky. */
  take(pattern) {
    pattern.lastIndex = this.place;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.place += found.length;
    return found;
  }

  skip() {
    this.take(SPACE);
  }

  /** @param {string} mark */
  found(mark) {
    this.skip();
    if (this.text[this.place] !== mark) return false;
    this.place += 1;
    return true;
  }

  /** @param {string} mark */
  expect(mark) {
    if (!this.found(mark)) this.fail();
  }

  /** @returns {never} */
  fail() {
    throw new DocumentError("a document is not valid JSON");
  }
}

/**
 * As Python's json.dumps(value, sort_keys=True) writes it.
 * @param {Json} value
 * @param {{ spaces?: boolean }} [form] Without spaces: separators=(",", ":").
 * @returns {string}
 */
export function dumpJson(value, { spaces = false } = {}) {
  const [comma, colon] = spaces ? [", ", ": "] : [",", ":"];
  /** @type {(part: Json) => string} */
  const dump = (part) => {
    if (part instanceof Map) {
      const names = [...part.keys()].sort(byCodePoints);
      return `{${names.map((name) => quoted(name) + colon + dump(part.get(name) ?? null)).join(comma)}}`;
    }
    if (Array.isArray(part)) return `[${part.map(dump).join(comma)}]`;
    if (part instanceof NumberToken) return part.text;
    return typeof part === "string" ? quoted(part) : String(part);
  };
  return dump(value);
}

/** @param {string} text */
function quoted(text) {
  const code = (/** @type {string} */ unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `"${text.replace(/["\\]|[^ -~]/g, (unit) => ESCAPED[unit] ?? code(unit))}"`;
}

/**
 * Python compares code points, JavaScript halves of surrogate pairs.
 * @param {string} a
 * @param {string} b
 */
function byCodePoints(a, b) {
  const [ours, theirs] = [Array.from(a, codePoint), Array.from(b, codePoint)];
  const place = ours.findIndex((code, i) => code !== theirs[i]);
  return place < 0 || place >= theirs.length ? ours.length - theirs.length : ours[place] - theirs[place];
}

/** @param {string} one */
function codePoint(one) {
  return one.codePointAt(0) ?? 0;
}

/**
 * As ordinary values: objects, arrays, numbers; a whole number that a double does not hold is a bigint.
 * @param {Json} value
 * @returns {any}
 */
export function plain(value) {
  if (value instanceof Map) return Object.fromEntries(Array.from(value, ([name, part]) => [name, plain(part)]));
  if (Array.isArray(value)) return value.map(plain);
  if (!(value instanceof NumberToken)) return value;
  return value.isInteger && !Number.isSafeInteger(value.value) ? BigInt(value.text) : value.value;
}
