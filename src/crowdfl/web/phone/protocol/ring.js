// Integers modulo 2^k as whole little-endian bytes, as crypto/shares/ring.py.

import { LengthMismatch, WidthError } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const WORD = 8;

/** Bytes of an element. @param {number} bits 8, 16, ... 64. */
export function elementBytes(bits) {
  if (!Number.isInteger(bits) || bits % 8 || bits < 8 || bits > 64) {
    throw new WidthError(`a ring has 8, 16, ... or 64 bits, not ${bits}`);
  }
  return bits / 8;
}

/**
 * Numbers minus elements, as elements: what is left of an update for SP.
 * @param {BigInt64Array<ArrayBuffer>} numbers @param {Uint8Array} elements @param {number} bits @returns {Bytes}
 */
export function minusElements(numbers, elements, bits) {
  const width = elementBytes(bits);
  requireLength(elements, numbers.length * width);
  const words = littleEndian(numbers);
  const result = new Uint8Array(elements.length);
  for (let from = 0, to = 0; to < result.length; from += WORD, to += width) {
    let borrow = 0;
    for (let i = 0; i < width; i += 1) {
      const byte = words[from + i] - elements[to + i] - borrow;
      result[to + i] = byte;
      borrow = byte < 0 ? 1 : 0;
    }
  }
  return result;
}

/**
 * Elements minus others, as the numbers in [-2^(bits-1), 2^(bits-1)).
 * @param {Uint8Array} a @param {Uint8Array[]} others @param {number} bits @returns {BigInt64Array<ArrayBuffer>}
 */
export function signedDifference(a, others, bits) {
  const width = elementBytes(bits);
  for (const b of others) requireLength(b, a.length);
  if (a.length % width) throw new LengthMismatch(`${a.length} bytes are not whole elements of ${width} bytes`);
  const numbers = new BigInt64Array(a.length / width);
  const words = littleEndian(numbers);
  for (let from = 0, to = 0; from < a.length; from += width, to += WORD) {
    let borrow = 0;
    for (let i = 0; i < width; i += 1) {
      let byte = a[from + i] - borrow;
      for (const b of others) byte -= b[from + i];
      words[to + i] = byte;
      borrow = -(byte >> 8);
    }
    if (words[to + width - 1] > 127) words.fill(255, to + width, to + WORD);
  }
  return numbers;
}

/** 64-bit numbers that are written without a bigint where a double holds them: that is ten times as fast. */
export class Integers64 {
  /** @param {number} length */
  constructor(length) {
    this.values = new BigInt64Array(length);
    this.halves = new Int32Array(this.values.buffer);
  }

  /** @param {number} place @param {number} a Both are whole numbers. @param {number} b */
  setProduct(place, a, b) {
    const product = a * b;
    if (Number.isSafeInteger(product)) {
      this.halves[2 * place] = product; // modulo 2^32
      this.halves[2 * place + 1] = Math.floor(product / 4294967296);
    } else {
      this.values[place] = BigInt(a) * BigInt(b);
    }
  }
}

/**
 * The bytes of 64-bit numbers, as every processor that runs a browser keeps them.
 * @param {BigInt64Array<ArrayBuffer> | Float64Array<ArrayBuffer>} numbers
 */
export function littleEndian(numbers) {
  return new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
}

/** @param {Uint8Array} bytes @param {number} expected */
function requireLength(bytes, expected) {
  if (bytes.length !== expected) throw new LengthMismatch(`${bytes.length} bytes where ${expected} are expected`);
}

/** A little-endian number of any length. @param {Uint8Array} bytes */
export function fromLittleEndian(bytes) {
  return bytes.reduceRight((number, byte) => (number << 8n) | BigInt(byte), 0n);
}

/** @param {bigint} number Taken modulo 2^(8 length). @param {number} length @returns {Bytes} */
export function toLittleEndian(number, length) {
  return Uint8Array.from({ length }, (_, i) => Number((number >> BigInt(8 * i)) & 255n));
}
