// A participant's one claim: which rewards go into it, what is waited for, and what becomes of those that cannot.
//
// The port of roles/participant/claims.py. A claim is paid once. A reward that the platform does not show, or says to be refused, is
// therefore waited for: a day after the end, but not past half of the time to claim; where the platform merely fails, until a
// quarter is left. Then the rest is claimed, and the person told. Receipts, rewards and refused claims are kept.

import { hex, sha256 } from "../protocol/bytes.js";
import { MasksDoNotFit, NotReady, TooLate } from "../protocol/errors.js";

/** @typedef {import("./api.js").Status} Status */
/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */

const LONGEST_WAIT = 86400; // seconds
const FAR = 8; // parts of the time to claim that the platform's clock and this device's may differ by
const LOOKS = 10; // a few minutes, as an agent looks

/**
 * What this device itself knows of the time to claim: a platform whose clock jumps must not hurry anyone. A device's clock may
 * be wrong too: after a few looks the platform is believed.
 */
export class ClaimTime {
  /** @param {() => number} now Seconds. */
  constructor(now) {
    this._now = now;
    /** @type {{at: number, left: number} | null} When, and how much time there was at least. */
    this._seen = null;
    this._doubted = 0;
  }

  /** @param {number} window */
  sawRunning(window) {
    this._seen = { at: this._now(), left: window };
    this._doubted = 0;
  }

  /** What an earlier page saw; a later look counts more. @param {number} at @param {number} window */
  sawRunningAt(at, window) {
    this._seen ??= { at, left: window };
  }

  /**
   * What the platform says is left; null where it does not know, or where that cannot be.
   * @param {number | null} left @param {number} window
   */
  believed(left, window) {
    if (left === null) return null;
    this._seen ??= { at: this._now(), left };
    const least = this._seen.left - (this._now() - this._seen.at) - window / FAR;
    if (left >= least || this._doubted >= LOOKS) return left;
    this._doubted += 1;
    return null;
  }
}

/**
 * @typedef {object} ClaimingOptions
 * @property {import("./holdings.js").Holdings} kept
 * @property {number} window Seconds to claim.
 * @property {() => Promise<Status>} status
 * @property {(claim: Bytes) => Promise<import("./api.js").PaidClaim>} pay
 * @property {(rewards: {round: number, envelope: Bytes}[]) => Promise<Bytes>} make
 * @property {(number: number, status: Status) => Promise<unknown>} openReward
 * @property {import("./participant_context.js").OnEvent} tell
 * @property {ClaimTime} time
 * @property {Map<number, boolean>} unread Rounds whose reward could not be read, and whether that may pass.
 */

export class Claiming {
  /** @param {ClaimingOptions} options */
  constructor(options) {
    this._ = options;
    this._kept = options.kept;
  }

  /** @param {boolean} withoutMissing @returns {Promise<bigint>} Millionths paid. */
  async claim(withoutMissing) {
    const paid = await this._kept.get("paid");
    if (paid !== undefined) return BigInt(paid);
    if (!(await this._kept.has("claim"))) await this._make(await this._rounds(withoutMissing));
    for (;;) {
      try {
        return await this._send();
      } catch (refusal) {
        if (refusal instanceof NotReady) await this._kept.change({}, ["claim"]); // made too early: later rewards are not in it
        if (!(refusal instanceof MasksDoNotFit)) throw refusal;
        await this._keepRefused(refusal.message); // so SP says: CSP was restored, and has lost the newest rounds
        if (!withoutMissing) await this._waitForMasks(refusal);
        if (!(await this._makeSmaller(refusal.message))) throw refusal;
      }
    }
  }

  /** The same claim is the same payment. */
  async claimAgain() {
    const paid = BigInt(await this._kept.get("paid"));
    try {
      return await this._send();
    } catch (over) {
      if (!(over instanceof NotReady)) throw over; // its time is over
      return paid;
    }
  }

  async _send() {
    const { paid } = await this._.pay(await this._kept.get("claim"));
    const amount = total(paid.values());
    const missing = [...(await this._asked())].map(([round, asked]) => /** @type {const} */ ([round, asked - (paid.get(round) ?? 0n)]))
      .filter(([, short]) => short > 0n);
    await this._kept.change({ paid: amount.toString(), short: missing.map(([round, short]) => [round, short.toString()]) });
    this._.tell("paid", { millionths: amount, ...(missing.length ? { missing: new Map(missing) } : {}) });
    return amount;
  }

  /** What the claim asks for, by what CSP has signed: an SP that pays less would also say that less was claimed. */
  async _asked() {
    const rounds = /** @type {number[]} */ (await this._kept.get("claimed-rounds"));
    return [...(await this._kept.rewards())].filter(([round]) => rounds.includes(round));
  }

