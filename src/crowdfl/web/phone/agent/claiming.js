// A participant's claim: which rounds go into it, when it is sent, and what SP has answered of each.
//
// The port of roles/participant/claims.py. A claim is cumulative: the newest one names every round that can be claimed so far, and where
// to be paid. CSP attests by person and round, so a claim of some rounds forfeits none, and the same one again is the same payment:
// nothing is waited for, and nothing given up. That SP books a claim does not say that anybody was paid.

import { hex, sha256 } from "../protocol/bytes.js";
import { ClaimRefused, MasksDoNotFit, NotReady, TooLate } from "../protocol/errors.js";
import { BONUS } from "../protocol/rewards.js";
import { difference } from "./evidence.js";
import { named } from "./holdings.js";

/** @typedef {import("./api.js").Status} Status */
/** @typedef {import("./api.js").ClaimAnswer} ClaimAnswer */
/** @typedef {import("./holdings.js").Answer} Answer */
/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */
/** @typedef {import("./participant_context.js").ParticipantContext} ParticipantContext */

/** What a claim says. @typedef {{ rounds: number[], unused: number[], counter: number }} Contents */
/** The one that was made last; `answered`: in which epoch of SP's, null: nobody knows. @typedef {Contents & { bytes: Bytes, destination: Bytes, answered: string | null, at: number }} KeptClaim */
/** Why nothing more is paid, as SP says: `late` where the signed day is over too. @typedef {{ why: string, late: boolean, early: boolean, of: string, at: number }} NotPaid */

export const UNDER_WAY = ["running", "paused"];
const OVER = ["rewarded", "aborted"];
const AGAIN = 3600; // seconds until what is disputed, or was refused before its day, is asked about again
const LONGEST_WAIT = 86400; // seconds after the end until an owner is told what SP does not show

export class Claims {
  /** @param {ParticipantContext} context */
  constructor(context) {
    this._context = context;
    this._kept = context.kept;
  }

  /** Whether anything can be claimed that SP has not answered. @param {Status} status */
  async isDue(status) {
    const contents = await this._contents();
    if (!isAnything(contents) || !(await this._isOpen(status))) return false;
    const refused = /** @type {NotPaid | undefined} */ (await this._kept.get("not-paid"));
    if (refused?.of === keyOf(contents, status)) return refused.early && this._isAgain(refused.at);
    const claim = /** @type {KeptClaim | undefined} */ (await this._kept.get("claim"));
    if (!claim || claim.answered !== epochOf(status) || !isSame(claim, contents)) return true;
    return (await this._isOpenStill()) && this._isAgain(claim.at);
  }

  /** Whether SP may still answer something: the signed day says how long. @param {Status} status */
  async isAwaited(status) {
    if (await this.isDue(status)) return true;
    const refused = /** @type {NotPaid | undefined} */ (await this._kept.get("not-paid"));
    if ((refused && !refused.early) || this._context.now() >= (await this._context.claimsUntil())) return false;
    if ((await this._context.shares()).bonus && (await this._kept.awaitsBonus())) return true;
    const waits = [await this._kept.missing(), [...(await this._kept.unanswered())]];
    return Boolean(refused) || waits.some(({ length }) => length > 0) || this._isOpenStill();
  }

  /** Whether an answer may be another one later: the operator has to decide, or SP has lost a round. */
  async _isOpenStill() {
    return (await this._kept.disputed()).length > 0 || (await this._kept.short()).size > 0;
  }

  /** Claim all that can be claimed now. @param {Status} status @returns {Promise<bigint>} Millionths that SP has booked so far. */
  async claim(status) {
    const contents = await this._contents();
    await this._requireOpen(status, contents);
    let { rounds } = contents;
    for (;;) {
      try {
        if (status.state === "settled" && (await this._isBooked(rounds))) return this._kept.booked();
        if (status.state === "settled") throw new TooLate("the platform says that the time to claim is over");
        await this._send(await this._made({ ...contents, rounds }), status);
        if (rounds.length === contents.rounds.length) await this._kept.change({}, ["not-paid"]);
        return this._kept.booked();
      } catch (refusal) {
        if (!(refusal instanceof TooLate || refusal instanceof ClaimRefused)) throw refusal;
        await this._noteRefused(refusal, contents, status);
        const rest = refusal instanceof TooLate ? [] : without(rounds, refusal, status);
        if (!rest.length) throw refusal;
        rounds = rest;
      }
    }
  }

