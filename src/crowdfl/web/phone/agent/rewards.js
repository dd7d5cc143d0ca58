// What a participant has earned by round. One reward that cannot be read holds up nothing else.

import { CrowdFLError, NotReady, RewardOutOfRange, RolledBack, ServiceError, UploadRejected } from "../protocol/errors.js";
import { BONUS } from "../protocol/rewards.js";
import { named } from "./holdings.js";

export class Rewards {
  /** @param {import("./participant_context.js").ParticipantContext} context */
  constructor(context) {
    this._context = context;
    this._kept = context.kept;
  }

  async arePaid() {
    return (await this._context.shares()).payment > 0n;
  }

  /** A reward that is due; true if it was settled. @param {number} number */
  async look(number) {
    const done = (await this._kept.hasAny(number, "reward", "no-reward")) || !(await this._kept.hasEarned(number));
    if (done || !(await this.arePaid())) return false;
    try {
      await this.open(number);
    } catch (wrong) {
      if (!(wrong instanceof CrowdFLError)) throw wrong;
      return this._note(number, wrong);
    }
    return true;
  }

  /**
   * Of a task that is over: CSP's word whether this participant gets the bonus; true if it was settled. The platform may show it later.
   */
  async lookBonus() {
    if (!(await this.awaitsBonus())) return false;
    try {
      await this.open(BONUS);
    } catch (wrong) {
      if (wrong instanceof UploadRejected) await this._kept.put(named(BONUS, "no-reward"), "no_bonus");
      else if (!(wrong instanceof CrowdFLError) || (wrong instanceof ServiceError && !wrong.passes)) throw wrong;
      else return false;
    }
    return true;
  }

  async awaitsBonus() {
    return (await this._context.shares()).bonus > 0n && this._kept.awaitsBonus();
  }

  /** @param {number} number */
  async open(number) {
    const { platform, protocol, tell } = this._context;
    const [task, keys] = [await this._context.shares(), await this._context.keys()];
    const envelope = (await this._byRecord(number)) ?? (await platform.reward(task.task, number, keys).catch((said) => hearsay(said, number)));
    const amount = await protocol.openReward(task, await this._context.bundle(), keys, envelope, number);
    const record = number === BONUS ? null : protocol.recordIn(task, await this._context.bundle(), envelope);
    if (record !== null) await this._kept.requireOnly(number, record);
    await this._kept.put(named(number, "reward"), { envelope, amount: amount.toString() });
    tell("rewarded", { round: number, millionths: amount });
    return amount;
  }

  /** Made of CSP's record, where that says what it pays; else SP has a part of it. @param {number} number */
  async _byRecord(number) {
    if (!(await this._kept.hasAny(number, "accepted"))) return null;
    return this._context.protocol.rewardBy(await this._context.shares(), await this._kept.of(number, "record"));
  }

  /** @param {number} number @param {CrowdFLError} wrong */
  async _note(number, wrong) {
    if (wrong instanceof RewardOutOfRange) { // as CSP has signed it: no claim of it would be paid
      await this._kept.put(named(number, "no-reward"), "out_of_range");
      this._context.tell("reward refused", { round: number, why: wrong.message });
      return true;
    }
    if (wrong instanceof RolledBack || (wrong instanceof ServiceError && !wrong.passes)) throw wrong;
    // Not there, not what CSP made, or SP alone says that the upload was left out: the platform may still show it, and one
    // reward must not hold up the rest.
    this._context.tellOnce("reward missing", number, wrong);
    return false;
  }
}

/**
 * That a reward is out of range, this device finds by itself, and of a bonus CSP's signed word says who gets none: SP's word for
 * either gives up nothing.
 * @param {unknown} said @param {number} number @returns {never}
 */
function hearsay(said, number) {
  throw said instanceof RewardOutOfRange || (number === BONUS && said instanceof UploadRejected) ? new NotReady(said.message) : said;
}
