// What one participant keeps of one task, by the names that it has in the store.

import { equal } from "../protocol/bytes.js";
import { RolledBack } from "../protocol/errors.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {{ why: string, by: string, reason: string }} Ending Two codes, and words for everyone. */

/**
 * @typedef {object} KeptStatus Where the task stood when this device last looked.
 * @property {string} state
 * @property {Ending | null} ended How it ended.
 * @property {number} enrolled
 * @property {{number: number, state: string, deadline: number}[]} rounds
 * @property {number | null} next When the next round opens, if its plan says; seconds since 1970.
 * @property {number} at Seconds since 1970, by this device's clock.
 * @property {number | null} claimUntil
 */

/** @typedef {{accuracy: number, loss: number, samples: number}} Metrics */
/** @typedef {"started" | "before" | "upload" | "trained" | "receipt" | "lost-receipt" | "wrong-receipt" | "refused" | "nothing"
 *    | "average" | "record" | "no-reward" | "reward" | "given-up" | "not-drawn"} RoundKey */

const MOST_UNSHOWN = 3; // rounds that took an upload of this phone's and that no record shows

/** One task's part of the store. */
export class Holdings {
  /** @param {Store} store @param {string} task */
  constructor(store, task) {
    this.store = store;
    this.task = task;
  }

  /** @param {string} key */
  get(key) {
    return this.store.get(this.task, key);
  }

  /** @param {string} key */
  has(key) {
    return this.store.has(this.task, key);
  }

  /** @param {string} key @param {unknown} value */
  put(key, value) {
    return this.store.put(this.task, key, value);
  }

  /** @param {string} key @param {unknown} value @param {Record<string, unknown>} [beside] */
  add(key, value, beside) {
    return this.store.add(this.task, key, value, beside);
  }

  /** This participant's own, unless they are there. @param {(readable?: boolean) => Promise<import("../protocol/keys.js").Keys>} make */
  async makeKeys(make) {
    if (!(await this.has("keys"))) await this.store.addKeys(this.task, make);
  }

  /** @param {Record<string, unknown>} put @param {readonly string[]} [remove] */
  change(put, remove) {
    return this.store.change(this.task, put, remove);
  }

  /** @param {number} number @param {RoundKey} key */
  of(number, key) {
    return this.get(named(number, key));
  }

  /** @param {number} number @param {...RoundKey} keys @returns {Promise<boolean>} */
  async hasAny(number, ...keys) {
    const found = await Promise.all(keys.map((key) => this.has(named(number, key))));
    return found.includes(true);
  }

  /** Also one of an upload that SP says to have lost since: its signature stands. @param {number} number */
  holdsReceipt(number) {
    return this.hasAny(number, "receipt", "lost-receipt");
  }

  /** CSP's signed record of a round is the one that is kept, wherever it is shown. @param {number} number @param {Uint8Array} record */
  async requireOnly(number, record) {
    const kept = await this.of(number, "record");
    if (kept === undefined || equal(kept, record)) return;
    throw new RolledBack(
      `CSP has signed two records of round ${number}, and this phone has seen both: a server was set back, or cheats. ` +
        "Take no further part in this task",
    );
  }

  /** Numbers of the rounds that have something of this kind, in order. @param {RoundKey} key */
  async rounds(key) {
    const found = (await this.store.keys(this.task, "rounds/")).map((name) => name.split("/"));
    return found.filter(([, , kind]) => kind === key).map(([, number]) => Number(number)).sort((a, b) => a - b);
  }

  /** What was earned and opened: millionths by round. @returns {Promise<Map<number, bigint>>} */
  async rewards() {
    const numbers = await this.rounds("reward");
    const found = await Promise.all(numbers.map((number) => this.of(number, "reward")));
    return new Map(numbers.map((number, place) => [number, BigInt(found[place].amount)]));
  }

  /**
   * Why this phone takes no further part, if with this round too many came to nothing: a server that deviates learns something in
   * a round, and then lets it fail.
   */
  async unshown() {
    const given = (await this.rounds("given-up")).map((number) => this.of(number, "given-up"));
    const left = (await this.rounds("no-reward")).map((number) => this.of(number, "no-reward"));
    const before = (await Promise.all(given)).filter((how) => how !== "unused").length
      + (await Promise.all(left)).filter((why) => why === "not_passed_on").length;
    if (before + 1 < MOST_UNSHOWN) return null;
    return `${MOST_UNSHOWN} rounds that you uploaded to came to nothing, and no signed record says why`;
  }

  /** Rounds that an upload was accepted for and whose reward is neither read nor known not to come. */
  async owed() {
    const numbers = new Set([...(await this.rounds("receipt")), ...(await this.rounds("lost-receipt"))]);
    const settled = await Promise.all([...numbers].map((n) => this.hasAny(n, "reward", "no-reward", "given-up")));
    return [...numbers].filter((_, place) => !settled[place]).sort((a, b) => a - b);
  }
}

/** @param {number} number @param {RoundKey} key */
export function named(number, key) {
  return `rounds/${number}/${key}`;
}

/** What is kept of a phone that takes no further part, if it has a reason. @param {string | null} why @param {number} now */
export function stopping(why, now) {
  return why === null ? {} : { stopped: why, left: now };
}