  /**
   * Have SP say where the money stands; kept, for a page without a network. What was booked for a person who had said where to be paid
   * needs no claim.
   */
  async askPay() {
    if (!(await this._kept.answers()).size && !(await this._kept.has("place-kept"))) return;
    const { platform, task } = this._context;
    const words = await platform.pay(task, await this._context.keys());
    const [rewards, answers] = [await this._kept.rewards(), await this._kept.answers()];
    const booked = words.filter(({ round, amount }) => !answers.has(round) && rewards.get(round) === BigInt(amount));
    await this._kept.change({ "pay-words": words, ...Object.fromEntries(booked.map(({ round, amount }) => [named(round, "answer"), { how: "paid", amount }])) });
    this._context.tell("pay words", {});
  }

  /** Whether SP has booked all of it without a claim. @param {number[]} rounds */
  async _isBooked(rounds) {
    await this.askPay();
    const answers = await this._kept.answers();
    return rounds.every((round) => answers.has(round));
  }

  /**
   * Of a task that is over: what CSP has signed, or SP has taken, and SP does not show.
   * @param {Status} status @param {number | null} since When this device first saw it over.
   */
  async tellDifferences(status, since) {
    if (UNDER_WAY.includes(status.state)) return;
    const rewarded = status.rounds.filter(({ state }) => state === "rewarded").map(({ number }) => number);
    const accepted = [...(await this._opened()), ...(await this._kept.rounds("accepted"))];
    for (const round of new Set(accepted.filter((one) => one !== BONUS))) if (!rewarded.includes(round)) await this._tellDifference(round);
    const { roundsUntil, claimsUntil } = await this._context.shares();
    if (since === null || this._context.now() - since < Math.min(LONGEST_WAIT, (claimsUntil - roundsUntil) / 2)) return;
    for (const round of await this._kept.unheard()) {
      if (await this._kept.holdsReceipt(round)) await this._tellDifference(round, { said: "taken", signed: "nothing" });
    }
  }

  /** @param {Status} status @param {Contents} contents */
  async _requireOpen(status, contents) {
    if (!isAnything(contents)) throw new NotReady("there is nothing to claim yet: come back when a round is rewarded");
    if (!(await this._isOpen(status))) throw new NotReady("rewards of this task are claimed after its last round: come back then");
  }

  /** @param {Status} status */
  async _isOpen(status) {
    if ((await this._context.shares()).claimsEarly) return true;
    return !UNDER_WAY.includes(status.state) && status.rounds.every(({ state }) => OVER.includes(state));
  }

  /** @param {number} at */
  _isAgain(at) {
    return this._context.now() - at >= AGAIN;
  }

  /** Those with a reward that the servers computed. */
  async _opened() {
    const numbers = await this._kept.rounds("reward");
    const kept = await Promise.all(numbers.map((round) => this._kept.of(round, "reward")));
    return numbers.filter((_, place) => kept[place].envelope);
  }

  /** What an unused upload earns can be claimed once its round has CSP's word: it may have been used after all. */
  async _unused() {
    const [opened, numbers] = [await this._opened(), await this._kept.rounds("reward")];
    const known = await Promise.all(numbers.map((round) => this._kept.hasAny(round, "record", "end")));
    return numbers.filter((round, place) => known[place] && !opened.includes(round));
  }

  /** @returns {Promise<Contents>} A destination is named once SP has it. */
  async _contents() {
    const given = await this._kept.get("pay-to");
    const before = /** @type {KeptClaim | undefined} */ (await this._kept.get("claim"));
    return { rounds: await this._opened(), unused: await this._unused(), counter: given?.sent && !given.closed ? given.counter : before?.counter ?? 0 };
  }

  /** The claim that says this: durable, with what is in it, before it is sent. @param {Contents} contents @returns {Promise<KeptClaim>} */
  async _made({ rounds, unused, counter }) {
    const before = /** @type {KeptClaim | undefined} */ (await this._kept.get("claim"));
    if (before && isSame(before, { rounds, unused, counter })) return before;
    const { protocol } = this._context;
    const [task, keys, bundle] = [await this._context.shares(), await this._context.keys(), await this._context.bundle()];
    const rewards = await Promise.all(rounds.map(async (round) => ({ round, envelope: (await this._kept.of(round, "reward")).envelope })));
    const destination = counter === before?.counter ? before.destination : await this._destination(counter);
    const bytes = await protocol.makeClaim(task, keys, { rewards, unused, destination, counter }, bundle);
    const made = { rounds, unused, counter, destination, bytes, answered: null, at: this._context.now() };
    await this._kept.put("claim", made);
    return made;
  }

  /** @param {number} counter @returns {Promise<Bytes>} The hash of the one with this counter. */
  async _destination(counter) {
    if (!counter) return new Uint8Array(0);
    return sha256((await this._kept.get("pay-to")).sealed);
  }

