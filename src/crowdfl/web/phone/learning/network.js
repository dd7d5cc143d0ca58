// A stack of linear, relu and tanh layers, trained by Adam on the cross entropy, as crowdfl.learning.models.network.
import { adamFactors, Elementwise, Linear, padded } from "./layers.js";
import { finished, overBatches, requirePairs, requireParameters, ScoreSum, softmax } from "./training.js";

/** @typedef {import("./networks.js").Layer} Layer */
/** @typedef {import("./training.js").Training} Training */

const ROWS = 64; // that are evaluated at a time

/** Room for what each layer gives, and for the loss's slopes by it: made once, so that no batch allocates. */
class Workspace {
  /** @param {number} rows @param {number} inputs @param {readonly { rows: number }[]} layers */
  constructor(rows, inputs, layers) {
    const count = padded(rows);
    this.input = new Float32Array(count * padded(inputs));
    this.outputs = layers.map((layer) => new Float32Array(count * layer.rows));
    this.slopes = layers.map((layer) => new Float32Array(count * layer.rows));
  }

  /** What a layer is fed. @param {number} layer */
  fed(layer) {
    return layer === 0 ? this.input : this.outputs[layer - 1];
  }
}

export class NetworkLearner {
  #inputs;
  #labels;
  #layers;
  #linear;
  #scores; // of one sample

  /**
   * @param {number} inputs @param {number} labels @param {readonly Layer[]} stack The last is linear, with one output per label.
   */
  constructor(inputs, labels, stack) {
    this.#inputs = inputs;
    this.#labels = labels;
    this.#layers = layersOf(inputs, stack);
    this.#linear = this.#layers.filter((layer) => layer instanceof Linear);
    this.#scores = new Float64Array(labels);
  }

  get #parameters() {
    return this.#linear.reduce((sum, layer) => sum + layer.parameters, 0);
  }

  /** @param {Float64Array} flat */
  load(flat) {
    requireParameters(flat, this.#parameters);
    this.#eachPart(flat, (layer, part) => layer.load(part));
  }

  weights() {
    const flat = new Float64Array(this.#parameters);
    this.#eachPart(flat, (layer, part) => layer.save(part));
    return flat;
  }

  /** Adam starts anew in every round. @param {Float32Array} inputs @param {Int32Array} labels @param {Training} training */
  *steps(inputs, labels, training) {
    requirePairs(inputs, labels, this.#inputs, this.#labels);
    const space = new Workspace(Math.min(training.batch, labels.length), this.#inputs, this.#layers);
    for (const layer of this.#linear) layer.forget();
    let step = 0;
    return yield* overBatches(labels.length, training, (batch) => {
      this.#slopes(space, inputs, labels, batch);
      if (training.proximal) for (const layer of this.#linear) layer.drawBack(training.proximal);
      const { pace, spread } = adamFactors(training.rate, ++step);
      for (const layer of this.#linear) layer.step(pace, spread);
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
    const space = new Workspace(ROWS, this.#inputs, this.#layers);
    const order = Int32Array.from(labels.keys());
    for (let start = 0; start < order.length; start += ROWS) {
      const rows = order.subarray(start, start + ROWS);
      const scores = this.#forward(space, inputs, rows);
      rows.forEach((sample, place) => sum.add(this.#predicted(scores, place), labels[sample]));
    }
    return sum.scores();
  }

  /** @param {Float64Array} flat @param {(layer: Linear, part: Float64Array) => void} use */
  #eachPart(flat, use) {
    let start = 0;
    for (const layer of this.#linear) use(layer, flat.subarray(start, start += layer.parameters));
  }

  /** The scores of these samples. @param {Workspace} space @param {Float32Array} inputs @param {Int32Array} batch */
  #forward(space, inputs, batch) {
    const width = this.#inputs;
    for (let place = 0; place < batch.length; place++) {
      space.input.set(inputs.subarray(batch[place] * width, (batch[place] + 1) * width), place * padded(width));
    }
    const count = padded(batch.length);
    this.#layers.forEach((layer, at) => layer.forward(space.fed(at), space.outputs[at], count));
    return space.outputs[this.#layers.length - 1];
  }

  /** The probabilities of one sample. @param {Float32Array} scores @param {number} place */
  #predicted(scores, place) {
    const start = place * padded(this.#labels);
    this.#scores.set(scores.subarray(start, start + this.#labels));
    softmax(this.#scores);
    return this.#scores;
  }

  /**
   * The loss's slopes by every parameter.
   * @param {Workspace} space @param {Float32Array} inputs @param {Int32Array} labels @param {Int32Array} batch
   */
  #slopes(space, inputs, labels, batch) {
    const scores = this.#forward(space, inputs, batch);
    const last = space.slopes[this.#layers.length - 1];
    last.fill(0); // the rows that pad the batch say nothing
    for (let place = 0; place < batch.length; place++) {
      const probabilities = this.#predicted(scores, place);
      probabilities[labels[batch[place]]] -= 1;
      for (let label = 0; label < this.#labels; label++) last[place * padded(this.#labels) + label] = probabilities[label] / batch.length;
    }
    this.#backward(space, padded(batch.length));
  }

  /** @param {Workspace} space @param {number} count */
  #backward(space, count) {
    const first = this.#layers.indexOf(this.#linear[0]); // before it there is nothing to train
    for (let at = this.#layers.length - 1; at >= first; at--) {
      const before = at > first ? space.slopes[at - 1] : null;
      this.#layers[at].backward(space.fed(at), space.outputs[at], space.slopes[at], before, count);
    }
  }
}

/** @param {number} inputs @param {readonly Layer[]} stack @returns {(Linear | Elementwise)[]} */
function layersOf(inputs, stack) {
  let width = inputs;
  return stack.map((layer) => {
    if (layer.kind !== "linear") return new Elementwise(width, layer.kind);
    width = layer.size;
    return new Linear(layer.width, layer.size);
  });
}
