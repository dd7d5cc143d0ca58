import assert from "node:assert/strict";
import { test } from "node:test";

import { fed } from "#web/phone/learning/jobs.js";
import { parseRecipe } from "#web/phone/learning/recipe.js";
import { roundToEven, splitRecordings } from "#web/phone/learning/recordings.js";

import { assertNear, VECTORS } from "./vectors.js";

/** @param {any} raw */
const recording = ({ label, times, signal, channels, answers = {} }, id = "r") =>
  ({ id, label, times: Float64Array.from(times), signal: Float64Array.from(signal), channels, answers });

for (const { name, training, recordings, ...sides } of VECTORS.splits) {
  test(`windows are Python's: ${name}`, () => {
    const recipe = parseRecipe(training);
    const split = splitRecordings(recordings.map(recording), recipe);
    for (const side of /** @type {const} */ (["train", "heldOut"])) {
      const { windows, labels } = split[side];
      assert.deepEqual([...labels], sides[side].labels);
      assert.deepEqual([windows.count, windows.length, windows.channels], [labels.length, recipe.windowSamples, windows.channels]);
      assertNear(windows.values, sides[side].windows, 1e-6);
      assertNear(fed(split, recipe)[side].inputs, sides[side].inputs, 2e-5);
    }
  });
}

const RECIPE = parseRecipe({ labels: ["sit", "walk"], channels: 1, window_samples: 5, hertz: 10, learner: "softmax" });

/** @param {string} label @param {number} count */
const even = (label, count) => recording({
  label, times: Array.from({ length: count }, (_, at) => at / 10), signal: Array.from({ length: count }, (_, at) => at), channels: 1,
});

test("too little to train on is said as nothing to contribute", () => {
  assert.throws(() => splitRecordings([], RECIPE), { name: "NothingToContribute", message: /no recordings/ });
  assert.throws(() => splitRecordings([even("sit", 4)], RECIPE), { name: "NothingToContribute", message: /record longer/ });
  assert.throws(() => splitRecordings([even("swim", 40)], RECIPE), { name: "NothingToContribute", message: /none of the labels swim/ });
});

test("a recording of other channels is refused", () => {
  const other = recording({ label: "sit", times: [0, 1], signal: [1, 2, 3, 4], channels: 2 });
  assert.throws(() => splitRecordings([other], RECIPE), { name: "DataMalformed", message: /2 channels, the task's have 1/ });
});

test("a recording that does not fit itself is refused", () => {
  for (const [times, signal] of [[[0, 1], [1]], [[0, NaN], [1, 2]], [[0, 1], [1, Infinity]], [[0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], Array(7).fill(1e300)]]) {
    const broken = recording({ label: "sit", times, signal, channels: 1 });
    assert.throws(() => splitRecordings([broken], RECIPE), { name: "DataMalformed" });
  }
});

test("no sample is on both sides", () => {
  const { train, heldOut } = splitRecordings([even("walk", 200)], RECIPE);
  const latest = Math.max(...train.windows.values);
  assert.ok(heldOut.labels.length > 0);
  assert.ok(Math.min(...heldOut.windows.values) > latest + RECIPE.gap - 1);
});

test("a label is found whatever its case", () => {
  const { train } = splitRecordings([even("WALK", 40)], RECIPE);
  assert.deepEqual(new Set(train.labels), new Set([1]));
});

test("halves are rounded to even numbers", () => {
  assert.deepEqual([0.5, 1.5, 2.5, 2.4999, 2.5001, 7].map(roundToEven), [0, 2, 2, 2, 3, 7]);
});

test("windows that overlap so much that they would fill the memory are refused with words", () => {
  const greedy = parseRecipe({ labels: ["sit"], channels: 1, window_samples: 10_000, step: 1, hertz: 10 });
  assert.throws(() => splitRecordings([even("sit", 40_000)], greedy), { name: "DataMalformed", message: /more than this phone can hold/ });
});