  /** @param {KeptClaim} claim @param {Status} status */
  async _send(claim, status) {
    const { platform, task, tell } = this._context;
    const answer = await platform.claim(task, claim.bytes, await this._context.keys());
    const found = await this._answers(claim, answer);
    const before = await this._kept.answers();
    const isNews = found.some(([round, { how, amount }]) => before.get(round)?.how !== how || before.get(round)?.amount !== amount);
    await this._kept.change({
      claim: { ...claim, answered: epochOf(status), at: this._context.now() },
      ...Object.fromEntries(found.map(([round, one]) => [named(round, "answer"), one])),
    });
    if (!isNews) return;
    const [disputed, missing] = [await this._kept.disputed(), await this._kept.short()];
    tell("claimed", { millionths: await this._kept.booked(), ...(disputed.length ? { disputed } : {}), ...(missing.size ? { missing } : {}) });
  }

  /**
   * SP's word of each round that was claimed. What it leaves out, it does not pay.
   * @param {KeptClaim} claim @param {ClaimAnswer} answer @returns {Promise<[number, Answer][]>}
   */
  async _answers({ rounds, unused }, { paid, unused: owed, disputed }) {
    return [...rounds, ...unused].map((round) => {
      if (disputed.has(round)) return [round, { how: "disputed", amount: String(disputed.get(round)) }];
      if (owed.get(round)) return [round, { how: "unused", amount: String(owed.get(round)) }];
      return [round, paid.get(round) ? { how: "paid", amount: String(paid.get(round)) } : { how: "missing", amount: "0" }];
    });
  }

  /**
   * Nobody but SP says so: the person is told, and can show what was claimed. A refusal before the signed day is not the last word.
   * @param {Error} refusal @param {Contents} contents @param {Status} status
   */
  async _noteRefused(refusal, contents, status) {
    const [claim, late] = [/** @type {KeptClaim | undefined} */ (await this._kept.get("claim")), refusal instanceof TooLate];
    const isOver = this._context.now() >= (await this._context.claimsUntil());
    if (late && !(await this._kept.unanswered()).size) return this._closePayTo(); // the place to be paid alone is new
    if (claim && !late) await this._kept.add(`refused-claims/${hex(await sha256(claim.bytes)).slice(0, 16)}`, claim.bytes);
    /** @type {NotPaid} */
    const found = { why: refusal.message, late: late && isOver, early: late && !isOver, of: keyOf(contents, status), at: this._context.now() };
    const before = await this._kept.get("not-paid");
    await this._kept.put("not-paid", found);
    if (before?.of !== found.of || before.late !== found.late) this._context.tell("not paid", { why: refusal.message });
  }

  async _closePayTo() {
    const given = await this._kept.get("pay-to");
    if (given) await this._kept.put("pay-to", { ...given, closed: true });
  }

  /**
   * SP does not count a round whose reward CSP has signed.
   * @param {number} round @param {import("./evidence.js").Difference} [found]
   */
  async _tellDifference(round, found = { said: "no_average", signed: "accepted" }) {
    const news = await difference(this._kept, round, found);
    if (!Object.keys(news).length) return;
    await this._kept.change(news);
    this._context.tell("words differ", { round, ...found });
  }
}

/** @param {Contents} contents */
const isAnything = ({ rounds, unused }) => rounds.length + unused.length > 0;

/** @param {Contents} one @param {Contents} other */
const isSame = (one, other) => sayOf(one) === sayOf(other);

/** @param {Contents} contents */
const sayOf = ({ rounds, unused, counter }) => JSON.stringify([rounds, unused, counter]);

/** @param {Status} status */
function epochOf(status) {
  return String(status.epoch ?? "");
}

/** @param {Contents} contents @param {Status} status */
const keyOf = (contents, status) => `${sayOf(contents)} ${epochOf(status)}`;

/**
 * Those that are claimed after a refusal, without what it may be about: rounds that SP has lost, then the newest that CSP has lost.
 * @param {number[]} rounds @param {Error} refusal @param {Status} status
 */
function without(rounds, refusal, status) {
  const shown = rounds.filter((round) => round === BONUS || status.rounds.some(({ number, state }) => number === round && state === "rewarded"));
  if (shown.length < rounds.length) return shown;
  return refusal instanceof MasksDoNotFit ? rounds.slice(0, -1) : [];
}

/** @param {Iterable<bigint>} amounts */
export function total(amounts) {
  return [...amounts].reduce((sum, one) => sum + one, 0n);
}
