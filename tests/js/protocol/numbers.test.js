// What a phone computes and signs, as Python does: updates, averages, models as files, requests.
import assert from "node:assert/strict";
import { test } from "node:test";

import { concat, fromHex, hex, u32, utf8 } from "#web/phone/protocol/bytes.js";
import { chainFromBytes, chainToBytes, chainWeights, roundedQuotient, startChain } from "#web/phone/protocol/chain.js";
import { signedHeaders } from "#web/phone/protocol/request.js";
import { littleEndian } from "#web/phone/protocol/ring.js";
import { readSafetensors } from "#web/phone/protocol/safetensors.js";
import { sharesTask } from "#web/phone/protocol/settings.js";
import { rint } from "#web/phone/protocol/steps.js";
import { encodeUpdate } from "#web/phone/protocol/upload.js";
import { altered, definitionOf, keysFrom, refuses, vectors } from "./support.js";

const { updates, quotients, requests, safetensors, signing } = vectors("phone_updates");

/** @param {string} digits */
const doubles = (digits) => new Float64Array(fromHex(digits).buffer);
/** @param {string} digits */
const integers = (digits) => new BigInt64Array(fromHex(digits).buffer);

/** @param {Record<string, any>} settings @param {number} parameters */
function taskOf(settings, parameters) {
  const given = { profile: "shares", max_samples: 1000, max_participants: 3, ...settings };
  return sharesTask(definitionOf({ task: "0".repeat(64), settings: given, parameters }));
}

for (const given of updates) {
  test(`an update, ${given.name}, becomes the integers that Python shares`, () => {
    const weights = integers(given.model);
    const task = taskOf(given.settings, weights.length);
    const start = { number: 0, base: new Uint8Array(32), secret: new Uint8Array(32), weights, moments: [] };
    const made = encodeUpdate(task, start, doubles(given.weights), given.samples);
    assert.equal(hex(littleEndian(made.integers)), given.integers);
    assert.equal(made.clipped, given.clipped);
    assert.deepEqual(made.scaled, given.scaled && doubles(given.scaled)[0]);
  });
}

test("an update that cannot be encoded is refused by name", async () => {
  const task = taskOf({}, 2);
  const chain = await startChain(task, new Float64Array(2));
  const encode = (/** @type {number[]} */ weights, /** @type {number} */ samples) => () =>
    encodeUpdate(task, chain, Float64Array.from(weights), samples);
  await refuses("NotFinite", encode([NaN, 0], 1));
  await refuses("NotFinite", encode([0, -Infinity], 1));
  await refuses("LengthMismatch", encode([0], 1));
  await refuses("LengthMismatch", encode([0, 0, 0], 1));
  await refuses("NothingToContribute", encode([0, 0], 0));
  await refuses("SlotOverflow", encode([0, 0], 1001));
  await refuses("SlotOverflow", encode([0, 0], -1));
  await refuses("SlotOverflow", encode([0, 0], 1.5));
  await refuses("SlotOverflow", encode([0, 0], NaN));
});

test("halves go to the even number, as NumPy's rint", () => {
  const said = [[0.5, 0], [1.5, 2], [2.5, 2], [-0.5, 0], [-1.5, -2], [-2.5, -2], [0.49999999999999994, 0],
    [4503599627370495.5, 4503599627370496], [2.5000000000000004, 3], [-7, -7], [2 ** 53 - 1, 2 ** 53 - 1]];
  for (const [value, nearest] of said) assert.ok(rint(value) === nearest, String(value));
});

test("sums are divided to the nearest integer, halves to the even one", () => {
  const sums = BigInt64Array.from(quotients.sums, BigInt);
  for (const total of ["2", "3", "10", "999999937"]) {
    assert.deepEqual([...roundedQuotient(sums, BigInt(total))].map(String), quotients[total]);
  }
});

