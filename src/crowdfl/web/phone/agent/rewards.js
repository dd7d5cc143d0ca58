// What a participant has earned by round. One reward that cannot be read holds up nothing else.

import { CrowdFLError, NotReady, RewardOutOfRange, ServiceError, passes } from "../protocol/errors.js";
import { named } from "./holdings.js";

export class Rewards {
  /** @param {import("./participant_context.js").ParticipantContext} context */
  constructor(context) {
    this._context = context;
    this._kept = context.kept;
    /** @type {Map<number, boolean>} Rewards that could not be read: may that pass? */
    this.unread = new Map();
  }

  async arePaid() {
    return (await this._context.shares()).payment > 0n;
  }

  /** A reward that is due; true if it was settled. @param {number} number */
  async look(number) {
    const done = (await this._kept.hasAny(number, "reward", "no-reward")) || !(await this._kept.holdsReceipt(number));
    if (done || !(await this.arePaid())) return false;
    try {
      await this.open(number);
    } catch (wrong) {
      if (!(wrong instanceof CrowdFLError)) throw wrong;
      return this._note(number, wrong);
    }
    return true;
  }

  /** @param {number} number */
  async open(number) {
    const { platform, protocol, tell } = this._context;
    const [task, keys] = [await this._context.shares(), await this._context.keys()];
    const envelope = await platform.reward(task.task, number, keys).catch(hearsay);
    const amount = await protocol.openReward(task, await this._context.bundle(), keys, envelope, number);
    const record = protocol.recordIn(task, await this._context.bundle(), envelope);
    if (record !== null) await this._kept.requireOnly(number, record);
    await this._kept.put(named(number, "reward"), { envelope, amount: amount.toString() });
    tell("rewarded", { round: number, millionths: amount });
    return amount;
  }

  /** @param {number} number @param {CrowdFLError} wrong */
  async _note(number, wrong) {
    if (wrong instanceof RewardOutOfRange) { // as CSP has signed it: no claim of it would be paid
      await this._kept.put(named(number, "no-reward"), "out_of_range");
      this._context.tell("reward refused", { round: number, why: wrong.message });
      return true;
    }
    if (wrong instanceof ServiceError && !wrong.passes) throw wrong;
    // Not there, not what CSP made, or SP alone says that the upload was left out: the platform may still show it, and one
    // reward must not hold up the rest.
    this.unread.set(number, passes(wrong));
    this._context.tellOnce("reward missing", number, wrong);
    return false;
  }
}

/** That a reward is out of range, this device finds by itself: SP's word for it gives up nothing. @param {unknown} error @returns {never} */
function hearsay(error) {
  throw error instanceof RewardOutOfRange ? new NotReady(error.message) : error;
}
