// The training worker, as the page uses it.
import * as errors from "../protocol/errors.js";

/** @typedef {import("./jobs.js").Data} Data */
/** @typedef {import("./jobs.js").EvaluateJob} EvaluateJob */
/** @typedef {import("./jobs.js").TrainJob} TrainJob */
/** @typedef {import("./jobs.js").Trained} Trained */
/** @typedef {import("./jobs.js").Prepared} Prepared */
/** @typedef {import("./jobs.js").Order} Order */
/** @typedef {import("./jobs.js").Reply} Reply */
/** @typedef {import("./training.js").Progress} Progress */
/** @typedef {import("./training.js").Scores} Scores */

/**
 * @typedef {{ resolve: (result: any) => void, reject: (error: Error) => void, onProgress?: (progress: Progress) => void }} Waiting
 */
/**
 * @typedef {{ onProgress?: (progress: Progress) => void, signal?: AbortSignal }} Options An abort is answered with Cancelled.
 */

/** What is used of a Worker, so that tests can do without one.
 * @typedef {Pick<Worker, "postMessage" | "terminate" | "addEventListener">} WorkerLike
 */

/** @returns {WorkerLike} */
const startWorker = () => new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "training" });

export class TrainingWorker {
  #start;
  /** @type {WorkerLike | null} */
  #worker = null;
  /** @type {Map<number, Waiting>} */
  #waiting = new Map();
  #last = 0;

  /** @param {() => WorkerLike} [start] Called when there is something to do. */
  constructor(start = startWorker) {
    this.#start = start;
  }

  /** @param {TrainJob} job @param {Options} [options] @returns {Promise<Trained>} */
  train({ training, shape, weights, recordings, round, name }, options) {
    return this.#ask({ kind: "train", training, shape, weights, recordings, round, name }, options);
  }

  /**
   * On held-out windows; null if there are none.
   * @param {EvaluateJob} job @param {Options} [options] @returns {Promise<Scores | null>}
   */
  evaluate({ training, shape, weights, recordings }, options) {
    return this.#ask({ kind: "evaluate", training, shape, weights, recordings }, options);
  }

  /**
   * How many windows the recordings give, or why they cannot be used.
   * @param {Data} job @param {Options} [options] @returns {Promise<Prepared>}
   */
  prepare({ training, shape, recordings }, options) {
    return this.#ask({ kind: "prepare", training, shape, recordings }, options);
  }

  /** Ends the worker and whatever it is doing. The next job starts another one. */
  close() {
    this.#end(new errors.Cancelled("training was stopped"));
  }

  /** @param {Order} order @param {Options} [options] */
  async #ask(order, { onProgress, signal } = {}) {
    if (signal?.aborted) throw new errors.Cancelled("training was stopped");
    const id = ++this.#last;
    const cancel = () => this.#cancel(id);
    try {
      return await new Promise((resolve, reject) => {
        this.#waiting.set(id, { resolve, reject, onProgress });
        signal?.addEventListener("abort", cancel);
        this.#running().postMessage({ ...order, id });
      });
    } finally {
      this.#waiting.delete(id);
      signal?.removeEventListener("abort", cancel);
    }
  }

  #running() {
    if (this.#worker) return this.#worker;
    const worker = this.#start();
    worker.addEventListener("message", (event) => this.#take(/** @type {MessageEvent<Reply>} */ (event).data));
    worker.addEventListener("error", (event) => {
      if (this.#worker !== worker) return;
      const why = /** @type {ErrorEvent} */ (event).message || "its code could not be loaded";
      this.#end(new errors.LearningError(`the training worker failed: ${why}: load this page again`));
    });
    this.#worker = worker;
    return worker;
  }

  /** @param {Reply} reply */
  #take(reply) {
    const waiting = this.#waiting.get(reply.id); // none if it was cancelled
    if (reply.kind === "progress") waiting?.onProgress?.({ epoch: reply.epoch, done: reply.done, of: reply.of });
    else if (reply.kind === "result") waiting?.resolve(reply.result);
    else waiting?.reject(errorOf(reply.name, reply.message));
  }

  /** The page need not wait until the worker hears of it. @param {number} id */
  #cancel(id) {
    this.#worker?.postMessage({ id, kind: "cancel" });
    this.#waiting.get(id)?.reject(new errors.Cancelled("training was stopped"));
  }

  /** @param {Error} why */
  #end(why) {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#waiting.values()) reject(why);
    this.#waiting.clear();
  }
}

/** @param {string} name @param {string} message */
function errorOf(name, message) {
  const kind = /** @type {Record<string, unknown>} */ (errors)[name];
  const isKnown = typeof kind === "function" && kind.prototype instanceof errors.CrowdFLError;
  return isKnown ? new /** @type {any} */ (kind)(message) : new errors.LearningError(`training failed: ${message}`);
}
