// One tab of a browser at a time, by the Web Locks API: the lock of a closed tab is free at once.

import { Conflict } from "../protocol/errors.js";

export class OneTab {
  /** @param {string} name @param {LockManager | null} locks null: nobody else runs. */
  constructor(name, locks) {
    this._name = name;
    this._locks = locks;
  }

  /**
   * As soon as no other tab has it.
   * @template T @param {() => Promise<T>} act @param {AbortSignal} stop Ends the wait. @param {() => void} onWait
   * @returns {Promise<T>}
   */
  async whenFree(act, stop, onWait) {
    const done = await this._ifFree(act);
    if (done) return done.value;
    onWait();
    return /** @type {LockManager} */ (this._locks).request(this._name, { signal: stop }, act);
  }

  /** Now, or not at all. @template T @param {() => Promise<T>} act @returns {Promise<T>} */
  async now(act) {
    const done = await this._ifFree(act);
    if (done) return done.value;
    throw new Conflict("another tab of this browser takes part in this campaign: go on there, or close it");
  }

  /** @template T @param {() => Promise<T>} act @returns {Promise<{value: T} | null>} null while another tab has it. */
  async _ifFree(act) {
    if (!this._locks) return { value: await act() };
    const only = async (/** @type {Lock | null} */ lock) => (lock ? { value: await act() } : null);
    return this._locks.request(this._name, { ifAvailable: true }, only);
  }
}
