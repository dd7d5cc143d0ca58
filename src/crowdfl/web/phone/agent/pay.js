// Where a person is to be paid, and why a round pays nothing: in figures and codes, which pages put into words.

import { Conflict, NotReady } from "../protocol/errors.js";
import { total } from "./claiming.js";

export { PAY_KINDS, WrongDestination, checkDestination } from "../protocol/destination.js";

/** @typedef {import("./participant_context.js").ParticipantContext} ParticipantContext */
/** @typedef {{kind: string, to: string, sent: boolean, closed?: boolean}} KeptDestination */

const CENT = 10_000n; // millionths
const OVER = ["rewarded", "closed", "weighed"];
const TOO_LATE = ["TooLate", "RoundNotOpen", "TaskNotRunning", "TaskEnded"];

/**
 * Why a round pays this person nothing that can be paid out; null where it pays, or where nothing is known yet.
 * @param {{paid: boolean, state: string, reward?: {amount: string}, receipt?: string, refused?: {kind?: string}, nothing?: unknown,
 *   noReward?: import("../protocol/reasons.js").Reason, givenUp?: unknown, undrawn?: unknown}} known What is kept of it.
 * @returns {"no_pay" | "not_drawn" | "not_sent" | "too_little" | "late" | "refused" | "void" | "small" | "not_shown"
 *   | import("../protocol/reasons.js").Reason | null}
 */
export function reasonFor({ paid, state, reward, receipt, refused, nothing, noReward, givenUp, undrawn }) {
  const isVoid = state === "aborted" || givenUp;
  if (noReward === "not_in_line") return noReward;
  if (!paid) return noReward ?? (isVoid ? "void" : "no_pay");
  if (reward) return BigInt(reward.amount) < CENT ? "small" : null;
  if (isVoid) return "void";
  if (noReward !== undefined) return noReward;
  if (receipt) return state === "rewarded" ? "not_shown" : null;
  if (refused) return TOO_LATE.includes(refused.kind ?? "") ? "late" : refused.kind === "NotDrawn" ? "not_drawn" : "refused";
  if (undrawn) return "not_drawn";
  if (!OVER.includes(state)) return null;
  return nothing ? "too_little" : "not_sent";
}

/** Where this participant's claim is to be paid. */
export class PayTo {
  /** @param {ParticipantContext} context */
  constructor(context) {
    this._context = context;
    this._kept = context.kept;
  }

  /** Kept until the claim is made, and to be corrected until it is paid. @param {string} kind @param {string} text */
  async put(kind, text) {
    const to = this._context.protocol.checkDestination(kind, text);
    await this._kept.put("pay-to", { kind, to, sent: false });
    await this.send(true);
  }

  /** How the platform pays people; kept, for a page without a network. @returns {Promise<string[]>} */
  async kinds() {
    const { payKinds } = await this._context.platform.offers();
    await this._kept.put("pay-kinds", payKinds);
    return payKinds;
  }

  /**
   * To the platform, sealed to the payer, once there is a claim; false where there is nothing to send yet.
   * @param {boolean} [tell] Throw also what the owner alone can do something about.
   */
  async send(tell = false) {
    const given = /** @type {KeptDestination | undefined} */ (await this._kept.get("pay-to"));
    if (!given || given.sent || given.closed || !(await this._kept.has("paid"))) return false;
    const { platform, protocol, task } = this._context;
    const [{ definition }, keys] = [await this._context.papers(), await this._context.keys()];
    const rounds = /** @type {number[]} */ (await this._kept.get("claimed-rounds"));
    const claimed = total([...(await this._kept.rewards())].filter(([round]) => rounds.includes(round)).map(([, amount]) => amount));
    const sealed = await protocol.sealDestination(task, definition.body.payer, keys, claimed, given.kind, given.to);
    try {
      await platform.payTo(task, sealed, keys);
    } catch (refusal) {
      if (refusal instanceof Conflict) await this._kept.put("pay-to", { ...given, closed: true });
      if (tell || !(refusal instanceof Conflict || refusal instanceof NotReady)) throw refusal;
      return false;
    }
    await this._kept.put("pay-to", { ...given, sent: true });
    this._context.tell("pay to sent", {});
    return true;
  }
}
