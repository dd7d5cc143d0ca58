// What names an upload: the hash of its head, as protocols/uploads.py.

import { hex, sha256 } from "./bytes.js";
import { FormatError } from "./errors.js";
import { leavesBytes, pieceBytes } from "./leaves.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {{ start: number, end: number }} Part */
/** @typedef {{ digest: string, parts: Part[] }} Head An upload's name, and in which parts it is sent. */

const [HEADER, IN_PIECES, BEFORE_LEAVES] = [6, 53, 9];

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
