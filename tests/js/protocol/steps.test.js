// Every case of vectors/server_steps.json: what Python readers come to, this page does too, bit for bit.
import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex, hex } from "#web/phone/protocol/bytes.js";
import { after, chainFromBytes, chainToBytes, startChain, stateDigest } from "#web/phone/protocol/chain.js";
import { littleEndian } from "#web/phone/protocol/ring.js";
import { sharesTask } from "#web/phone/protocol/settings.js";
import { definitionOf, refuses, vectors } from "./support.js";

const { task: name, cases, bad } = vectors("server_steps");
/** @type {[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]} */
const HASHES = [new Uint8Array(32), new Uint8Array(32)];
const STEP = { server_step: "fedadam", server_rate: 1, server_momentum: 0.9, server_squares: 0.99, server_floor: 0.001 };

/** @param {Record<string, any>} settings @param {number} parameters */
const taskOf = (settings, parameters) =>
  sharesTask(definitionOf({ task: name, settings: { profile: "shares", clip: 1000, ...settings }, parameters }));

/** @param {string[]} values */
const integers = (values) => BigInt64Array.from(values, BigInt);

/** @param {import("#web/phone/protocol/chain.js").Chain} chain */
async function said(chain) {
  const moments = chain.moments.map((moment) => hex(littleEndian(moment)));
  return { weights: [...chain.weights].map(String), moments, chain: hex(chainToBytes(chain)), state: await stateDigest(chain) };
}

for (const { name: words, settings, start, rounds } of cases) {
  test(`${words}: each round from what was kept of the one before it`, async () => {
    const task = taskOf(settings, start.weights.length);
    const first = await startChain(task, new Float64Array(start.weights.length));
    let chain = { ...first, weights: integers(start.weights) };
    assert.deepEqual(await said(chain), start);
    for (const { round, base, secret, change, average: _, ...expected } of rounds) {
      const kept = chainFromBytes(chainToBytes(chain), task);
      chain = after(task, kept, round, fromHex(base), fromHex(secret), integers(change));
      assert.deepEqual(await said(chain), expected);
    }
  });
}

for (const { name: words, settings, chain, change, error } of bad) {
  test(`${words} is refused: ${error}`, () => refuses(error, () => {
    const task = taskOf(settings, 2);
    const kept = chainFromBytes(fromHex(chain), task);
    return after(task, kept, 9, ...HASHES, integers(change));
  }));
}

test("a task without a step takes the average as it is, and carries nothing", async () => {
  const task = taskOf({}, 2);
  assert.equal(task.step, null);
  const chain = after(task, await startChain(task, Float64Array.of(1, -1)), 1, ...HASHES, BigInt64Array.of(5n, -7n));
  assert.deepEqual([[...chain.weights], chain.moments], [[1_000_005n, -1_000_007n], []]);
  await refuses("ChainBroken", () => after(task, chain, 1, ...HASHES, BigInt64Array.of(0n, 0n)));
});

for (const [kind, rate] of [["fedadagrad", 2.2e-6], ["fedyogi", 1.5e-7]]) {
  test(`a step that can just move a weight stands: ${kind}`, () => {
    assert.equal(taskOf({ ...STEP, server_step: kind, server_rate: rate }, 2).step?.kind, kind);
  });
}

for (const [change, words] of /** @type {[Record<string, any>, RegExp][]} */ ([
  [{ server_step: "fednova" }, /`server_step` is missing or out of bounds/],
  [{ server_rate: 0 }, /`server_rate`/],
  [{ server_rate: "1" }, /`server_rate`/],
  [{ server_momentum: 1 }, /`server_momentum`/],
  [{ server_squares: -0.1 }, /`server_squares`/],
  [{ server_squares: 0.81 }, /square of `server_momentum`/],
  [{ server_step: "fedyogi", server_squares: 0.81 }, /square of `server_momentum`/],
  [{ server_floor: 0 }, /`server_floor`/],
  [{ server_rate: 1e-9 }, /stand still/],
  [{ server_step: "fedavgm", server_rate: 1e-11 }, /stand still/],
  [{ server_step: "fedadagrad", server_rate: 2.1e-6 }, /stand still/], // it moves by 0.2294 of the rate
  [{ server_step: "fedyogi", server_rate: 1.4e-7 }, /stand still/], // 3.3978
  [{ server_step: "none", max_norm: 4e-7 }, /stand still/],
  [{ server_floor: undefined }, /`server_floor`/],
])) {
  test(`a step that cannot stand is refused: ${JSON.stringify(change)}`, () => {
    assert.throws(() => taskOf({ ...STEP, ...change }, 2), { name: "DocumentError", message: words });
  });
}
