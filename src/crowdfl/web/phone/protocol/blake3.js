// BLAKE3 with 32 bytes, as the package `blake3` in Python: browsers have no hash that is fast on every server.

/** @typedef {import("./bytes.js").Bytes} Bytes */

const IV = Int32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
const PERMUTED = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const [CHUNK, BLOCK, ROUNDS] = [1024, 64, 7];
const [CHUNK_START, CHUNK_END, PARENT, ROOT] = [1, 2, 4, 8];
const ORDER = orderOfWords();

/** @param {Bytes} bytes @returns {Bytes} */
export function blake3(bytes) {
  const chunks = Math.max(1, Math.ceil(bytes.length / CHUNK));
  /** @type {Int32Array[]} */
  const stack = [];
  for (let index = 0; index < chunks; index += 1) {
    const piece = bytes.subarray(index * CHUNK, (index + 1) * CHUNK);
    let node = chunkOf(piece, index, chunks === 1 ? ROOT : 0);
    // As many complete trees end here as the number of chunks can be halved; the last chunk's are joined below.
    for (let left = index + 1; left % 2 === 0 && index + 1 < chunks; left /= 2) node = parentOf(pop(stack), node, 0);
    stack.push(node);
  }
  while (stack.length > 1) {
    const right = pop(stack);
    stack.push(parentOf(pop(stack), right, stack.length ? 0 : ROOT));
  }
  const found = new DataView(new ArrayBuffer(32));
  stack[0].forEach((word, i) => found.setInt32(4 * i, word, true));
  return new Uint8Array(found.buffer);
}

/** @param {Int32Array[]} stack */
function pop(stack) {
  return /** @type {Int32Array} */ (stack.pop());
}

/** @param {Uint8Array} piece @param {number} index @param {number} root */
function chunkOf(piece, index, root) {
  const cv = IV.slice();
  const words = new Int32Array(16);
  const bytes = new Uint8Array(words.buffer);
  const blocks = Math.max(1, Math.ceil(piece.length / BLOCK));
  for (let block = 0; block < blocks; block += 1) {
    const part = piece.subarray(block * BLOCK, (block + 1) * BLOCK);
    if (part.length < BLOCK) bytes.fill(0);
    bytes.set(part);
    const flags = (block === 0 ? CHUNK_START : 0) | (block === blocks - 1 ? CHUNK_END | root : 0);
    compress(cv, words, index, part.length, flags);
  }
  return cv;
}

/** @param {Int32Array} left @param {Int32Array} right @param {number} root */
function parentOf(left, right, root) {
  const cv = IV.slice();
  const words = new Int32Array(16);
  words.set(left);
  words.set(right, 8);
  compress(cv, words, 0, BLOCK, PARENT | root);
  return cv;
}

/** Which word of a block each step of each round takes. */
function orderOfWords() {
  const order = new Uint8Array(16 * ROUNDS);
  for (let i = 0; i < order.length; i += 1) order[i] = i < 16 ? i : order[i - 16 - (i % 16) + PERMUTED[i % 16]];
  return order;
}

/**
 * The chaining value `cv` after one more block.
 * @param {Int32Array} cv @param {Int32Array} m @param {number} counter @param {number} length @param {number} flags
 */
