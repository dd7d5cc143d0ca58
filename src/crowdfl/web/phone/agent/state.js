// What a page shows of a campaign, from what this device keeps alone: it needs no network.

import { privacyOf, spent } from "../protocol/accounting.js";
import { claimsEarly, isPaid } from "../protocol/amounts.js";
import { keptBody } from "../protocol/documents.js";
import { BONUS } from "../protocol/rewards.js";
import { UNDER_WAY, total } from "./claiming.js";
import { Holdings } from "./holdings.js";
import { reasonFor } from "./unpaid.js";
import { CHARGE, CONTRIBUTION } from "./uploads.js";

/** @typedef {"none" | "training" | "sending" | "arrived" | "late" | "unused" | "refused" | "nothing" | "undrawn"} Mine */

/**
 * @typedef {object} RoundView
 * @property {number} number
 * @property {string} state What SP said last: open, ..., rewarded, aborted.
 * @property {number | null} until When its last upload is taken; seconds since 1970.
 * @property {Mine} mine What became of this participant's update.
 * @property {number | null} accuracyBefore On the owner's held-out data.
 * @property {number | null} accuracyAfter
 * @property {bigint | null} reward Millionths.
 * @property {PayView | null} pay Where its money stands; null: it earned nothing.
 * @property {string | null} why What the platform said when it refused the update, or what the data lacks.
 * @property {import("../protocol/reasons.js").Reason | null} leftOut Why it was left out or is not paid.
 * @property {ReturnType<typeof reasonFor>} reason Why it pays nothing.
 * @property {number | null} samples
 * @property {string | null} receipt
 * @property {string | null} digest Of the model and its server step after the round; null in a task without one.
 */

/**
 * @typedef {object} ClaimView
 * @property {"none" | "later" | "due" | "sent" | "claimed" | "refused" | "expired"} state none: there is nothing to claim. claimed: the platform
 *   has booked it, which is not yet a payment.
 * @property {bigint} amount Millionths that were earned and are not claimed yet.
 * @property {bigint} claimed Millionths that the platform has booked.
 * @property {boolean} early Whether each round can be claimed while the task runs.
 * @property {number | null} until Seconds since 1970, as it was signed.
 * @property {string | null} why
 * @property {number[]} [short] Rounds for which less was booked than was earned.
 * @property {number[]} [disputed] Rounds that whoever runs the platform decides about.
 */

/**
 * @typedef {object} PayToView Where the owner is to be paid.
 * @property {boolean} asked Whether somebody wants to know.
 * @property {string[]} kinds Of which the platform pays; none until it was asked.
 * @property {string | null} kind
 * @property {string | null} to
 * @property {"none" | "waiting" | "sent" | "closed"} state waiting: the platform has not got it; closed: no claim can name it any more.
 * @property {string} fingerprint Of the payer's key, which the requester has signed.
 */

/** Where the money of a round stands, and what is said beside it. @typedef {{ state: import("./api.js").PayState, note: string }} PayView */

/** @typedef {{ epsilon: number, charged: boolean, spent: number, others: number }} NoiseView What privacy costs, here and in other campaigns. */

/**
 * @typedef {object} CampaignView
 * @property {string} task
 * @property {"invited" | "joined" | "left" | "ended"} phase
 * @property {any} definition Its body; null until the platform was asked.
 * @property {string | null} who
 * @property {string | null} state The task's, when this device last looked.
 * @property {import("./holdings.js").Ending | null} ended How the task has ended.
 * @property {string | null} stopped Why this phone takes no further part.
 * @property {boolean} replaced Whether that is because another phone has taken its place.
 * @property {{version: string, language: string, at: number} | null} consent What the owner has agreed to, and when.
 * @property {{at: number, deleted: number[], standing: number[]} | null} withdrawn Once the platform knows it.
 * @property {number | null} next When the next round opens, if the plan says; seconds since 1970.
 * @property {number | null} enrolled How many take part.
 * @property {number | null} seen When this device last saw a change; seconds.
 * @property {RoundView[]} rounds
 * @property {RoundView | null} bonus As a round, once it is earned.
 * @property {bigint} total Rewards so far, millionths.
 * @property {ClaimView} claim
 * @property {PayToView} payTo
 * @property {NoiseView | null} noise
 * @property {boolean} reminders Whether the platform reminds this phone.
 * @property {{round: number, text: string}[]} receipts
 * @property {({round: number} & import("./evidence.js").Difference)[]} differences Where SP's word and CSP's signed record differ.
 */

