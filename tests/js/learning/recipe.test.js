import assert from "node:assert/strict";
import { test } from "node:test";

import { makeLearner } from "#web/phone/learning/learners.js";
import { inputs, modelShape, parseRecipe, requireBearable } from "#web/phone/learning/recipe.js";

import { VECTORS } from "./vectors.js";

for (const { training, cut, how, inputs: width, shape } of VECTORS.recipes.good) {
  test(`a recipe is read as Python reads it: ${JSON.stringify(training)}`, () => {
    const recipe = parseRecipe(training);
    assert.deepEqual([recipe.windowSamples, recipe.step, recipe.heldOut, recipe.gap, recipe.hertz], cut);
    assert.deepEqual([recipe.epochs, recipe.batch, recipe.rate, String(recipe.seed)], how);
    assert.equal(inputs(recipe), width);
    assert.deepEqual(modelShape(recipe), shape);
  });
}

/** Python also guesses what was meant, and writes large numbers out. @param {string} message */
const comparable = (message) => message.replaceAll(/ \(did you mean `\w+`\?\)/g, "").replace(/is \d{20,}|is [\d.]+e\+\d+/, "is large")
  .replace(/^\[training\]: /, "");

for (const { training, error, message } of VECTORS.recipes.bad) {
  test(`a wrong recipe is refused as Python refuses it: ${JSON.stringify(training)}`, () => {
    assert.throws(() => parseRecipe(training), (/** @type {any} */ thrown) => {
      assert.equal(thrown.name, error);
      assert.equal(comparable(thrown.message), comparable(message));
      return true;
    });
  });
}

for (const [change, said] of /** @type {[object, RegExp][]} */ ([
  [{ learner: "conv", features: "flat" }, /convolutional/],
  [{ learner: "pkg.nets:Net" }, /own code \(pkg\.nets:Net\)/],
  [{ layers: ["conv 8 9", "relu", "pool 4", 4], features: "flat" }, /convolutional/],
  [{ learner: "mine.forest:Forest", features: "windows" }, /own code \(mine\.forest:Forest\), which a web page does not run/],
  [{ learner: "torch functions" }, /own code \(torch functions\)/],
  [{ target: "value" }, /learns values, and this page learns labels only/],
  [{ target: "value", loss: "huber" }, /learns values/],
  [{ loss: "mine.losses:focal" }, /names a loss, and this page knows the cross entropy only/],
  [{ features: "windows" }, /feeds whole windows/],
])) {
  test(`what this page cannot train is refused with words: ${JSON.stringify(change)}`, () => {
    assert.throws(() => parseRecipe({ labels: ["a", "b"], ...change }), { name: "UnsupportedTask", message: said });
  });
}

for (const training of [null, undefined, [], "labels", 3]) {
  test(`what is not a table is refused: ${JSON.stringify(training)}`, () => {
    assert.throws(() => parseRecipe(training), { name: "SettingsError", message: /expected a table/ });
  });
}

test("a number without a value is refused", () => {
  for (const rate of [NaN, Infinity]) {
    assert.throws(() => parseRecipe({ labels: ["a"], rate }), { name: "SettingsError", message: /`rate` is (nan|inf); expected/ });
  }
});

test("names that every object has are unknown settings too", () => {
  const training = JSON.parse('{"labels": ["a"], "__proto__": {"epochs": 1}, "toString": 2}');
  assert.throws(() => parseRecipe(training), { name: "SettingsError", message: /unknown setting `__proto__`, `toString`/ });
});

test("what stands beside the usual training is read", () => {
  const training = { labels: ["a", "b"], features: "spectral", scale_inputs: true, proximal: 1, target: "label", loss: null };
  const { features, scaleInputs, proximal } = parseRecipe(training);
  assert.deepEqual([features, scaleInputs, proximal], ["spectral", true, 1]);
  const usual = parseRecipe({ labels: ["a", "b"] });
  assert.deepEqual([usual.features, usual.scaleInputs, usual.proximal], ["motion", false, 0]);
});

test("a seed may be larger than a double holds", () => {
  assert.equal(parseRecipe({ labels: ["a"], seed: 2n ** 63n - 1n }).seed, 2n ** 63n - 1n);
  assert.throws(() => parseRecipe({ labels: ["a"], seed: 2n ** 63n }), { name: "SettingsError" });
});

test("a learner of another shape than the task's is refused, and the array named", () => {
  const recipe = parseRecipe({ labels: ["a", "b"], layers: [3], channels: 1 });
  const shape = modelShape(recipe);
  assert.throws(() => makeLearner(recipe, shape.slice(0, 3)), { name: "ModelMismatch", message: /nothing where training makes '2\.bias' of 2/ });
  assert.throws(() => makeLearner(recipe, [["0.weight", [3, 8]], ...shape.slice(1)]), { name: "ModelMismatch", message: /'0\.weight' of 3 x 8/ });
  assert.throws(() => makeLearner(recipe, shape).load(new Float64Array(3)), { name: "ModelMismatch" });
});

test("what people ask of phones is bearable", () => {
  for (const { training } of VECTORS.recipes.good.filter((/** @type {any} */ { training: { epochs = 20 } }) => epochs <= 100)) requireBearable(parseRecipe(training));
  requireBearable(parseRecipe({ labels: ["1", "2", "3", "4", "5", "6"], layers: [1000], channels: 6, window_samples: 45, features: "flat", epochs: 200 }));
  requireBearable(parseRecipe({ labels: ["a", "b"], learner: "softmax", epochs: 10_000, batch: 1e18 }));
});

for (const change of [
  { layers: Array(200_000).fill("relu") },
  { layers: Array(101).fill(1) },
  { labels: Array.from({ length: 100_000 }, (_, place) => `${place}`), learner: "softmax" },
  { labels: ["a".repeat(900_000), "b"] },
  { hertz: 1e18 },
  { epochs: 10_000, layers: [10_000] },
  { layers: [10_000, 10_000, 10_000] },
  { batch: 1e18, layers: [1_000_000], epochs: 1 },
  { window_samples: 10_000, channels: 10_000, features: "flat", layers: [1], epochs: 10_000 },
]) {
  test(`a recipe that would never end, or fill the memory, is refused: ${JSON.stringify(change).slice(0, 60)}`, () => {
    assert.throws(() => requireBearable(parseRecipe({ labels: ["a", "b"], ...change })), { name: "UnsupportedTask", message: /too much for a page/ });
  });
}

test("a label that would turn the page's own words around is refused", () => {
  for (const label of ["walk\u202eing", "\u2067sit", "a\u0000"]) {
    assert.throws(() => requireBearable(parseRecipe({ labels: [label] })), { name: "UnsupportedTask", message: /turn text around/ });
  }
});
