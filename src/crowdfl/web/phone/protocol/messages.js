// Messages: magic, version, kind, then each field behind its length (docs/formats.md).
// Lengths are checked before memory is taken.

import { concat, fromNumber, text, toNumber, u32, utf8 } from "./bytes.js";
import { FormatError, LimitExceeded, TrailingBytes, Truncated, UnsupportedVersion } from "./errors.js";
import { LONGEST_NUMBER } from "./limits.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {Uint8Array | string | number | bigint} Single */
/** @typedef {Single | readonly Single[]} Field */
/** @typedef {"bytes" | "text" | "number"} Type */
/** @typedef {Type | `list of ${Type}`} FieldType */
/** @typedef {import("./limits.js").Limit} Limit */

const MAGIC = "CFLM";
const VERSION = 2;
const HEADER = 6;

/** For messages that hold no model. */
export const SMALL = { field: 100_000, entries: 10_000 };

/** @param {number} kind @param {readonly Field[]} fields @returns {Bytes} */
export function encode(kind, fields) {
  const bodies = fields.map(encodeField);
  return concat(utf8(MAGIC), Uint8Array.of(VERSION, kind), ...bodies.flatMap((body) => [u32(body.length), body]));
}

/** @param {Field} value @returns {Uint8Array} */
function encodeField(value) {
  if (value instanceof Uint8Array) return value;
  if (typeof value === "string") return utf8(value);
  if (typeof value === "number" || typeof value === "bigint") return fromNumber(BigInt(value));
  const bodies = value.map(encodeField);
  return concat(...bodies.flatMap((body) => [u32(body.length), body]));
}

/**
 * The fields of a message: bytes, text as strings, numbers as bigint, lists as arrays.
 * @param {number} kind @param {readonly FieldType[]} types @param {Uint8Array} bytes @param {Limit} [limit]
 * @returns {any[]} As `types` says: whoever calls knows.
 */
export function decode(kind, types, bytes, limit = SMALL) {
  checkHeader(kind, bytes);
  const reader = new Reader(bytes, HEADER, limit.field);
  const fields = types.map((type) => decodeField(reader.next(), type, limit));
  if (!reader.ended) throw new TrailingBytes("there are bytes after the end of a message");
  return fields;
}

/** @param {number} kind @param {Uint8Array} bytes */
function checkHeader(kind, bytes) {
  if (bytes.length < HEADER) throw new Truncated(`${bytes.length} bytes are not a message`);
  if (String.fromCharCode(...bytes.subarray(0, 4)) !== MAGIC) throw new FormatError("these bytes are not a CrowdFL message");
  if (bytes[4] !== VERSION) {
    throw new UnsupportedVersion(`a message of version ${bytes[4]}; this page speaks version ${VERSION}: reload it`);
  }
  if (bytes[5] !== kind) throw new FormatError(`a message of kind ${bytes[5]} where kind ${kind} is expected`);
}

/** Fields behind their lengths, one after the other. */
class Reader {
  /** @param {Uint8Array} bytes @param {number} place @param {number} longest */
  constructor(bytes, place, longest) {
    this.bytes = bytes;
    this.place = place;
    this.longest = longest;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get ended() {
    return this.place === this.bytes.length;
  }

  next() {
    const start = this.place + 4;
    if (this.bytes.length < start) throw new Truncated("the message ends inside a length");
    const length = this.view.getUint32(this.place);
    if (length > this.longest) {
      throw new LimitExceeded(`a field of ${length} bytes; at most ${this.longest} are allowed here`);
    }
    if (this.bytes.length < start + length) throw new Truncated(`the message ends inside a field of ${length} bytes`);
    this.place = start + length;
    return this.bytes.slice(start, this.place);
  }
}

/** @param {Uint8Array} body @param {FieldType} type @param {Limit} limit @returns {unknown} */
function decodeField(body, type, limit) {
  if (type === "bytes") return body;
  if (type === "text") return text(body);
  if (type === "number") return decodeNumber(body);
  return decodeList(body, /** @type {Type} */ (type.slice("list of ".length)), limit);
}

/** @param {Uint8Array} body */
function decodeNumber(body) {
  if (body.length > LONGEST_NUMBER || body[0] === 0) throw new FormatError("a number is too long, or padded");
  return toNumber(body);
}

/** @param {Uint8Array} body @param {Type} type @param {Limit} limit */
function decodeList(body, type, limit) {
  const reader = new Reader(body, 0, limit.field);
  const entries = [];
  while (!reader.ended) {
    if (entries.length >= limit.entries) throw new LimitExceeded(`a list of more than ${limit.entries} entries`);
    entries.push(decodeField(reader.next(), type, limit));
  }
  return entries;
}

/** @param {Bytes} bytes Perhaps a message. */
export function kindOf(bytes) {
  return bytes[5];
}
