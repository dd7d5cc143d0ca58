// Bytes and the few forms that they travel in.

import { FormatError } from "./errors.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @param {...Uint8Array} parts @returns {Bytes} */
export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

/** @param {Uint8Array} bytes */
export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {string} digits @returns {Bytes} */
export function fromHex(digits) {
  if (!/^(?:[0-9a-fA-F]{2})*$/.test(digits)) throw new FormatError("expected hexadecimal digits");
  return Uint8Array.from({ length: digits.length / 2 }, (_, i) => parseInt(digits.slice(2 * i, 2 * i + 2), 16));
}

/** @param {string} characters @returns {Bytes} */
export function utf8(characters) {
  return /** @type {Bytes} */ (encoder.encode(characters));
}

/** @param {Uint8Array} bytes */
export function text(bytes) {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new FormatError("a text field is not UTF-8");
  }
}

/** @param {Uint8Array} bytes */
export function base64(bytes) {
  let characters = "";
  for (let start = 0; start < bytes.length; start += 4096) {
    characters += String.fromCharCode(...bytes.subarray(start, start + 4096));
  }
  return btoa(characters);
}

/** @param {string} digits With padding, and nothing else. @returns {Bytes} */
export function fromBase64(digits) {
  if (digits.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(digits)) throw new FormatError("a field is not valid base64");
  const characters = atob(digits);
  return Uint8Array.from(characters, (one) => one.charCodeAt(0));
}

/** @param {Uint8Array} bytes */
export function base64url(bytes) {
  return base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} digits Without padding, and without bits of the last one that are not used. @returns {Bytes} */
export function fromBase64url(digits) {
  const padding = "=".repeat((4 - (digits.length % 4)) % 4);
  const bytes = fromBase64(digits.replaceAll("-", "+").replaceAll("_", "/") + padding);
  if (base64url(bytes) !== digits) throw new FormatError("a field is not valid base64url: a part of it is missing or altered");
  return bytes;
}

/** Four bytes, big-endian. @param {number} number @returns {Bytes} */
export function u32(number) {
  if (!Number.isInteger(number) || number < 0 || number > 0xffffffff) {
    throw new FormatError("a number does not fit into four bytes");
  }
  return Uint8Array.of(number >>> 24, number >>> 16, number >>> 8, number);
}

/** @param {Uint8Array} a @param {Uint8Array} b */
export function equal(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

/** @param {Bytes} bytes @returns {Promise<Bytes>} */
export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/**
 * A label and parts that cannot be taken for other parts: each stands behind its length.
 * @param {string} label @param {...Uint8Array} parts
 */
export function bind(label, ...parts) {
  return concat(utf8(label), ...parts.flatMap((part) => [u32(part.length), part]));
}

/** @param {Uint8Array} bytes Big-endian. @returns {bigint} */
export function toNumber(bytes) {
  return bytes.length ? BigInt("0x" + hex(bytes)) : 0n;
}

/**
 * @param {bigint} number Not negative. @param {number} [length] Without one: no leading zero bytes, and nothing for 0.
 * @returns {Bytes}
 */
export function fromNumber(number, length) {
  const digits = number === 0n ? "" : number.toString(16);
  const bytes = fromHex(digits.length % 2 ? "0" + digits : digits);
  if (length === undefined) return bytes;
  if (bytes.length > length) throw new FormatError(`a number does not fit into ${length} bytes`);
  return concat(new Uint8Array(length - bytes.length), bytes);
}
