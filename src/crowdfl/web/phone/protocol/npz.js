// NumPy's npz: a model's arrays in a ZIP file. What the task promises is compared before memory is taken.
// No array can hold code.

import { FormatError, ModelMismatch } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./settings.js").ArrayShape} ArrayShape */
/** @typedef {{ name: string, method: number, packed: Bytes, size: number, crc: number }} Member */

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const [STORED, DEFLATED] = [0, 8];
const LONGEST_HEADER = 512;
const LONGEST_COMMENT = 65535;
const HEADER = /^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(((?:[0-9]{1,10}, ?)*[0-9]{0,10})\), ?\} *\n?$/;

/**
 * All arrays in one row, in the model's order: they are called arr_0, arr_1, ... in the file.
 * @param {Bytes} bytes
 * @param {readonly ArrayShape[]} shape
 * @returns {Promise<Float64Array>}
 */
export async function readNpz(bytes, shape) {
  const members = directory(bytes, shape.length);
  const names = members.map(({ name }) => name).sort();
  const expected = shape.map((_, i) => `arr_${i}.npy`);
  if (names.join("\n") !== [...expected].sort().join("\n")) {
    throw new ModelMismatch("the file's arrays are not the model's: one is missing, or not expected");
  }
  const rows = [];
  for (const [i, [name, sides]] of shape.entries()) {
    const member = /** @type {Member} */ (members.find((one) => one.name === expected[i]));
    rows.push(readNpy(await content(member, LONGEST_HEADER + 10 + 8 * product(sides)), name, sides));
  }
  return joined(rows);
}

/** @param {Float64Array[]} rows */
function joined(rows) {
  const whole = new Float64Array(rows.reduce((length, row) => length + row.length, 0));
  let place = 0;
  for (const row of rows) {
    whole.set(row, place);
    place += row.length;
  }
  return whole;
}

/** @param {readonly number[]} sides */
function product(sides) {
  return sides.reduce((count, side) => count * side, 1);
}

/**
 * @param {string} why
 * @returns {never}
 */
function unreadable(why) {
  throw new FormatError(`the model is not a readable npz file: ${why}`);
}

/**
 * The members of a ZIP file, from its directory.
 * @param {Bytes} bytes
 * @param {number} most
 * @returns {Member[]}
 */
function directory(bytes, most) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = endOf(view);
  const count = view.getUint16(end + 10, true);
  if (count !== most) throw new ModelMismatch(`the file has ${count} arrays where the model has ${most}`);
  const members = [];
  let place = view.getUint32(end + 16, true);
  for (let i = 0; i < count; i += 1) {
    if (place + 46 > end || view.getUint32(place, true) !== ENTRY) unreadable("its directory is damaged");
    const lengths = [28, 30, 32].map((offset) => view.getUint16(place + offset, true));
    members.push(memberAt(bytes, view, place, end));
    place += 46 + lengths[0] + lengths[1] + lengths[2];
  }
  return members;
}

/** @param {DataView} view */
function endOf(view) {
  const last = view.byteLength - 22;
  for (let place = last; place >= 0 && place >= last - LONGEST_COMMENT; place -= 1) {
    if (view.getUint32(place, true) === END) return place;
  }
  return unreadable("it has no directory");
}

/**
 * @param {Bytes} bytes
 * @param {DataView} view
 * @param {number} place
 * @param {number} end
 * @returns {Member}
 */
function memberAt(bytes, view, place, end) {
  const flags = view.getUint16(place + 8, true);
  const [crc, packedSize, size] = [16, 20, 24].map((offset) => view.getUint32(place + offset, true));
  const local = view.getUint32(place + 42, true);
  const nameEnd = place + 46 + view.getUint16(place + 28, true);
  if (flags & 1) unreadable("it is encrypted");
  if (nameEnd > end || local + 30 > end || view.getUint32(local, true) !== LOCAL) unreadable("its directory is damaged");
  const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  if (start + packedSize > end) unreadable("it was cut off");
  const name = Array.from(bytes.subarray(place + 46, nameEnd), (byte) => String.fromCharCode(byte)).join("");
  return { name, method: view.getUint16(place + 10, true), packed: bytes.subarray(start, start + packedSize), size, crc };
}

