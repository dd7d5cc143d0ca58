import assert from "node:assert/strict";
import { test } from "node:test";

import { makeLearner } from "#web/phone/learning/learners.js";
import { trainingSeed } from "#web/phone/learning/random.js";
import { modelShape, parseRecipe } from "#web/phone/learning/recipe.js";

import { assertNear, VECTORS } from "./vectors.js";

/** @param {any} ends */
const startOf = ({ ends }) => Float64Array.from(ends[0].weights);

for (const each of VECTORS.trainings) {
  const recipe = parseRecipe(each.training);
  const [inputs, labels] = [Float32Array.from(each.inputs), Int32Array.from(each.labels)];

  for (const { epochs, weights, accuracy, loss } of each.ends) {
    test(`${each.name}: after ${epochs} epochs the weights and scores are Python's`, async () => {
      const learner = makeLearner(recipe, modelShape(recipe));
      learner.load(startOf(each));
      const seed = await trainingSeed(recipe.seed, 2, "p");
      assert.equal(learner.train(inputs, labels, { epochs, batch: recipe.batch, rate: recipe.rate, proximal: recipe.proximal, seed }), labels.length);
      assertNear(learner.weights(), weights, 1e-4);
      const scores = learner.evaluate(inputs, labels);
      assertNear([scores.accuracy, scores.loss], [accuracy, loss], 1e-4);
      assert.equal(scores.samples, labels.length);
    });
  }
}

const CASE = VECTORS.trainings.find((/** @type {any} */ { name }) => name === "one hidden layer");
const RECIPE = parseRecipe(CASE.training);
const [INPUTS, LABELS] = [Float32Array.from(CASE.inputs), Int32Array.from(CASE.labels)];
const HOW = { epochs: 2, batch: 16, rate: 0.005, seed: 3 };

function started() {
  const learner = makeLearner(RECIPE, modelShape(RECIPE));
  learner.load(startOf(CASE));
  return learner;
}

test("a learner that is used again gives the same", () => {
  const learner = started();
  learner.train(INPUTS, LABELS, HOW);
  const first = learner.weights();
  learner.load(startOf(CASE));
  learner.train(INPUTS, LABELS, HOW);
  assert.deepEqual(learner.weights(), first);
});

test("FedProx holds the weights nearer to their start, which is that of each training", () => {
  const distance = (/** @type {Float64Array} */ weights) => Math.hypot(...weights.map((weight, at) => weight - startOf(CASE)[at]));
  const [free, held] = [started(), started()];
  free.train(INPUTS, LABELS, HOW);
  held.train(INPUTS, LABELS, { ...HOW, proximal: 10 });
  const first = held.weights();
  assert.ok(distance(first) < 0.9 * distance(free.weights()));
  held.load(startOf(CASE));
  held.train(INPUTS, LABELS, { ...HOW, proximal: 10 });
  assert.deepEqual(held.weights(), first);
});

test("evaluating between epochs changes nothing", () => {
  const [one, other] = [started(), started()];
  one.train(INPUTS, LABELS, HOW);
  other.train(INPUTS, LABELS, { ...HOW, onEpoch: () => { other.evaluate(INPUTS, LABELS); } });
  assert.deepEqual(one.weights(), other.weights());
});

test("progress counts every batch and every epoch", () => {
  /** @type {import("#web/phone/learning/training.js").Progress[]} */
  const batches = [];
  /** @type {number[]} */
  const epochs = [];
  started().train(INPUTS, LABELS, { ...HOW, onBatch: (progress) => batches.push(progress), onEpoch: (epoch) => epochs.push(epoch) });
  assert.deepEqual(epochs, [1, 2]);
  assert.deepEqual(batches.map(({ done }) => done), [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual(batches.at(4), { epoch: 2, done: 5, of: 8 });
});

test("training stops between two batches when nobody asks for more", () => {
  const learner = started();
  const steps = learner.steps(INPUTS, LABELS, HOW);
  steps.next();
  const after = learner.weights();
  steps.return(0);
  assert.deepEqual(learner.weights(), after);
  assert.notDeepEqual(after, startOf(CASE));
});

test("data that does not fit is refused", () => {
  const learner = started();
  assert.throws(() => learner.train(INPUTS.subarray(1), LABELS, HOW), { name: "DataMalformed" });
  assert.throws(() => learner.evaluate(INPUTS, LABELS.map((label) => label + 1)), { name: "DataMalformed", message: /outside 0 to 2/ });
  assert.throws(() => learner.evaluate(new Float32Array(), new Int32Array()), { name: "DataMalformed", message: /nothing to evaluate/ });
  assert.throws(() => learner.train(INPUTS, LABELS, { ...HOW, rate: 0 }), { name: "SettingsError" });
  assert.throws(() => learner.train(INPUTS, LABELS, { ...HOW, proximal: -1 }), { name: "SettingsError" });
});