  /** @param {readonly number[]} rounds The claim is durable, with what is in it, before it is sent. */
  async _make(rounds) {
    const rewards = await Promise.all((await this._opened(rounds)).map(async (round) =>
      ({ round, envelope: (await this._kept.of(round, "reward")).envelope })));
    await this._kept.change({ claim: await this._.make(rewards), "claimed-rounds": [...rounds] });
  }

  /** Nobody but SP says that CSP refuses it: the person is told, and can show what was claimed. @param {string} why */
  async _keepRefused(why) {
    const claim = await this._kept.get("claim");
    const evidence = `refused-claims/${hex(await sha256(claim)).slice(0, 16)}`;
    if (await this._kept.add(evidence, claim)) this._.tell("claim refused", { why });
  }

  /** Without the newest round; false if there would be nothing left. @param {string} why */
  async _makeSmaller(why) {
    const rounds = /** @type {number[]} */ (await this._kept.get("claimed-rounds"));
    const newest = (await this._opened(rounds)).slice(-1);
    const rest = rounds.filter((round) => !newest.includes(round));
    if (!newest.length || !rest.length) return false;
    this._.tell("claiming without", { rounds: newest, why });
    await this._make(rest);
    return true;
  }

  /** Those with a reward that the servers computed: what an unused upload earns, SP owes by its receipt alone. @param {readonly number[]} rounds */
  async _opened(rounds) {
    const kept = await Promise.all(rounds.map((round) => this._kept.of(round, "reward")));
    return rounds.filter((_, place) => kept[place]?.envelope);
  }

  /** The rounds to claim: whoever was away may not have read the last. @param {boolean} withoutMissing */
  async _rounds(withoutMissing) {
    const status = await this._.status();
    const rewarded = rewardedIn(status);
    for (const number of rewarded) await this._.openReward(number, status);
    const earned = [...(await this._kept.rewards()).keys()];
    const unread = rewarded.filter((number) => !earned.includes(number));
    const owed = await Promise.all(unread.map((number) => this._isOwed(number)));
    const lost = (await this._opened(earned)).filter((number) => !rewarded.includes(number)); // by an SP that was restored
    const missing = [...unread.filter((_, place) => owed[place]), ...lost];
    if (missing.length && !withoutMissing) this._waitFor(missing, status);
    if (missing.length) this._.tell("claiming without", { rounds: missing, why: "the platform does not show their rewards" });
    return earned.filter((number) => !lost.includes(number));
  }

  /** @param {number} number */
  async _isOwed(number) {
    return (await this._kept.holdsReceipt(number)) && !(await this._kept.hasAny(number, "no-reward"));
  }

  /** @param {readonly number[]} missing @param {Status} status */
  _waitFor(missing, status) {
    const fails = missing.some((number) => this._.unread.get(number)); // and may be back at any moment
    if (!this._isEarly(status, fails)) return;
    throw new NotReady(`the platform does not show the reward of round ${missing.join(", ")}, and a claim is paid once: `
      + "come back later, or claim the rest without it");
  }

  /** The claim stays as it is: only SP says that CSP refuses it. @param {Error} refusal */
  async _waitForMasks(refusal) {
    if (!this._isEarly(await this._.status(), false)) return;
    throw new NotReady(`the platform says that the whole claim is refused (${refusal.message}), and a claim is paid once: `
      + "come back later, or claim without the newest rewards");
  }

  /** @param {Status} status @param {boolean} fails */
  _isEarly(status, fails) {
    const { window, time } = this._;
    const least = fails ? window / 4 : Math.max(window / 2, window - LONGEST_WAIT);
    const believed = time.believed(status.claim_seconds_left ?? null, window);
    return believed === null || believed > least; // null: nobody knows what time it is, and nothing ends meanwhile
  }
}

/** @param {Iterable<bigint>} amounts */
export function total(amounts) {
  return [...amounts].reduce((sum, one) => sum + one, 0n);
}

/** The rounds that were rewarded, of a task that has ended. @param {Status} status */
function rewardedIn(status) {
  if (status.state === "settled") {
    throw new TooLate("the deadline for claims has passed, and what was unclaimed went back to the requester");
  }
  const underWay = status.rounds.some(({ state }) => state !== "rewarded" && state !== "aborted");
  if (status.state === "running" || status.state === "paused" || underWay) {
    throw new NotReady("rewards are claimed once, after the end of the task: come back then");
  }
  return status.rounds.filter(({ state }) => state === "rewarded").map(({ number }) => number);
}