/**
 * @param {Member} member
 * @param {number} most Bytes that an honest one has.
 */
async function content({ method, packed, size, crc }, most) {
  if (size > most) unreadable("an array in it holds more bytes than its shape says"); // before memory is taken
  if (method !== STORED && method !== DEFLATED) unreadable("it is packed in a way that this page does not know");
  const bytes = method === STORED ? packed : await inflated(packed, size);
  if (bytes.length !== size || crc32(bytes) !== crc) unreadable("an array in it is damaged");
  return bytes;
}

/**
 * @param {Bytes} packed
 * @param {number} size Where reading stops: a few bytes may announce gigabytes.
 * @returns {Promise<Bytes>}
 */
async function inflated(packed, size) {
  const whole = new Uint8Array(size);
  let place = 0;
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      if (place + piece.value.length > size) unreadable("an array in it is damaged");
      whole.set(piece.value, place);
      place += piece.value.length;
    }
  } catch {
    unreadable("an array in it is damaged");
  } finally {
    reader.cancel().catch(() => {});
  }
  return whole.slice(0, place);
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** @param {Uint8Array} bytes */
function crc32(bytes) {
  let value = ~0;
  for (const byte of bytes) value = (value >>> 8) ^ CRC_TABLE[(value ^ byte) & 255];
  return ~value >>> 0;
}

/**
 * @param {Bytes} bytes
 * @param {string} name
 * @param {readonly number[]} sides
 */
function readNpy(bytes, name, sides) {
  const version = Array.from(bytes.subarray(0, 8), (byte) => String.fromCharCode(byte)).join("");
  if (version !== "\x93NUMPY\x01\x00" || bytes.length < 10) {
    unreadable(`the array '${name}' is not in version 1.0 of NumPy's format`);
  }
  const start = 10 + bytes[8] + 256 * bytes[9];
  if (start - 10 > LONGEST_HEADER || bytes.length < start) unreadable(`the array '${name}' has no header`);
  const header = HEADER.exec(String.fromCharCode(...bytes.subarray(10, start)));
  if (!header) return unreadable(`the array '${name}' has a header of another form`);
  const [, kind, fortran, found] = header;
  requireSides(name, found, sides);
  const values = numbers(name, kind, bytes.slice(start), product(sides));
  return fortran === "True" ? inRows(values, sides) : values;
}

/**
 * @param {string} name
 * @param {string} found
 * @param {readonly number[]} sides
 */
function requireSides(name, found, sides) {
  const written = found.split(",").filter((side) => side.trim()).map(Number);
  if (written.join() !== sides.join()) {
    throw new ModelMismatch(`the array '${name}' has the shape (${written}), the model's has (${sides})`);
  }
}

/**
 * @param {string} name
 * @param {string} kind
 * @param {Bytes} bytes
 * @param {number} count
 */
function numbers(name, kind, bytes, count) {
  const width = { "<f4": 4, "<f8": 8 }[kind];
  if (!width) throw new ModelMismatch(`the array '${name}' does not hold float32 ('<f4') or float64 ('<f8')`);
  if (bytes.length !== width * count) unreadable(`the array '${name}' does not hold as many bytes as its shape says`);
  return width === 8 ? new Float64Array(bytes.buffer) : Float64Array.from(new Float32Array(bytes.buffer));
}

/**
 * From Fortran's order, where the first side runs fastest, to C's.
 * @param {Float64Array} values
 * @param {readonly number[]} sides
 */
function inRows(values, sides) {
  const steps = sides.map((_, i) => product(sides.slice(0, i)));
  return values.map((_, place) => {
    let [rest, from] = [place, 0];
    for (let i = sides.length - 1; i >= 0; i -= 1) {
      from += (rest % sides[i]) * steps[i];
      rest = Math.floor(rest / sides[i]);
    }
    return values[from];
  });
}
