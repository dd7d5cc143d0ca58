// What a phone keeps: per task its keys, papers, uploads, receipts and rewards, and the owner's recordings.
//
// Every write is one transaction. What belongs to a task can be written while its invitation is kept, and no longer:
// a tab that still runs cannot bring back what another one has forgotten.

import { Forgotten } from "../protocol/errors.js";
import { isWrapped, keeping, unwrap, wrap } from "./keyring.js";
import { IndexedDbTables } from "./tables.js";

/** @typedef {import("./tables.js").Tables} Tables */
/** @typedef {import("./tables.js").Place} Place */

/**
 * @typedef {object} Recording
 * @property {string} id
 * @property {string} label
 * @property {Record<string, string>} [answers] To the task's questions, by their ids.
 * @property {Float64Array} times Seconds.
 * @property {Float64Array} signal Samples times channels.
 * @property {number} channels
 */

/**
 * @typedef {object} TaskSummary
 * @property {string} task
 * @property {number} opened Milliseconds: when the invitation was.
 * @property {string | null} purpose What the requester writes; null until the platform was asked.
 * @property {"invited" | "joined" | "left" | "ended"} phase
 */

const INVITATION = "invitation";
const KEYS = "keys";
const DEVICE = ""; // in the place of a task: what stays when tasks are forgotten
/** @type {Place} Where it is tried whether keys can be kept. */
const TRIAL = ["blobs", DEVICE, "trial"];
const CHARGED = "charged/";

export class Store {
  /** @param {Tables} tables */
  constructor(tables) {
    this._tables = tables;
    /** @type {Promise<"plain" | "wrapped"> | null} */
    this._keeping = null;
  }

  /** @param {string} task @param {string} key @returns {Promise<any>} undefined if there is none */
  async get(task, key) {
    const found = await this._tables.get(["blobs", task, key]);
    return key === KEYS && isWrapped(found) ? unwrap(found) : found;
  }

  /**
   * A participant's own keys, in the form that this browser can keep; the first ones stay.
   * @param {string} task @param {(readable?: boolean) => Promise<import("../protocol/keys.js").Keys>} make
   */
  async addKeys(task, make) {
    const wrapped = (await this.keeping()) === "wrapped";
    await this.add(task, KEYS, wrapped ? await wrap(await make(true)) : await make());
  }

  /** How this browser keeps keys; throws where it does not. */
  keeping() {
    this._keeping ??= keeping(async (value) => {
      await this._tables.write({ put: [[TRIAL, value]] });
      try {
        return await this._tables.get(TRIAL);
      } finally {
        await this._tables.write({ remove: [TRIAL] });
      }
    });
    this._keeping.catch(() => (this._keeping = null)); // it may be the store that failed
    return this._keeping;
  }

  /** @param {string} task @param {string} key */
  has(task, key) {
    return this._tables.has(["blobs", task, key]);
  }

  /** @param {string} task @param {string} [start] Of the keys. */
  async keys(task, start = "") {
    const found = await this._tables.keys("blobs", task);
    return found.map(([, key]) => key).filter((key) => key.startsWith(start));
  }

  /** @param {string} task @param {string} key @param {unknown} value */
  put(task, key, value) {
    return key === INVITATION ? this.open(task, /** @type {object} */ (value)) : this.change(task, { [key]: value });
  }

  /** @param {string} task @param {string} key */
  delete(task, key) {
    return this.change(task, {}, [key]);
  }

  /**
   * What was put first stays.
   * @param {string} task @param {string} key @param {unknown} value
   * @param {Record<string, unknown>} [beside] Put with it, or not at all.
   * @returns {Promise<boolean>} Whether it was put.
   */
  async add(task, key, value, beside = {}) {
    const done = await this._write(task, { [key]: value, ...beside }, [], ["blobs", task, key]);
    if (!done && !(await this.has(task, key))) throw forgotten();
    return done;
  }

  /**
   * All of it or nothing.
   * @param {string} task @param {Record<string, unknown>} put @param {readonly string[]} [remove]
   */
  async change(task, put, remove = []) {
    if (!(await this._write(task, put, remove))) throw forgotten();
  }

