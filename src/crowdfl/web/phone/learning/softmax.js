// Softmax regression by gradient descent in double precision, as crowdfl.learning.models.learner.
import { finished, overBatches, requirePairs, requireParameters, ScoreSum, softmax } from "./training.js";

/** @typedef {import("./training.js").Training} Training */

export class SoftmaxLearner {
  #inputs;
  #labels;
  #matrix; // (inputs, labels)
  #bias;

  /** @param {number} inputs @param {number} labels */
  constructor(inputs, labels) {
    this.#inputs = inputs;
    this.#labels = labels;
    this.#matrix = new Float64Array(inputs * labels);
    this.#bias = new Float64Array(labels);
  }

  /** @param {Float64Array} flat */
  load(flat) {
    requireParameters(flat, this.#matrix.length + this.#bias.length);
    this.#matrix.set(flat.subarray(0, this.#matrix.length));
    this.#bias.set(flat.subarray(this.#matrix.length));
  }

  weights() {
    const flat = new Float64Array(this.#matrix.length + this.#bias.length);
    flat.set(this.#matrix);
    flat.set(this.#bias, this.#matrix.length);
    return flat;
  }

  /** @param {Float32Array} inputs @param {Int32Array} labels @param {Training} training */
  *steps(inputs, labels, training) {
    requirePairs(inputs, labels, this.#inputs, this.#labels);
    const errors = new Float64Array(Math.min(training.batch, labels.length) * this.#labels);
    const start = training.proximal ? this.weights() : null;
    return yield* overBatches(labels.length, training, (batch) => {
      this.#predictErrors(inputs, labels, batch, errors);
      if (start) this.#drawBack(start, training.rate * (training.proximal ?? 0));
      this.#descend(inputs, batch, training.rate, errors);
    });
  }

  /** @param {Float32Array} inputs @param {Int32Array} labels @param {Training} training */
  train(inputs, labels, training) {
    return finished(this.steps(inputs, labels, training));
  }

  /** @param {Float32Array} inputs @param {Int32Array} labels */
  evaluate(inputs, labels) {
    requirePairs(inputs, labels, this.#inputs, this.#labels);
    const sum = new ScoreSum();
    const probabilities = new Float64Array(this.#labels);
    labels.forEach((label, sample) => {
      this.#predict(inputs, sample, probabilities);
      sum.add(probabilities, label);
    });
    return sum.scores();
  }

  /** @param {Float32Array} inputs @param {number} sample @param {Float64Array} into Takes the probability of each label. */
  #predict(inputs, sample, into) {
    const [width, labels] = [this.#inputs, this.#labels];
    into.set(this.#bias);
    for (let input = 0; input < width; input++) {
      const value = inputs[sample * width + input];
      for (let label = 0; label < labels; label++) into[label] += value * this.#matrix[input * labels + label];
    }
    softmax(into);
  }

  /**
   * The loss's gradient before the matrix.
   * @param {Float32Array} inputs @param {Int32Array} labels @param {Int32Array} batch @param {Float64Array} errors
   */
  #predictErrors(inputs, labels, batch, errors) {
    for (let place = 0; place < batch.length; place++) {
      const error = errors.subarray(place * this.#labels, (place + 1) * this.#labels);
      this.#predict(inputs, batch[place], error);
      error[labels[batch[place]]] -= 1;
    }
  }

  /** FedProx: a step towards where training started. @param {Float64Array} start @param {number} share */
  #drawBack(start, share) {
    const [matrix, bias] = [this.#matrix, this.#bias];
    for (let at = 0; at < matrix.length; at++) matrix[at] -= share * (matrix[at] - start[at]);
    for (let at = 0; at < bias.length; at++) bias[at] -= share * (bias[at] - start[matrix.length + at]);
  }

  /** @param {Float32Array} inputs @param {Int32Array} batch @param {number} rate @param {Float64Array} errors */
  #descend(inputs, batch, rate, errors) {
    const step = rate / batch.length;
    for (let place = 0; place < batch.length; place++) this.#add(inputs, batch[place], errors, place * this.#labels, -step);
  }

  /**
   * @param {Float32Array} inputs @param {number} sample @param {Float64Array} errors @param {number} at @param {number} step
   */
  #add(inputs, sample, errors, at, step) {
    const [width, labels] = [this.#inputs, this.#labels];
    for (let label = 0; label < labels; label++) this.#bias[label] += step * errors[at + label];
    for (let input = 0; input < width; input++) {
      const value = step * inputs[sample * width + input];
      for (let label = 0; label < labels; label++) this.#matrix[input * labels + label] += value * errors[at + label];
    }
  }
}
