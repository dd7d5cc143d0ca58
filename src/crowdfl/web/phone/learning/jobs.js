// What the training worker does with the messages that it gets; worker.js only joins this to a worker's port.
import { Cancelled, CrowdFLError } from "../protocol/errors.js";
import { beside, channelsOf, features, featuresPerWindow, joined, scaled } from "./features.js";
import { makeLearner } from "./learners.js";
import { trainingSeed } from "./random.js";
import { parseRecipe, requireBearable } from "./recipe.js";
import { splitRecordings } from "./recordings.js";

/** @typedef {import("./recordings.js").Recording} Recording */
/** @typedef {import("./recordings.js").Side} Side */
/** @typedef {import("./recipe.js").Recipe} Recipe */
/** @typedef {import("./training.js").Learner} Learner */
/** @typedef {import("./training.js").Progress} Progress */
/** @typedef {import("./training.js").Scores} Scores */

/**
 * @typedef {{ training: unknown, shape: readonly import("./networks.js").ArrayShape[], recordings: readonly Recording[] }} Data `training` is the definition's.
 */
/** @typedef {Data & { weights: Float64Array }} EvaluateJob */
/**
 * @typedef {EvaluateJob & { round: number, name: string }} TrainJob `name` is any that stays the same: the order of the batches follows from it.
 */
/**
 * @typedef {{ weights: Float64Array, samples: number, before: Scores | null, after: Scores | null }} Trained Scores of held-out windows.
 */
/** @typedef {{ label: string, train: number, heldOut: number }} LabelCount Windows. */
/** @typedef {{ train: number, heldOut: number, labels: LabelCount[] }} Prepared */

/**
 * @typedef {{ kind: "train" } & TrainJob | { kind: "evaluate" } & EvaluateJob | { kind: "prepare" } & Data | { kind: "cancel" }} Order
 */
/** @typedef {Order & { id: number }} Request Of a cancellation, `id` is the one of what is cancelled. */
/**
 * @typedef {{ id: number } & (
 *   { kind: "progress" } & Progress | { kind: "result", result: any } | { kind: "error", name: string, message: string }
 * )} Reply
 */

const BREATH = 50; // milliseconds of work between looking for messages, and between reports

/** How many windows the recordings give, or why they or the task cannot be used. @param {Data} job @returns {Prepared} */
export function prepare(job) {
  const { recipe, split } = opened(job);
  const count = (/** @type {Side} */ { labels }, /** @type {number} */ place) => labels.filter((label) => label === place).length;
  const labels = recipe.labels.map((label, place) => ({ label, train: count(split.train, place), heldOut: count(split.heldOut, place) }));
  return { train: split.train.labels.length, heldOut: split.heldOut.labels.length, labels };
}

/** On held-out windows; null if there are none. @param {EvaluateJob} job @returns {Scores | null} */
export function evaluate(job) {
  const { recipe, learner, split } = opened(job);
  learner.load(job.weights);
  return scoresOf(learner, fed(split, recipe).heldOut);
}

/**
 * A round's training, from the given weights.
 * @param {TrainJob} job @param {(progress: Progress) => Promise<void> | void} [onBatch] May take a while, and may throw to stop.
 * @returns {Promise<Trained>}
 */
export async function train(job, onBatch = () => {}) {
  const { recipe, learner, split } = opened(job);
  const { train: mine, heldOut } = fed(split, recipe);
  learner.load(job.weights);
  const before = scoresOf(learner, heldOut);
  const { epochs, batch, rate, proximal } = recipe;
  const seed = await trainingSeed(recipe.seed, job.round, job.name);
  for (const progress of learner.steps(mine.inputs, mine.labels, { epochs, batch, rate, proximal, seed })) await onBatch(progress);
  return { weights: learner.weights(), samples: mine.labels.length, before, after: scoresOf(learner, heldOut) };
}

/** @param {Data} job */
function opened({ training, shape, recordings }) {
  const recipe = parseRecipe(training);
  requireBearable(recipe);
  const learner = makeLearner(recipe, shape); // before the windows are cut: what does not fit the task is said first
  return { recipe, learner, split: splitRecordings(recordings, recipe) };
}

/** What the learner is fed of both sides. @param {import("./recordings.js").Split} split @param {Recipe} recipe */
export function fed({ train, heldOut }, recipe) {
  const { channels, sensors } = recipe;
  const made = [train, heldOut].map(({ windows }) => features(recipe.features, channelsOf(windows, 0, channels)));
  const width = featuresPerWindow(recipe.features, recipe.windowSamples, channels);
  const motion = recipe.scaleInputs ? made.map((rows) => scaled(rows, made[0], width)) : made;
  const [mine, other] = [train, heldOut].map(({ windows }, side) => (windows.channels > channels && windows.count
    ? joined(motion[side], beside(channelsOf(windows, channels, windows.channels), sensors.length), windows.count) : motion[side]));
  return { train: { inputs: mine, labels: train.labels }, heldOut: { inputs: other, labels: heldOut.labels } };
}

/** @param {Learner} learner @param {{ inputs: Float32Array, labels: Int32Array }} data */
const scoresOf = (learner, { inputs, labels }) => (labels.length ? learner.evaluate(inputs, labels) : null);

/**
 * Lets waiting messages in; unlike a timer's, its turn is not put off in a tab that nobody looks at.
 * @returns {Promise<void>}
 */
const nextTask = () => new Promise((resolve) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    resolve();
  };
  port2.postMessage(null);
});

export class Jobs {
  #post;
  /** @type {Set<number>} */
  #cancelled = new Set();

  /** @param {(reply: Reply) => void} post */
  constructor(post) {
    this.#post = post;
  }

  /** @param {Request} request */
  async receive(request) {
    const { id } = request;
    if (request.kind === "cancel") {
      this.#cancelled.add(id);
      return;
    }
    try {
      this.#post({ id, kind: "result", result: await this.#done(request) });
    } catch (error) {
      const { name, message } = error instanceof Error ? error : new Error(String(error));
      this.#post({ id, kind: "error", name: error instanceof CrowdFLError ? name : "Error", message });
    } finally {
      this.#cancelled.delete(id);
    }
  }

  /** @param {Exclude<Request, { kind: "cancel" }>} request */
  #done(request) {
    if (request.kind === "prepare") return prepare(request);
    if (request.kind === "evaluate") return evaluate(request);
    return train(request, this.#reporter(request.id));
  }

  /** @param {number} id */
  #reporter(id) {
    let last = performance.now();
    return async (/** @type {Progress} */ progress) => {
      const isLast = progress.done === progress.of;
      if (!isLast && performance.now() - last < BREATH) return;
      this.#post({ id, kind: "progress", ...progress });
      await nextTask();
      if (this.#cancelled.has(id)) throw new Cancelled("training was stopped");
      last = performance.now();
    };
  }
}
