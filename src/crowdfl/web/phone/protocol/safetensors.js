// Safetensors: a model's arrays behind a header that says where each of them lies. No array can hold code.

import { text } from "./bytes.js";
import { FormatError, ModelMismatch } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./settings.js").ArrayShape} ArrayShape */
/** @typedef {{ dtype: string, shape: number[], data_offsets: [number, number] }} Entry */

const LENGTH_BYTES = 8; // of the header's length
const LONGEST_HEADER = 10_000_000;
/** @type {Record<string, number>} */
const WIDTHS = { F32: 4, F64: 8 };

/**
 * All arrays in one row, in the model's order; the file has its own.
 * @param {Bytes} bytes
 * @param {readonly ArrayShape[]} shape
 * @returns {Float64Array}
 */
export function readSafetensors(bytes, shape) {
  const start = LENGTH_BYTES + headerLength(bytes);
  const entries = readHeader(bytes.subarray(LENGTH_BYTES, start));
  requireWhole([...entries.values()], bytes.length - start);
  if (entries.size !== shape.length || !shape.every(([name]) => entries.has(name))) {
    throw new ModelMismatch("the file's arrays are not the model's: one is missing, or not expected");
  }
  const rows = shape.map(([name, sides]) => numbers(bytes.subarray(start), name, sides, /** @type {Entry} */ (entries.get(name))));
  const whole = new Float64Array(rows.reduce((length, row) => length + row.length, 0));
  rows.reduce((place, row) => (whole.set(row, place), place + row.length), 0);
  return whole;
}

/** @param {Bytes} bytes */
function headerLength(bytes) {
  if (bytes.length < LENGTH_BYTES) unreadable("it is too short");
  const length = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true);
  if (length > LONGEST_HEADER || length > bytes.length - LENGTH_BYTES) unreadable("its header is too long");
  return Number(length);
}

/** @param {Bytes} bytes */
function readHeader(bytes) {
  let found;
  try {
    found = JSON.parse(text(bytes));
  } catch {
    unreadable("its header is not JSON");
  }
  if (typeof found !== "object" || found === null || Array.isArray(found)) unreadable("its header is no table");
  const entries = new Map(Object.entries(found).filter(([name]) => name !== "__metadata__"));
  if (![...entries.values()].every(isEntry)) unreadable("its header does not say where an array lies");
  return /** @type {Map<string, Entry>} */ (entries);
}

/** @param {any} entry */
function isEntry(entry) {
  const lists = [entry?.shape, entry?.data_offsets];
  const counts = lists.every((list) => Array.isArray(list) && list.every((one) => Number.isSafeInteger(one) && one >= 0));
  return counts && entry.data_offsets.length === 2 && typeof entry.dtype === "string";
}

/**
 * Array behind array, without a gap, to the end: no byte belongs to two of them, or to none.
 * @param {Entry[]} entries
 * @param {number} length
 */
function requireWhole(entries, length) {
  const places = entries.map((entry) => entry.data_offsets).sort(([a], [b]) => a - b);
  let end = 0;
  for (const [from, to] of places) {
    if (from !== end || to < from) unreadable("its arrays overlap, or leave a gap");
    end = to;
  }
  if (end !== length) unreadable("its arrays do not end where it ends");
}

/**
 * @param {Bytes} data
 * @param {string} name
 * @param {readonly number[]} sides
 * @param {Entry} entry
 */
function numbers(data, name, sides, { dtype, shape, data_offsets: [from, to] }) {
  if (shape.join() !== sides.join()) throw new ModelMismatch(`the array '${name}' has the shape (${shape}), the model's has (${sides})`);
  if (!Object.hasOwn(WIDTHS, dtype)) throw new ModelMismatch(`the array '${name}' does not hold float32 (F32) or float64 (F64)`);
  if (to - from !== WIDTHS[dtype] * sides.reduce((count, side) => count * side, 1)) {
    unreadable(`the array '${name}' does not hold as many bytes as its shape says`);
  }
  const { buffer } = data.slice(from, to);
  return dtype === "F64" ? new Float64Array(buffer) : new Float32Array(buffer);
}

/**
 * @param {string} why
 * @returns {never}
 */
function unreadable(why) {
  throw new FormatError(`the model is not a readable safetensors file: ${why}`);
}
