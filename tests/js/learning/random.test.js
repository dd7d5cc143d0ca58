import assert from "node:assert/strict";
import { test } from "node:test";

import { Generator, permutation, trainingSeed } from "#web/phone/learning/random.js";

import { VECTORS } from "./vectors.js";

for (const { seed, n, orders } of VECTORS.permutations) {
  test(`the orders of ${n} from the seed ${seed} are NumPy's`, () => {
    const random = new Generator(BigInt(seed));
    assert.deepEqual([...random.permutation(n)], orders[0]);
    assert.deepEqual([...random.permutation(n)], orders[1]);
    assert.deepEqual([...permutation(BigInt(seed), n)], orders[0]);
  });
}

test("a seed may be a number", () => {
  assert.deepEqual(permutation(5, 100), permutation(5n, 100));
});

for (const { seed, round, name, is } of VECTORS.seeds) {
  test(`the seed of round ${round} for '${name}' is Python's`, async () => {
    assert.equal(await trainingSeed(BigInt(seed), round, name), is);
  });
}
