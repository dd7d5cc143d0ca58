// What every learner shares: the order of the batches, progress, and scores.
import { DataMalformed, ModelMismatch, SettingsError } from "../protocol/errors.js";
import { Generator as RandomNumbers } from "./random.js";

/** @typedef {{ epoch: number, done: number, of: number }} Progress Batches done of all; `epoch` counts from 1. */
/** @typedef {{ accuracy: number, loss: number, samples: number }} Scores */

/**
 * @typedef {object} Training How to train in one round. The same settings, weights and data give the same result.
 * @property {number} epochs
 * @property {number} batch
 * @property {number} rate
 * @property {number | bigint} seed
 * @property {number} [proximal] FedProx's mu: how strongly weights are drawn back to those that training starts from.
 * @property {(epoch: number) => void} [onEpoch] Called after each, from 1 on.
 * @property {(progress: Progress) => void} [onBatch]
 */

/**
 * @typedef {object} Learner
 * @property {(flat: Float64Array) => void} load All parameters in one row, in the order of the task's shape.
 * @property {() => Float64Array} weights
 * @property {(inputs: Float32Array, labels: Int32Array, training: Training) => Generator<Progress, number>} steps A batch each time.
 * @property {(inputs: Float32Array, labels: Int32Array, training: Training) => number} train How many samples were used.
 * @property {(inputs: Float32Array, labels: Int32Array) => Scores} evaluate
 */

const TINY = 2.2250738585072014e-308; // the smallest normal number; keeps the logarithm finite

/** Train on every batch. Every epoch has an order of its own, the same for each kind of learner.
 * @param {number} samples @param {Training} training @param {(batch: Int32Array) => void} trainOn
 * @returns {Generator<Progress, number>}
 */
export function* overBatches(samples, { epochs, batch, rate, seed, proximal = 0, onEpoch, onBatch }, trainOn) {
  if (!(epochs >= 0 && batch >= 1 && rate > 0 && rate < Infinity)) {
    throw new SettingsError("training needs epochs >= 0, a batch >= 1 and a rate > 0");
  }
  if (!(proximal >= 0 && proximal < Infinity)) throw new SettingsError("training needs proximal >= 0");
  const random = new RandomNumbers(seed);
  const of = epochs * Math.ceil(samples / batch);
  for (let epoch = 1, done = 0; epoch <= epochs; epoch++) {
    const order = random.permutation(samples);
    for (let start = 0; start < samples; start += batch) {
      trainOn(order.subarray(start, start + batch));
      const progress = { epoch, done: ++done, of };
      onBatch?.(progress);
      yield progress;
    }
    onEpoch?.(epoch);
  }
  return samples;
}

/** Run to the end. @template T @param {Generator<unknown, T>} steps */
export function finished(steps) {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return /** @type {T} */ (value);
  }
}

/** @param {Float32Array} inputs @param {Int32Array} labels @param {number} width @param {number} classes */
export function requirePairs(inputs, labels, width, classes) {
  if (inputs.length !== labels.length * width) {
    throw new DataMalformed(`${inputs.length} inputs do not match ${labels.length} labels: the model takes ${width} inputs per sample`);
  }
  if (!labels.every((label) => label >= 0 && label < classes)) throw new DataMalformed(`a label is outside 0 to ${classes - 1}`);
}

/** @param {Float64Array} flat @param {number} parameters */
export function requireParameters(flat, parameters) {
  if (flat.length !== parameters) {
    throw new ModelMismatch(`the model has ${parameters} parameters, the row has ${flat.length}`);
  }
}

/** Scores in place become probabilities. @param {Float64Array} scores */
export function softmax(scores) {
  const highest = scores.reduce((most, score) => Math.max(most, score), -Infinity); // the shift cancels and keeps exp finite
  let sum = 0;
  for (let place = 0; place < scores.length; place++) sum += scores[place] = Math.exp(scores[place] - highest);
  for (let place = 0; place < scores.length; place++) scores[place] /= sum;
}

/** Accuracy and the mean negative log-likelihood, from one sample's probabilities after the other. */
export class ScoreSum {
  #right = 0;
  #loss = 0;
  #samples = 0;

  /** @param {Float64Array} probabilities @param {number} label */
  add(probabilities, label) {
    let best = 0;
    for (let place = 1; place < probabilities.length; place++) if (probabilities[place] > probabilities[best]) best = place;
    this.#right += Number(best === label);
    this.#loss -= Math.log(Math.max(probabilities[label], TINY));
    this.#samples++;
  }

  /** @returns {Scores} */
  scores() {
    if (!this.#samples) throw new DataMalformed("there is nothing to evaluate on: no samples are held out");
    return { accuracy: this.#right / this.#samples, loss: this.#loss / this.#samples, samples: this.#samples };
  }
}
