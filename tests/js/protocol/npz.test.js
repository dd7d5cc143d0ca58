// A model's file may be made to cost a phone its time or memory: it is refused at once.
import assert from "node:assert/strict";
import { test } from "node:test";

import { concat, utf8 } from "#web/phone/protocol/bytes.js";
import { FormatError } from "#web/phone/protocol/errors.js";
import { readNpz } from "#web/phone/protocol/npz.js";

/** @param {...number} numbers Two bytes each. */
const u16 = (...numbers) => Uint8Array.from(numbers.flatMap((number) => [number & 255, number >>> 8]));
/** @param {...number} numbers Four bytes each. */
const u32 = (...numbers) => Uint8Array.from(numbers.flatMap((number) => [0, 8, 16, 24].map((shift) => (number >>> shift) & 255)));
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});
/** @param {Uint8Array} bytes */
const crc = (bytes) => ~bytes.reduce((value, byte) => (value >>> 8) ^ TABLE[(value ^ byte) & 255], ~0) >>> 0;

/** An array's file with any header. @param {string} shape */
function npy(shape) {
  const header = utf8(`{'descr': '<f8', 'fortran_order': False, 'shape': ${shape}, }\n`);
  return concat(Uint8Array.of(0x93), utf8("NUMPY"), Uint8Array.of(1, 0), u16(header.length), header, new Uint8Array(8));
}

/** A ZIP file with `count` names for one member, stored as it is. @param {Uint8Array} member @param {number} [count] */
function zip(member, count = 1) {
  const sizes = u32(crc(member), member.length, member.length);
  const names = Array.from({ length: count }, (_, i) => utf8(`arr_${i}.npy`));
  const local = concat(u32(0x04034b50), u16(20, 0, 0, 0, 0), sizes, u16(names[0].length, 0), names[0], member);
  const entries = names.map((name) =>
    concat(u32(0x02014b50), u16(20, 20, 0, 0, 0, 0), sizes, u16(name.length, 0, 0, 0, 0), u32(0, 0), name));
  const directory = concat(...entries);
  return concat(local, directory, u32(0x06054b50), u16(0, 0, count, count), u32(directory.length, local.length), u16(0));
}

test("an array in such a file is read", async () => {
  assert.deepEqual(await readNpz(zip(npy("(1,)")), [["w", [1]]]), new Float64Array(1));
});

test("a header of many digits is refused at once", { timeout: 60_000 }, async () => {
  for (const shape of [`(${"1".repeat(400)}x)`, `(${"1".repeat(400)}`, `(${"1, ".repeat(130)}x)`, "(,)", "(1,,)", "(1 1)"]) {
    await assert.rejects(readNpz(zip(npy(shape)), [["w", [1]]]), FormatError, shape.slice(0, 20));
  }
});

test("many names for the same bytes take the memory of one", async () => {
  const large = new Uint8Array(8 * 1024 * 1024);
  const shape = Array.from({ length: 200 }, (_, i) => /** @type {[string, number[]]} */ ([`w${i}`, [1]]));
  const before = process.memoryUsage().arrayBuffers;
  await assert.rejects(readNpz(zip(large, 200), shape), FormatError);
  assert.ok(process.memoryUsage().arrayBuffers - before < 200 * 1024 * 1024, "each name has its own copy");
});