/**
 * @param {import("./store.js").Store} store @param {string} task
 * @returns {Promise<CampaignView | null>} null: this device does not know the campaign.
 */
export async function view(store, task) {
  const kept = new Holdings(store, task);
  if (!(await kept.has("invitation"))) return null;
  const [definition, keys, status, left, over, certificate, stopped, replaced, consent, withdrawn] = await Promise.all(
    ["definition", "keys", "status", "left", "over", "certificate", "stopped", "replaced", "consent", "withdrawn"].map((key) => kept.get(key)));
  const body = definition ? keptBody(definition) : null;
  const rounds = await roundsOf(kept, status, isPaid(body), (await kept.get("pay-words")) ?? []);
  return {
    task,
    phase: left !== undefined ? "left" : over ? "ended" : certificate ? "joined" : "invited",
    definition: body,
    who: keys?.who ?? null,
    state: status?.state ?? null,
    ended: status?.ended ?? null,
    stopped: stopped ?? null,
    replaced: replaced === true,
    consent: consent ? agreed(keptBody(consent)) : null,
    withdrawn: withdrawn ?? null,
    next: status?.next ?? null,
    enrolled: status?.enrolled ?? null,
    seen: status?.at ?? null,
    rounds: rounds.filter(({ number }) => number !== BONUS),
    bonus: rounds.find(({ number, reward }) => number === BONUS && reward !== null) ?? null,
    total: total(rounds.map(({ reward }) => reward ?? 0n)),
    claim: body && isPaid(body) ? await claimOf(kept, status, body) : NO_CLAIM,
    payTo: await payToOf(kept, body),
    noise: body && await noiseOf(kept, body, rounds),
    reminders: await kept.has("reminded"),
    receipts: rounds.flatMap(({ number, receipt }) => (receipt === null ? [] : [{ round: number, text: receipt }])),
    differences: await Promise.all((await kept.rounds("differs")).map(async (round) => ({ round, ...(await kept.of(round, "differs")) }))),
  };
}

/** @param {Record<string, any>} consent */
const agreed = ({ version, language, at }) => ({ version, language, at });

/** @param {Holdings} kept @param {import("./holdings.js").KeptStatus | undefined} status @param {boolean} paid @param {import("./api.js").PayWord[]} words */
async function roundsOf(kept, status, paid, words) {
  const own = (await kept.store.keys(kept.task, "rounds/")).map((name) => Number(name.split("/")[1]));
  const numbers = new Set([...(status?.rounds ?? []).map(({ number }) => number), ...own]);
  const found = [...numbers].sort((a, b) => a - b).map((number) =>
    roundOf(kept, number, paid, status?.rounds.find((entry) => entry.number === number), words.find(({ round }) => round === number)));
  return Promise.all(found);
}

/**
 * @param {Holdings} kept @param {number} number @param {boolean} paid @param {{state: string, until: number}} [known] @param {import("./api.js").PayWord} [word]
 * @returns {Promise<RoundView>}
 */
async function roundOf(kept, number, paid, known, word) {
  const [before, average, reward, trained, receipt, lost, refused, noted, noReward, givenUp, started, undrawn, answer] = await Promise.all(
    /** @type {const} */ (["before", "average", "reward", "trained", "receipt", "lost-receipt", "refused", "nothing", "no-reward",
      "given-up", "started", "not-drawn", "answer"]).map((key) => kept.of(number, key)));
  const said = (await kept.get(CONTRIBUTION))?.at ?? null;
  const state = known?.state ?? "unknown";
  const nothing = noted?.said === said || state !== "open" ? noted : undefined; // what was said since then is still to be tried
  const sending = (await kept.hasAny(number, "upload")) ? "sending" : "none";
  const training = started !== undefined && state === "open" ? "training" : "none";
  // What was noted before ("nothing", "undrawn") stays until a receipt is there: what happens now comes first.
  const underWay = sending === "none" ? training : sending;
  const without = reward?.unused ? "unused" : refused ? "refused" : underWay !== "none" ? underWay : undrawn ? "undrawn" : nothing ? "nothing" : "none";
  return {
    number,
    state,
    until: known?.until ?? null,
    mine: receipt === undefined ? without : keptBody(receipt).late ? "late" : "arrived",
    accuracyBefore: before?.accuracy ?? null,
    accuracyAfter: average?.accuracy ?? null,
    reward: reward === undefined ? null : BigInt(reward.amount),
    pay: reward === undefined ? null : payOf(answer, word),
    why: refused?.why ?? (without === "nothing" ? nothing?.why : undefined) ?? null,
    leftOut: noReward ?? null,
    reason: reasonFor({ paid, state, reward, receipt: receipt ?? lost, refused, nothing, noReward, givenUp, undrawn }),
    samples: trained?.samples ?? null,
    receipt: receipt ?? lost ?? reward?.unused ?? null,
    digest: average?.state ?? null,
  };
}

