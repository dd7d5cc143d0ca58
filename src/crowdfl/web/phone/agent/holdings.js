// What one participant keeps of one task, by the names that it has in the store.

import { equal } from "../protocol/bytes.js";
import { RolledBack } from "../protocol/errors.js";
import { MOST_UNSHOWN } from "../protocol/limits.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {{ why: string, by: string, reason: string }} Ending Two codes, and words for everyone. */

/**
 * @typedef {object} KeptStatus Where the task stood when this device last looked.
 * @property {string} state
 * @property {Ending | null} ended How it ended.
 * @property {number} enrolled
 * @property {{number: number, state: string, until: number}[]} rounds `until`: when its last upload is taken; seconds since 1970.
 * @property {number | null} next When the next round opens, if its plan says; seconds since 1970.
 * @property {number} at Seconds since 1970, by this device's clock.
 * @property {number | null} over When this device first saw it over.
 */

/** What SP says of a round that was claimed: booked to be paid, for a reward or an unused upload, disputed, or nothing. @typedef {{ how: "paid" | "unused" | "disputed" | "missing", amount: string }} Answer */

/** @typedef {{accuracy: number, loss: number, samples: number}} Metrics */
/** @typedef {"started" | "before" | "upload" | "trained" | "receipt" | "lost-receipt" | "wrong-receipt" | "refused" | "nothing"
 *    | "average" | "record" | "second-record" | "end" | "accepted" | "no-reward" | "reward" | "unused" | "answer" | "differs" | "given-up" | "not-drawn"} RoundKey */

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

  /** Whoever has left, withdrawn, given way or stopped, whatever SP says of the task. */
  async sendsNoMore() {
    const found = await Promise.all(["left", "withdrawing", "replaced", "stopped"].map((key) => this.has(key)));
    return found.includes(true);
  }

  /** Also one of an upload that SP says to have lost since: its signature stands. @param {number} number */
  holdsReceipt(number) {
    return this.hasAny(number, "receipt", "lost-receipt");
  }

  /** An upload for a round, whatever became of it: its figures stay when its bytes go. @param {number} number */
  hasMade(number) {
    return this.hasAny(number, "trained", "receipt", "lost-receipt");
  }

  /** By SP's receipt, or by CSP's record, whatever SP said. @param {number} number */
  hasEarned(number) {
    return this.hasAny(number, "receipt", "lost-receipt", "accepted");
  }

  /** Rounds before this one that an upload was made for, and of which neither CSP's record nor its end is here. @param {number} before */
  async wordless(before) {
    const names = (await this.store.keys(this.task, "rounds/")).map((name) => name.split("/"));
    const having = (/** @type {string[]} */ ...kinds) => new Set(names.filter(([, , kind]) => kinds.includes(kind)).map(([, number]) => Number(number)));
    const known = having("record", "end");
    const made = [...having("trained", "receipt", "lost-receipt")];
    return made.filter((number) => number < before && !known.has(number)).sort((a, b) => a - b);
  }

  /**
   * CSP's signed word about a round, its record or its end, is the one that is kept, wherever it is shown. Of two, both are: they
   * are evidence.
   * @param {number} number @param {Uint8Array} word
   */
  async requireOnly(number, word) {
    const kept = (await this.of(number, "record")) ?? (await this.of(number, "end"));
    if (kept === undefined || equal(kept, word)) return;
    const said = (await this.holdsReceipt(number)) ? "taken" : "refused";
    await this.add(named(number, "second-record"), word, { [named(number, "differs")]: { said, signed: "two_records" } });
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

  /** What SP has answered of each round that was claimed. @returns {Promise<Map<number, Answer>>} */
  async answers() {
    const numbers = await this.rounds("answer");
    const found = await Promise.all(numbers.map((number) => this.of(number, "answer")));
    return new Map(numbers.map((number, place) => [number, found[place]]));
  }

  /** Millionths that SP has booked to be paid. */
  async booked() {
    return [...(await this.answers()).values()].reduce((sum, { how, amount }) => (how === "disputed" ? sum : sum + BigInt(amount)), 0n);
  }

  /** What was earned and SP has not answered: millionths by round. */
  async unanswered() {
    const answers = await this.answers();
    return new Map([...(await this.rewards())].filter(([round]) => !answers.has(round)));
  }

  /** Rounds that wait for whoever runs the platform. */
  async disputed() {
    return [...(await this.answers())].filter(([, { how }]) => how === "disputed").map(([round]) => round);
  }

  /** By what CSP has signed: millionths that SP has booked too little, by round. An SP that pays less would also say that less was claimed. */
  async short() {
    const rewards = await this.rewards();
    const missing = [...(await this.answers())].filter(([, { how }]) => how !== "disputed")
      .map(([round, { amount }]) => /** @type {const} */ ([round, (rewards.get(round) ?? 0n) - BigInt(amount)]));
    return new Map(missing.filter(([, short]) => short > 0n));
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
    const numbers = new Set([...(await this.rounds("receipt")), ...(await this.rounds("lost-receipt")), ...(await this.rounds("accepted"))]);
    const settled = await Promise.all([...numbers].map((n) => this.hasAny(n, "reward", "no-reward", "given-up")));
    return [...numbers].filter((_, place) => !settled[place]).sort((a, b) => a - b);
  }

  /** Rounds that an upload was made for, of which CSP's signed word is not here and nothing is paid: SP's word settles none of them. */
  async unheard() {
    const wordless = await this.wordless(Infinity);
    const found = await Promise.all(wordless.map(async (number) =>
      (await this.hasAny(number, "reward")) || !["withdrawn", undefined].includes(await this.of(number, "no-reward"))));
    return wordless.filter((_, place) => !found[place]);
  }

  /** Of a task with a bonus: whether it is neither here nor known not to come, of who was in a round. */
  async awaitsBonus() {
    const isKnown = await this.hasAny(0, "reward", "no-reward");
    return !isKnown && (await this.rounds("accepted")).length + (await this.rounds("receipt")).length > 0;
  }

  /** What a claim waits for, after the end: whatever SP lists. */
  async missing() {
    return [...new Set([...(await this.owed()), ...(await this.unheard())])].sort((a, b) => a - b);
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
