// Long bytes in pieces, each of which is a leaf, and what names an upload: as crypto/leaves.py and protocols/uploads.py.

import { blake3 } from "./blake3.js";
import { concat, hex, sha256, u32, utf8 } from "./bytes.js";
import { FormatError } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {{ start: number, end: number }} Part */
/** @typedef {{ digest: string, parts: Part[] }} Head An upload's name, and in which parts it is sent. */

const LEAF_BYTES = 32;
const LABEL = utf8("crowdfl leaf 1");
const [LEAST, MOST] = [2 ** 18, 64]; // bytes of a piece, and how many pieces a whole has
const [HEADER, IN_PIECES, BEFORE_LEAVES] = [6, 53, 9];

/** Of every piece but the last: 256 KiB, doubled until there are at most 64 of them. @param {number} total */
export function pieceBytes(total) {
  let size = LEAST;
  while (size * MOST < total) size *= 2;
  return size;
}

/** Of the leaves of so many bytes, one after the other. @param {number} total */
export function leavesBytes(total) {
  return Math.ceil(total / pieceBytes(total)) * LEAF_BYTES;
}

/** One after the other. @param {Bytes} bytes @returns {Bytes} */
export function leavesOf(bytes) {
  const size = pieceBytes(bytes.length);
  const leaves = [];
  for (let start = 0; start < bytes.length; start += size) {
    const place = concat(LABEL, u64(bytes.length), u64(start / size));
    leaves.push(blake3(concat(place, bytes.subarray(start, start + size))));
  }
  return concat(...leaves);
}

/** Eight bytes, big-endian. @param {number} number */
export function u64(number) {
  return concat(u32(Math.floor(number / 2 ** 32)), u32(number % 2 ** 32));
}

/** @param {Bytes} upload @param {number} [piece] Bytes of a part, of one that does not come in pieces. @returns {Promise<Head>} */
export async function headOf(upload, piece) {
  const { length, total } = headLength(upload);
  const parts = [];
  const [from, size] = total ? [length, pieceBytes(total)] : [0, piece ?? pieceBytes(length)];
  for (let start = 0, end = from + size; start < upload.length; start = end, end += size) {
    parts.push({ start, end: Math.min(end, upload.length) });
  }
  return { digest: hex(await sha256(upload.subarray(0, length))), parts };
}

/** An upload's name. @param {Bytes} upload */
export async function uploadDigest(upload) {
  return hex(await sha256(upload.subarray(0, headLength(upload).length)));
}

/** @param {Bytes} upload */
function headLength(upload) {
  if (upload.length < HEADER || upload[5] !== IN_PIECES) return { length: upload.length, total: 0 };
  const view = new DataView(upload.buffer, upload.byteOffset, upload.byteLength);
  let place = HEADER;
  for (let field = 0; field < BEFORE_LEAVES; field += 1) place += 4 + lengthAt(view, place);
  const leaves = lengthAt(view, place);
  const length = place + 4 + leaves + 4;
  const total = lengthAt(view, length - 4);
  if (leaves !== leavesBytes(total)) throw new FormatError("an upload with other leaves than pieces");
  return { length, total };
}

/** @param {DataView} view @param {number} place */
function lengthAt(view, place) {
  if (place + 4 > view.byteLength) throw new FormatError("an upload ends within its head");
  return view.getUint32(place);
}
