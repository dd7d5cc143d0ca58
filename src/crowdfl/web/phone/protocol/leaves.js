// Long bytes in pieces, each of which is a leaf, as crypto/leaves.py.

import { blake3 } from "./blake3.js";
import { concat, u32, utf8 } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const LEAF_BYTES = 32;
const LABEL = utf8("crowdfl leaf 1");
const [LEAST, MOST] = [2 ** 18, 64]; // bytes of a piece, and how many pieces a whole has

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
