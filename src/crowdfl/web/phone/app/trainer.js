// The owner's recordings and the task's model, trained in a worker: what an agent calls its trainer.

import { TrainingWorker } from "../learning/client.js";
import { openDefinition } from "../protocol/documents.js";
import { CONTRIBUTION } from "../agent/uploads.js";
import { NothingToContribute } from "../protocol/errors.js";
import { sharesTask } from "../protocol/settings.js";
import { t } from "../../web/common/text.js";

/** @typedef {import("../agent/store.js").Store} Store */
/** @typedef {import("../agent/participant.js").Trainer} Trainer */
/** @typedef {import("../learning/client.js").Prepared} Prepared */
/** @typedef {import("../protocol/settings.js").SharesTask} SharesTask */

export class PhoneTrainer {
  /** @param {Store} store @param {string} task @param {(round: number, done: number, of: number) => void} onProgress */
  constructor(store, task, onProgress) {
    this.store = store;
    this.task = task;
    this.onProgress = onProgress;
    this.worker = new TrainingWorker();
    /** @type {{ training: unknown, shares: SharesTask } | null} */
    this.known = null;
  }

  /**
   * Throws what would keep this phone from training such a model; there may be no recordings yet.
   * @type {NonNullable<Trainer["prepare"]>}
   */
  async prepare(shares, definition) {
    try {
      await this.worker.prepare({ training: definition.body.training, shape: shares.shape, recordings: [] });
    } catch (wrong) {
      if (!(wrong instanceof NothingToContribute)) throw wrong;
    }
  }

  /** How much there would be to train on, said or not; null: nothing. @returns {Promise<Prepared | null>} */
  async windows() {
    return this.orNothing(async () => this.worker.prepare(await this.data(await this.store.listRecordings(this.task))));
  }

  /** @type {Trainer["train"]} */
  async train(weights, training, round) {
    const [data, { shares }, keys] = [await this.data(await this.said()), await this.definition(), await this.store.get(this.task, "keys")];
    if (!data.recordings.length) throw new NothingToContribute(t("record.waits"));
    const job = { ...data, training, weights, round, name: keys.who };
    const trained = await this.worker.train(job, { onProgress: ({ done, of }) => this.onProgress(round, done, of) });
    // The number of samples is a weight in the average. A task bounds it; whoever recorded more counts as much as the bound.
    return { weights: trained.weights, samples: Math.min(trained.samples, shares.maxSamples) };
  }

  /** @type {Trainer["evaluate"]} */
  async evaluate(weights) {
    return this.orNothing(async () => this.worker.evaluate({ ...(await this.data(await this.said())), weights }));
  }

  close() {
    this.worker.close();
  }

  /** The recordings that the owner has said to send: a round is sent once. */
  async said() {
    const ids = (await this.store.get(this.task, CONTRIBUTION))?.ids ?? [];
    return (await this.store.listRecordings(this.task)).filter(({ id }) => ids.includes(id));
  }

  /** @param {readonly import("../agent/store.js").Recording[]} recordings */
  async data(recordings) {
    const { training, shares } = await this.definition();
    return { training, shape: shares.shape, recordings };
  }

  async definition() {
    if (!this.known) {
      const definition = await openDefinition(await this.store.get(this.task, "definition"));
      this.known = { training: definition.body.training, shares: sharesTask(definition) };
    }
    return this.known;
  }

  /** @template T @param {() => Promise<T>} act */
  async orNothing(act) {
    try {
      return await act();
    } catch (wrong) {
      if (wrong instanceof NothingToContribute) return null;
      throw wrong;
    }
  }
}
