import assert from "node:assert/strict";
import { test } from "node:test";

import { TrainingWorker } from "#web/phone/learning/client.js";
import { evaluate, Jobs, prepare, train } from "#web/phone/learning/jobs.js";
import { modelShape, parseRecipe } from "#web/phone/learning/recipe.js";

const LABELS = ["slow", "fast"];
const TRAINING = { labels: LABELS, channels: 2, window_samples: 16, step: 4, hertz: 20, layers: [8], epochs: 6, batch: 8, seed: 4, rate: 0.02 };
const SHAPE = modelShape(parseRecipe(TRAINING));
const COUNT = SHAPE.reduce((sum, [, sides]) => sum + sides.reduce((product, side) => product * side, 1), 0);
const WEIGHTS = Float64Array.from({ length: COUNT }, (_, at) => Math.sin(at * 12.9898) / 4);

/** @param {string} label @param {number} pace @param {number} [samples] */
function swinging(label, pace, samples = 300) {
  const times = Float64Array.from({ length: samples }, (_, at) => at / 20);
  const signal = Float64Array.from({ length: 2 * samples }, (_, at) => Math.sin(pace * times[at >> 1] + at % 2) + Math.sin(at * 78.233) / 10);
  return { id: label, label, times, signal, channels: 2 };
}

const JOB = { training: TRAINING, shape: SHAPE, weights: WEIGHTS, recordings: [swinging("slow", 2), swinging("fast", 9)], round: 3, name: "me" };
const ENDLESS = { ...JOB, training: { ...TRAINING, epochs: 10_000 } };

/** A worker in this thread: messages are copied, and none is answered at once. */
class ThreadlessWorker {
  static running = 0;
  #target = new EventTarget();
  #isRunning = true;
  #jobs = new Jobs((reply) => this.#send(reply));

  constructor() {
    ThreadlessWorker.running++;
  }

  /** @param {any} reply */
  #send(reply) {
    const data = structuredClone(reply);
    if (this.#isRunning) setImmediate(() => this.#isRunning && this.#target.dispatchEvent(new MessageEvent("message", { data })));
  }

  /** @param {any} message */
  postMessage(message) {
    const data = structuredClone(message);
    setImmediate(() => this.#isRunning && this.#jobs.receive(data));
  }

  terminate() {
    this.#isRunning = false;
    ThreadlessWorker.running--;
  }

  /** @param {string} kind @param {any} listener */
  addEventListener(kind, listener) {
    this.#target.addEventListener(kind, listener);
  }

  /** @param {string} message */
  fail(message) {
    this.#target.dispatchEvent(Object.assign(new Event("error"), { message }));
  }
}

test("training tells two paces apart, and says how well before and after", async () => {
  const { weights, samples, before, after } = await train(JOB);
  assert.equal(samples, prepare(JOB).train);
  assert.equal(weights.length, COUNT);
  assert.ok(before && after && after.loss < before.loss && after.accuracy > 0.9);
  assert.deepEqual(evaluate({ ...JOB, weights }), after);
});

test("the same round gives the same weights, another round or name others", async () => {
  const [one, same, round, name] = await Promise.all([JOB, JOB, { ...JOB, round: 4 }, { ...JOB, name: "you" }].map((job) => train(job)));
  assert.deepEqual(one.weights, same.weights);
  assert.notDeepEqual(one.weights, round.weights);
  assert.notDeepEqual(one.weights, name.weights);
});

test("windows are counted by label", () => {
  const { train: count, heldOut, labels } = prepare(JOB);
  assert.deepEqual(labels.map(({ label }) => label), LABELS);
  assert.equal(labels.reduce((sum, one) => sum + one.train, 0), count);
  assert.equal(labels.reduce((sum, one) => sum + one.heldOut, 0), heldOut);
  assert.ok(count > 60 && heldOut > 20);
});

test("without held-out windows there are no scores", async () => {
  const short = { ...JOB, recordings: [swinging("slow", 2, 30)] };
  assert.equal(evaluate(short), null);
  const { before, after, samples } = await train(short);
  assert.deepEqual([before, after, samples > 0], [null, null, true]);
});

test("a worker gives what the functions give, with progress up to the last batch", async () => {
  const worker = new TrainingWorker(() => new ThreadlessWorker());
  /** @type {any[]} */
  const seen = [];
  const made = await worker.train(JOB, { onProgress: (progress) => seen.push(progress) });
  assert.deepEqual(made, await train(JOB));
  assert.equal(seen.at(-1).done, seen.at(-1).of);
  assert.equal(seen.at(-1).epoch, TRAINING.epochs);
  assert.deepEqual(await worker.evaluate({ ...JOB, weights: made.weights }), made.after);
  assert.deepEqual(await worker.prepare(JOB), prepare(JOB));
  assert.equal(ThreadlessWorker.running, 1);
  worker.close();
  assert.equal(ThreadlessWorker.running, 0);
});

test("errors arrive under their own names", async () => {
  const worker = new TrainingWorker(() => new ThreadlessWorker());
  await assert.rejects(worker.train({ ...JOB, recordings: [] }), { name: "NothingToContribute", message: /no recordings/ });
  await assert.rejects(worker.prepare({ ...JOB, training: { ...TRAINING, learner: "conv" } }), { name: "UnsupportedTask" });
  await assert.rejects(worker.evaluate({ ...JOB, shape: SHAPE.slice(1) }), { name: "ModelMismatch" });
  await assert.rejects(worker.train({ ...JOB, recordings: /** @type {any} */ (null) }), { name: "LearningError", message: /training failed/ });
  worker.close();
});

test("training can be stopped, and the worker goes on to other work", async () => {
  const worker = new TrainingWorker(() => new ThreadlessWorker());
  const stop = new AbortController();
  const stopped = worker.train(ENDLESS, { signal: stop.signal, onProgress: () => stop.abort() });
  await assert.rejects(stopped, { name: "Cancelled" });
  assert.deepEqual(await worker.prepare(JOB), prepare(JOB));
  await assert.rejects(worker.train(JOB, { signal: stop.signal }), { name: "Cancelled" });
  worker.close();
});

test("the worker itself hears of a cancellation", async () => {
  /** @type {any[]} */
  const replies = [];
  const jobs = new Jobs((reply) => {
    replies.push(reply);
    if (reply.kind === "progress") jobs.receive({ id: 7, kind: "cancel" });
  });
  await jobs.receive({ ...ENDLESS, id: 7, kind: "train" });
  assert.deepEqual(replies.map(({ kind }) => kind), ["progress", "error"]);
  assert.equal(replies[1].name, "Cancelled");
});

test("closing ends what is under way; a later job starts another worker", async () => {
  const worker = new TrainingWorker(() => new ThreadlessWorker());
  const ended = assert.rejects(worker.train(ENDLESS), { name: "Cancelled" });
  worker.close();
  await ended;
  assert.deepEqual(await worker.prepare(JOB), prepare(JOB));
  worker.close();
  assert.equal(ThreadlessWorker.running, 0);
});

test("a worker that fails is said, and replaced", async () => {
  /** @type {ThreadlessWorker[]} */
  const workers = [];
  const worker = new TrainingWorker(() => workers[workers.push(new ThreadlessWorker()) - 1]);
  const failed = assert.rejects(worker.train(ENDLESS), { name: "LearningError", message: /out of memory/ });
  workers[0].fail("out of memory");
  await failed;
  await worker.prepare(JOB);
  assert.equal(workers.length, 2);
  worker.close();
});