  /** A task begins with its invitation; the first one stays. @param {string} task @param {object} invitation */
  async open(task, invitation) {
    const place = /** @type {Place} */ (["blobs", task, INVITATION]);
    const put = /** @type {const} */ ([[place, invitation], [["blobs", task, "opened"], Date.now()]]);
    await this._tables.write({ absent: place, put });
  }

  /** @returns {Promise<TaskSummary[]>} The newest first. */
  async tasks() {
    const all = await this._tables.keys("blobs");
    const names = all.filter(([, key]) => key === INVITATION).map(([task]) => task);
    const found = await Promise.all(names.map((task) => this._summary(task)));
    return found.sort((one, other) => other.opened - one.opened);
  }

  /** What a task costs in privacy, by a name that says nothing; the first one stays. @param {string} name @param {number} epsilon */
  async charge(name, epsilon) {
    const place = /** @type {Place} */ (["blobs", DEVICE, CHARGED + name]);
    await this._tables.write({ absent: place, put: [[place, epsilon]] });
  }

  /** Of every task that was ever uploaded to, forgotten ones too. @returns {Promise<Map<string, number>>} */
  async charges() {
    const names = await this.keys(DEVICE, CHARGED);
    const found = await Promise.all(names.map((name) => this.get(DEVICE, name)));
    return new Map(names.map((name, place) => [name.slice(CHARGED.length), found[place]]));
  }

  /** What stays when tasks are forgotten: what they were charged. */
  async forgetDevice() {
    await this._tables.write({ clear: DEVICE });
  }

  /** Everything of a task: keys, recordings, state. @param {string} task */
  async forget(task) {
    await this._tables.write({ clear: task });
  }

  /** @param {string} task @param {Recording} recording */
  async addRecording(task, recording) {
    const put = /** @type {const} */ ([[["recordings", task, recording.id], recording]]);
    if (!(await this._tables.write({ needs: invitationOf(task), put }))) throw forgotten();
  }

  /** @param {string} task @returns {Promise<Recording[]>} */
  async listRecordings(task) {
    const ids = await this.recordingIds(task);
    const found = await Promise.all(ids.map((id) => this._tables.get(["recordings", task, id])));
    return /** @type {Recording[]} */ (found.filter((one) => one !== undefined));
  }

  /** @param {string} task */
  async recordingIds(task) {
    return (await this._tables.keys("recordings", task)).map(([, id]) => id);
  }

  /** @param {string} task @param {string} id */
  async deleteRecording(task, id) {
    await this._tables.write({ remove: [["recordings", task, id]] });
  }

  close() {
    this._tables.close();
  }

  /**
   * @param {string} task @param {Record<string, unknown>} put @param {readonly string[]} remove @param {Place} [absent]
   */
  _write(task, put, remove, absent) {
    return this._tables.write({
      needs: invitationOf(task),
      absent,
      put: Object.entries(put).map(([key, value]) => /** @type {const} */ ([["blobs", task, key], value])),
      remove: remove.map((key) => /** @type {const} */ (["blobs", task, key])),
    });
  }

  /** @param {string} task @returns {Promise<TaskSummary>} */
  async _summary(task) {
    const [opened, purpose, certificate, left, over] = await Promise.all(
      ["opened", "purpose", "certificate", "left", "over"].map((key) => this.get(task, key)));
    const phase = left !== undefined ? "left" : over !== undefined ? "ended" : certificate !== undefined ? "joined" : "invited";
    return { task, opened: opened ?? 0, purpose: purpose ?? null, phase };
  }
}

/** @param {string} task @returns {Place} */
function invitationOf(task) {
  return ["blobs", task, INVITATION];
}

function forgotten() {
  return new Forgotten("this device has forgotten the campaign: open the invitation again");
}

/**
 * The store of this browser, which is asked to keep it even where room is short. Nobody waits for the answer: it may be a
 * question to the owner.
 * @param {string} [name]
 */
export async function openStore(name = "crowdfl") {
  globalThis.navigator?.storage?.persist?.().catch(() => false);
  return new Store(new IndexedDbTables(name));
}
