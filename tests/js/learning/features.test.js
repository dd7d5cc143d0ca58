import assert from "node:assert/strict";
import { test } from "node:test";

import { features } from "#web/phone/learning/features.js";

import { assertNear, VECTORS } from "./vectors.js";

for (const { shape: [count, length, channels], windows, motion } of VECTORS.features) {
  test(`the features of ${count} windows of ${length} by ${channels} are Python's`, () => {
    const made = features("motion", { values: Float32Array.from(windows), count, length, channels });
    assertNear(made, motion, 1e-5);
  });
}

test("flat features are the samples themselves", () => {
  const values = Float32Array.of(1, 2, 3, 4);
  assert.deepEqual(features("flat", { values, count: 1, length: 2, channels: 2 }), values);
});