test("the initial weights start the chain", async () => {
  const task = taskOf({ decimals: 3 }, 4);
  const chain = await startChain(task, Float64Array.of(0.0005, 0.0015, -1.25, 7));
  assert.deepEqual([chain.number, [...chain.weights]], [0, [0n, 2n, -1250n, 7000n]]);
  assert.deepEqual([...chainWeights(chain, task.unit)], [0, 0.002, -1.25, 7]);
  await refuses("NotFinite", () => startChain(task, Float64Array.of(0, 0, NaN, 0)));
  await refuses("SlotOverflow", () => startChain(task, Float64Array.of(0, 0, 1e16, 0)));
  await refuses("SlotOverflow", () => startChain(task, Float64Array.of(0, 0, -1.7e308, 0)));
  await refuses("LengthMismatch", () => startChain(task, new Float64Array(3)));
});

test("a chain survives being kept, and one of another length is refused", async () => {
  const task = taskOf({}, 2);
  const chain = { ...(await startChain(task, Float64Array.of(-1, 1))), number: 77 };
  const kept = chainToBytes(chain);
  assert.equal(kept.length, 4 + 64 + 16);
  assert.deepEqual(kept.slice(0, 4), u32(77));
  assert.deepEqual(chainFromBytes(kept, task), chain);
  assert.deepEqual(chainFromBytes(new Uint8Array([9, ...kept]).subarray(1), task), chain);
  for (const wrong of [kept.slice(1), kept.slice(0, -8), new Uint8Array(0), new Uint8Array(52)]) {
    await refuses("FormatError", () => chainFromBytes(wrong, task));
  }
});

for (const { method, target, body, time, headers } of requests) {
  test(`a ${method} request is signed as Python signs it`, async () => {
    const keys = await keysFrom(signing, "11".repeat(32));
    assert.deepEqual(await signedHeaders(keys, method, target, fromHex(body), time + 0.9), headers);
  });
}

test("a request without a sensible time is not signed", async () => {
  const keys = await keysFrom(signing, "11".repeat(32));
  for (const time of [NaN, -1, 1e13, Infinity]) {
    await refuses("FormatError", () => signedHeaders(keys, "GET", "/", new Uint8Array(0), time));
  }
});

for (const { name, file, weights } of safetensors.models) {
  test(`a model is read from its file, ${name}`, () => {
    assert.equal(hex(new Uint8Array(readSafetensors(fromHex(file), safetensors.arrays).buffer)), weights);
  });
}

for (const { name, file, error } of safetensors.bad) {
  test(`a model's file with ${name} is refused: ${error}`, () =>
    refuses(error, () => readSafetensors(fromHex(file), safetensors.arrays)));
}

test("a model's file that was cut off or altered in its header is refused by name, or gives the same weights", () => {
  for (const { file, weights } of safetensors.models) {
    const whole = fromHex(file);
    const headerEnd = 8 + new DataView(whole.buffer).getUint32(0, true);
    for (let place = 0; place < whole.length; place += 1) {
      const changed = place < headerEnd ? [1, 4, 16, 128].map((flip) => altered(whole, place, flip)) : [];
      for (const bytes of [whole.slice(0, place), ...changed]) requireSame(bytes, weights, place);
    }
  }
});

/** @param {import("#web/phone/protocol/bytes.js").Bytes} bytes @param {string} weights @param {number} place */
function requireSame(bytes, weights, place) {
  try {
    assert.equal(hex(new Uint8Array(readSafetensors(bytes, safetensors.arrays).buffer)), weights, `byte ${place}`);
  } catch (/** @type {any} */ error) {
    assert.ok(["FormatError", "ModelMismatch"].includes(error.name), `byte ${place}: ${error.stack}`);
  }
}

test("a header of a few bytes that announces gigabytes takes no memory", async () => {
  const shape = /** @type {[string, number[]][]} */ ([["w", [1_000_000_000]]]);
  const header = utf8(JSON.stringify({ w: { dtype: "F64", shape: [1e9], data_offsets: [0, 8e9] } }));
  const bytes = concat(Uint8Array.of(header.length, 0, 0, 0, 0, 0, 0, 0), header, new Uint8Array(8));
  const before = process.memoryUsage().arrayBuffers;
  await refuses("FormatError", () => readSafetensors(bytes, shape));
  assert.ok(process.memoryUsage().arrayBuffers - before < 2 ** 20);
});