/** SP's newest word; before it, what it answered to the claim. @param {import("./holdings.js").Answer} [answer] @param {import("./api.js").PayWord} [word] @returns {PayView} */
function payOf(answer, word) {
  if (word) return { state: word.state, note: word.note };
  if (answer?.how === "missing") return { state: "failed", note: "" };
  return { state: answer ? "claimed" : "earned", note: "" };
}

/** Opened rounds are those with CSP's signed record. @param {Holdings} kept @param {any} body @param {readonly RoundView[]} rounds @returns {Promise<NoiseView | null>} */
async function noiseOf(kept, { settings }, rounds) {
  const privacy = privacyOf(settings);
  if (privacy === null) return null;
  const [own, charges, opened] = await Promise.all([kept.get(CHARGE), kept.store.charges(), kept.rounds("record")]);
  const charged = charges.has(own);
  charges.delete(own);
  const accepted = await kept.rounds("accepted"); // whatever SP said of it
  const mine = rounds.filter(({ number, receipt, mine: how }) =>
    accepted.includes(number) || (receipt !== null && how !== "unused" && opened.includes(number))).length;
  return { epsilon: privacy.epsilon, charged, spent: spent(privacy, mine), others: [...charges.values()].reduce((sum, one) => sum + one, 0) };
}

/** @param {Holdings} kept @param {any} body @returns {Promise<PayToView>} */
async function payToOf(kept, body) {
  const [given, kinds] = [await kept.get("pay-to"), (await kept.get("pay-kinds")) ?? []];
  const state = !given ? "none" : given.closed ? "closed" : given.sent ? "sent" : "waiting";
  const fingerprint = (body?.payer ?? "").slice(0, 16);
  return { asked: isPaid(body) && fingerprint !== "", kinds, kind: given?.kind ?? null, to: given?.to ?? null, state, fingerprint };
}

/** @type {ClaimView} */
const NO_CLAIM = { state: "none", amount: 0n, claimed: 0n, early: false, until: null, why: null };

/**
 * @param {Holdings} kept @param {import("./holdings.js").KeptStatus | undefined} status @param {Record<string, any>} body Of the definition.
 * @returns {Promise<ClaimView>}
 */
async function claimOf(kept, status, body) {
  const [answers, unanswered, notPaid, extended] = [await kept.answers(), await kept.unanswered(), await kept.get("not-paid"), await kept.get("claims-extended")];
  const found = {
    amount: total(unanswered.values()), claimed: await kept.booked(), early: claimsEarly(body.settings), until: extended?.until ?? body.claims_until,
    why: unanswered.size > 0 && notPaid ? notPaid.why : null, short: [...(await kept.short()).keys()], disputed: await kept.disputed(),
  };
  if (!unanswered.size && answers.size) return { state: "claimed", ...found };
  if (notPaid) return { state: notPaid.late ? "expired" : "refused", ...found };
  if (!unanswered.size && !(await kept.owed()).length) return { state: "none", ...found };
  const isOver = status !== undefined && !UNDER_WAY.includes(status.state);
  const claim = await kept.get("claim");
  const isSent = claim && [...unanswered.keys()].every((round) => [...claim.rounds, ...claim.unused].includes(round));
  const isOpen = isOver || (found.early && unanswered.size > 0);
  return { state: !isOpen ? "later" : isSent && unanswered.size ? "sent" : "due", ...found };
}
