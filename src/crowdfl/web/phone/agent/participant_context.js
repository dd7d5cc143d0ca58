// What every part of a participant works with: its task, its keys, what it keeps, and whom it talks to.

import { NotReady, Replaced } from "../protocol/errors.js";
import { Holdings } from "./holdings.js";
import * as shares from "./protocol.js";
import { requireStatus } from "./status.js";

/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */
/** @typedef {import("../protocol/documents.js").Definition} Definition */
/** @typedef {import("../protocol/keys.js").Keys} Keys */
/** @typedef {import("../protocol/settings.js").SharesTask} SharesTask */
/** @typedef {(what: string, details: Record<string, any>) => void} OnEvent */
/** @typedef {Pick<import("./api.js").Platform, "papers" | "recruit" | "initial" | "status" | "enrol" | "enrolAtKgc" | "send" | "uploaded" | "isDrawn"
 *    | "average" | "end" | "reward" | "claim" | "payTo" | "pay" | "offers" | "remind" | "stopReminding" | "quit">} ParticipantPlatform */

/**
 * @typedef {object} Trainer The owner's data and the task's model.
 * @property {(task: SharesTask, definition: Definition) => Promise<void> | void} [prepare] Throws what would keep it from
 *   training such a model.
 * @property {(weights: Float64Array, training: any, round: number) => Promise<{weights: Float64Array, samples: number}>} train
 *   Throws `NothingToContribute` when there is too little data.
 * @property {(weights: Float64Array) => Promise<import("./holdings.js").Metrics | null>} evaluate On the owner's held-out data.
 */

/**
 * @typedef {object} ContextOptions
 * @property {string} task
 * @property {import("./store.js").Store} store
 * @property {ParticipantPlatform} platform
 * @property {Bytes} kgcKey What certificates are checked with.
 * @property {Bytes} spKey What receipts are checked with.
 * @property {OnEvent} [onEvent]
 * @property {() => number} [now] Seconds since 1970.
 * @property {typeof shares} [protocol]
 */

export class ParticipantContext {
  /** @param {ContextOptions} options */
  constructor({ task, store, platform, kgcKey, spKey, onEvent = () => {}, now = () => Date.now() / 1000, protocol = shares }) {
    this.task = task;
    this.kept = new Holdings(store, task);
    this.platform = platform;
    this.kgcKey = kgcKey;
    this.spKey = spKey;
    this.tell = onEvent;
    this.now = now;
    this.protocol = protocol;
    /** @type {AbortSignal | undefined} Ends what is under way. */
    this.signal = undefined;
    /** @type {string | null} SP's, when it was last asked: another one was restored, and may have lost what it had. */
    this.epoch = null;
    /** @type {Set<string>} What need not be told again. */
    this._told = new Set();
    /** @type {{definition: Definition, shares: SharesTask} | null} */
    this._opened = null;
  }

  /** Never held in memory: another tab may have forgotten them. @returns {Promise<Keys>} */
  keys() {
    return this.kept.get("keys");
  }

  async bundle() {
    return this.protocol.openBundle(await this.kept.get("bundle"));
  }

  /** What was signed, and what follows from it; opened once: a task's name is the hash of its definition. */
  async papers() {
    this._opened ??= await this._open();
    return this._opened;
  }

  async shares() {
    return (await this.papers()).shares;
  }

  /** The last day of claims as it was signed: by the requester, or later by CSP. Seconds since 1970. */
  async claimsUntil() {
    return (await this.kept.get("claims-extended"))?.until ?? (await this.shares()).claimsUntil;
  }

  /** Where SP says that the task stands; what cannot be is refused, and never kept. */
  async status() {
    const { rounds } = await this.shares();
    const status = requireStatus(await this.platform.status(this.task), rounds);
    this.epoch = String(status.epoch ?? "");
    return status;
  }

  /** Enrol with SP, with the consent that was given; false if another phone has taken this one's place. */
  async enrol() {
    const consent = (await this.kept.get("consent")) ?? null;
    let receipt;
    try {
      receipt = await this.platform.enrol(this.task, await this.kept.get("certificate"), consent);
    } catch (refusal) {
      if (!(refusal instanceof Replaced)) throw refusal;
      await this.giveWay(refusal);
      return false;
    }
    if (consent !== null && receipt !== null && !(await this.kept.has("consent-receipt"))) {
      await this.protocol.checkConsentReceipt(receipt, this.spKey, { task: this.task, who: (await this.keys()).who, consent });
      await this.kept.put("consent-receipt", receipt);
    }
    return true;
  }

  /** Another phone has taken this one's place: it sends nothing any more, and can claim what it earned. @param {Replaced} why */
  async giveWay(why) {
    await this.kept.change({ stopped: why.message, replaced: true, left: this.now() });
    this.tell("replaced", { why: why.message });
  }

  async _open() {
    const text = await this.kept.get("definition");
    if (text === undefined) throw new NotReady("join the task first");
    const definition = await this.protocol.openDefinition(text);
    return { definition, shares: this.protocol.sharesTask(definition) };
  }

  /** Refuse a task whose averages may be of fewer people than the owner accepts. */
  async requireCompany() {
    this.protocol.requireCompany(await this.shares(), await this.kept.get("least"), (await this.kept.get("all-the-same")) === true);
  }

  /**
   * Work that may take minutes: whoever stops the agent does not wait for it, and what it comes to is dropped.
   * @template T @param {Promise<T>} work @returns {Promise<T>}
   */
  unlessStopped(work) {
    const { signal } = this;
    if (!signal) return work;
    return new Promise((resolve, reject) => {
      const stop = () => reject(signal.reason);
      signal.addEventListener("abort", stop);
      work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
      if (signal.aborted) stop();
    });
  }

  /** @param {string} what @param {number} number @param {Error} why */
  tellOnce(what, number, why) {
    const news = `${what} ${number} ${why.name}`;
    if (this._told.has(news)) return;
    this._told.add(news);
    this.tell(what, { round: number, why: why.message });
  }
}
