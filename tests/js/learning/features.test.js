import assert from "node:assert/strict";
import { test } from "node:test";

import { features, featuresPerWindow, scaled } from "#web/phone/learning/features.js";

import { assertNear, VECTORS } from "./vectors.js";

/** @param {number[]} values @param {number[]} shape */
const windowsOf = (values, [count, length, channels]) => ({ values: Float32Array.from(values), count, length, channels });

for (const { shape, windows, ...made } of VECTORS.features) {
  const [count, length, channels] = shape;
  for (const name of /** @type {const} */ (["motion", "spectral"])) {
    test(`${name} features of ${count} windows of ${length} by ${channels} are Python's`, () => {
      assertNear(features(name, windowsOf(windows, shape)), made[name], 1e-5);
      assert.equal(count * featuresPerWindow(name, length, channels), made[name].length);
    });
  }
}

for (const { features: name, shape, train, heldOut, scaled: [mine, other] } of VECTORS.scalings) {
  test(`${name} inputs are scaled by the training windows as Python scales them`, () => {
    const [own, rest] = [train, heldOut].map((values) => features(name, windowsOf(values, shape)));
    const width = featuresPerWindow(name, shape[1], shape[2]);
    assertNear(scaled(own, own, width), mine, 1e-5);
    assertNear(scaled(rest, own, width), other, 1e-5);
  });
}

test("a number that never changes is 0 after scaling, and never divided by zero", () => {
  assert.deepEqual([...scaled(Float32Array.of(3, 1, 3, 2), Float32Array.of(3, 0, 3, 4), 2)], [0, -0.5, 0, 0]);
});

test("a pure tone stands out at its own frequency, in the channel that has it", () => {
  const [length, channels] = [90, 2];
  const values = Float32Array.from({ length: length * channels }, (_, at) => (at % 2 ? Math.sin((2 * Math.PI * 7 * (at >> 1)) / length) : 0));
  const made = features("spectral", { values, count: 1, length, channels });
  const strongest = made.subarray(0, 60).reduce((best, value, at, all) => (value > all[best] ? at : best), 0);
  assert.equal(strongest, (7 - 1) * channels + 1);
  assertNear(made.subarray(60), [0, 0, 0, Math.SQRT1_2], 1e-6);
});

test("flat features are the samples themselves", () => {
  const values = Float32Array.of(1, 2, 3, 4);
  assert.deepEqual(features("flat", { values, count: 1, length: 2, channels: 2 }), values);
});