function compress(cv, m, counter, length, flags) {
  let [v0, v1, v2, v3, v4, v5, v6, v7] = [cv[0], cv[1], cv[2], cv[3], cv[4], cv[5], cv[6], cv[7]];
  let [v8, v9, v10, v11] = IV;
  let [v12, v13, v14, v15] = [counter | 0, (counter / 0x100000000) | 0, length, flags];
  for (let at = 0; at < 16 * ROUNDS; at += 16) {
    v0 = (v0 + v4 + m[ORDER[at]]) | 0; v12 ^= v0; v12 = (v12 >>> 16) | (v12 << 16);
    v8 = (v8 + v12) | 0; v4 ^= v8; v4 = (v4 >>> 12) | (v4 << 20);
    v0 = (v0 + v4 + m[ORDER[at + 1]]) | 0; v12 ^= v0; v12 = (v12 >>> 8) | (v12 << 24);
    v8 = (v8 + v12) | 0; v4 ^= v8; v4 = (v4 >>> 7) | (v4 << 25);
    v1 = (v1 + v5 + m[ORDER[at + 2]]) | 0; v13 ^= v1; v13 = (v13 >>> 16) | (v13 << 16);
    v9 = (v9 + v13) | 0; v5 ^= v9; v5 = (v5 >>> 12) | (v5 << 20);
    v1 = (v1 + v5 + m[ORDER[at + 3]]) | 0; v13 ^= v1; v13 = (v13 >>> 8) | (v13 << 24);
    v9 = (v9 + v13) | 0; v5 ^= v9; v5 = (v5 >>> 7) | (v5 << 25);
    v2 = (v2 + v6 + m[ORDER[at + 4]]) | 0; v14 ^= v2; v14 = (v14 >>> 16) | (v14 << 16);
    v10 = (v10 + v14) | 0; v6 ^= v10; v6 = (v6 >>> 12) | (v6 << 20);
    v2 = (v2 + v6 + m[ORDER[at + 5]]) | 0; v14 ^= v2; v14 = (v14 >>> 8) | (v14 << 24);
    v10 = (v10 + v14) | 0; v6 ^= v10; v6 = (v6 >>> 7) | (v6 << 25);
    v3 = (v3 + v7 + m[ORDER[at + 6]]) | 0; v15 ^= v3; v15 = (v15 >>> 16) | (v15 << 16);
    v11 = (v11 + v15) | 0; v7 ^= v11; v7 = (v7 >>> 12) | (v7 << 20);
    v3 = (v3 + v7 + m[ORDER[at + 7]]) | 0; v15 ^= v3; v15 = (v15 >>> 8) | (v15 << 24);
    v11 = (v11 + v15) | 0; v7 ^= v11; v7 = (v7 >>> 7) | (v7 << 25);
    v0 = (v0 + v5 + m[ORDER[at + 8]]) | 0; v15 ^= v0; v15 = (v15 >>> 16) | (v15 << 16);
    v10 = (v10 + v15) | 0; v5 ^= v10; v5 = (v5 >>> 12) | (v5 << 20);
    v0 = (v0 + v5 + m[ORDER[at + 9]]) | 0; v15 ^= v0; v15 = (v15 >>> 8) | (v15 << 24);
    v10 = (v10 + v15) | 0; v5 ^= v10; v5 = (v5 >>> 7) | (v5 << 25);
    v1 = (v1 + v6 + m[ORDER[at + 10]]) | 0; v12 ^= v1; v12 = (v12 >>> 16) | (v12 << 16);
    v11 = (v11 + v12) | 0; v6 ^= v11; v6 = (v6 >>> 12) | (v6 << 20);
    v1 = (v1 + v6 + m[ORDER[at + 11]]) | 0; v12 ^= v1; v12 = (v12 >>> 8) | (v12 << 24);
    v11 = (v11 + v12) | 0; v6 ^= v11; v6 = (v6 >>> 7) | (v6 << 25);
    v2 = (v2 + v7 + m[ORDER[at + 12]]) | 0; v13 ^= v2; v13 = (v13 >>> 16) | (v13 << 16);
    v8 = (v8 + v13) | 0; v7 ^= v8; v7 = (v7 >>> 12) | (v7 << 20);
    v2 = (v2 + v7 + m[ORDER[at + 13]]) | 0; v13 ^= v2; v13 = (v13 >>> 8) | (v13 << 24);
    v8 = (v8 + v13) | 0; v7 ^= v8; v7 = (v7 >>> 7) | (v7 << 25);
    v3 = (v3 + v4 + m[ORDER[at + 14]]) | 0; v14 ^= v3; v14 = (v14 >>> 16) | (v14 << 16);
    v9 = (v9 + v14) | 0; v4 ^= v9; v4 = (v4 >>> 12) | (v4 << 20);
    v3 = (v3 + v4 + m[ORDER[at + 15]]) | 0; v14 ^= v3; v14 = (v14 >>> 8) | (v14 << 24);
    v9 = (v9 + v14) | 0; v4 ^= v9; v4 = (v4 >>> 7) | (v4 << 25);
  }
  cv[0] = v0 ^ v8; cv[1] = v1 ^ v9; cv[2] = v2 ^ v10; cv[3] = v3 ^ v11;
  cv[4] = v4 ^ v12; cv[5] = v5 ^ v13; cv[6] = v6 ^ v14; cv[7] = v7 ^ v15;
}
