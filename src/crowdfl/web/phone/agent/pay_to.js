// Where a person is to be paid: kept, sealed to the payer, and sent until the platform has it.

import { Conflict, NotReady } from "../protocol/errors.js";

export { PAY_KINDS, WrongDestination, checkDestination } from "../protocol/destination.js";

/** @typedef {import("./participant_context.js").ParticipantContext} ParticipantContext */
/** @typedef {{kind: string, to: string, counter: number, sealed: import("../protocol/bytes.js").Bytes, sent: boolean, epoch?: string | null, closed?: boolean}} KeptDestination */

/** Where this participant is to be paid. */
export class PayTo {
  /** @param {ParticipantContext} context */
  constructor(context) {
    this._context = context;
    this._kept = context.kept;
  }

  /** Kept before it is sent, and to be corrected: each new one counts from there on. @param {string} kind @param {string} text */
  async put(kind, text) {
    const { protocol, task } = this._context;
    const to = protocol.checkDestination(kind, text);
    const [{ definition }, keys] = [await this._context.papers(), await this._context.keys()];
    for (let isMine = false; !isMine;) {
      const counter = 1 + (/** @type {KeptDestination | undefined} */ (await this._kept.get("pay-to"))?.counter ?? 0);
      const sealed = await protocol.sealDestination(task, definition.body.payer, keys, counter, kind, to);
      // Another tab may have taken this counter: each has one destination.
      isMine = await this._kept.add(`destinations/${counter}`, true, { "pay-to": { kind, to, counter, sealed, sent: false } });
    }
    await this.send(true);
  }

  /** How the platform pays people; kept, for a page without a network. @returns {Promise<string[]>} */
  async kinds() {
    const { payKinds } = await this._context.platform.offers();
    await this._kept.put("pay-kinds", payKinds);
    return payKinds;
  }

  /** Whether a claim is to name another destination than the last one did. */
  async isNew() {
    const given = /** @type {KeptDestination | undefined} */ (await this._kept.get("pay-to"));
    return given !== undefined && !given.closed && (!given.sent || given.counter > ((await this._kept.get("claim"))?.counter ?? 0));
  }

  /**
   * To the platform, sealed to the payer; the next claim names it. False where there is nothing to send.
   * @param {boolean} [tell] Throw also what the owner alone can do something about.
   */
  async send(tell = false) {
    const given = /** @type {KeptDestination | undefined} */ (await this._kept.get("pay-to"));
    const isLost = given?.sent && this._context.epoch !== null && given.epoch !== this._context.epoch; // perhaps, by an SP that was restored
    if (!given || (given.sent && !isLost) || given.closed || !(await this._kept.has("certificate"))) return false;
    try {
      await this._place(given);
    } catch (refusal) {
      if (refusal instanceof Conflict) await this._change(given, { closed: true });
      if (tell || !(refusal instanceof Conflict || refusal instanceof NotReady)) throw refusal;
      return false;
    }
    await this._change(given, { sent: true, epoch: this._context.epoch });
    if (!given.sent) this._context.tell("pay to sent", {});
    return true;
  }

  /** With a note for CSP, where its record says what was earned: what is never claimed is paid there. @param {KeptDestination} given */
  async _place({ sealed, counter }) {
    const { platform, protocol, task } = this._context;
    const [keys, shares] = [await this._context.keys(), await this._context.shares()];
    const destination = await protocol.sha256(sealed);
    const note = await protocol.placeNote(shares, keys, destination, counter);
    if (note === null) return void await platform.payTo(task, sealed, keys);
    const kept = await platform.payTo(task, protocol.concat(sealed, note), keys);
    await protocol.checkPlaceKept(shares, await this._context.bundle(), keys, { destination, counter }, kept);
    await this._kept.put("place-kept", kept);
  }

  /** Unless the owner has given another meanwhile. @param {KeptDestination} given @param {Partial<KeptDestination>} news */
  async _change(given, news) {
    const now = /** @type {KeptDestination | undefined} */ (await this._kept.get("pay-to"));
    if (now?.counter === given.counter) await this._kept.put("pay-to", { ...given, ...news });
  }
}
