// Where a campaign stands, in a sentence or two: what happens now, and what its participant can do. No network is asked.

import { formatTime, money } from "../../web/common/format.js";
import { t, together, written } from "../../web/common/text.js";
import { isPaid } from "../protocol/amounts.js";
import { PAY_STATES } from "../agent/api.js";
import { total } from "../agent/claiming.js";
import { plainly } from "./messages.js";
import { textsOf } from "./theirs.js";

/** @typedef {import("./types.js").Campaign} Campaign */
/** @typedef {import("./types.js").RoundView} RoundView */
/** @typedef {"record" | "earnings" | null} Act What to do about it. */
/** @typedef {{ text: string, more: string, act: Act }} Standing */

const FINISHED = ["rewarded", "aborted"];

/** @param {string} text @param {string} [more] @param {Act} [act] @returns {Standing} */
const said = (text, more = "", act = null) => ({ text, more, act });

/** @param {Campaign} campaign @param {boolean} reached Whether the platform answers. @returns {Standing} */
export function standingOf(campaign, reached) {
  return outside(campaign) ?? atWork(campaign, reached) ?? inRound(campaign, reached) ?? between(campaign);
}

/** Of somebody who does not take part, or not now. @param {Campaign} campaign */
function outside(campaign) {
  const { phase, state, stopped, now } = campaign;
  const act = isPayable(campaign) ? "earnings" : null;
  if (phase === "invited") return said(t("standing.invited"));
  if (campaign.withdrawn) return said(t("standing.withdrawn"), t("standing.withdrawnMore"), act);
  if (campaign.replaced) return said(t("standing.replaced"), t("standing.replacedMore"), act);
  if (stopped) return said(t("standing.stopped"), t("standing.stoppedWhy"), act);
  if (phase === "left") return said(t("standing.left"), act ? pay(campaign) : "", act);
  if (phase === "ended") return said(t("standing.ended"), act ? pay(campaign) : t("standing.thanks"), act);
  if (state === "paused") return said(t("standing.paused"), t("standing.pausedUntil"));
  if (now.kind === "elsewhere") return said(t("standing.elsewhere"), t("standing.elsewhereOpen"));
  return null;
}

/** @param {Campaign} campaign */
export const isPayable = ({ claim }) => ["due", "sent", "claimed", "refused", "expired"].includes(claim.state);

/** What is left to do about what was earned, if anything. @param {Campaign} campaign */
function pay({ claim, payTo }) {
  const isAsked = claim.state === "claimed" && payTo.asked && payTo.to === null;
  return t(isAsked || ["due", "sent"].includes(claim.state) ? "standing.stillPaid" : "standing.whatBecame");
}

/** Rounds, and the bonus once it is earned. @param {Pick<Campaign, "rounds" | "bonus">} campaign */
export const paidOf = ({ rounds, bonus = null }) => (bonus ? [...rounds, bonus] : rounds);

/** What was earned, by where it stands: paid is said of what was paid alone. @param {RoundView[]} rounds @param {string} [currency] */
export function sumsOf(rounds, currency) {
  return PAY_STATES.map((state) => /** @type {const} */ ([state, total(rounds.flatMap(({ pay, reward }) => (pay?.state === state && reward !== null ? [reward] : [])))]))
    .filter(([, amount]) => amount > 0n).map(([state, amount]) => t("earnings.sum", { amount: money(amount, currency), state: t(`state.${state}`) }));
}

/** @param {Campaign} campaign @param {boolean} reached */
function atWork({ now, definition, rounds }, reached) {
  const values = { round: now.round ?? 0, of: roundsOf({ definition, rounds }) };
  if (now.kind === "training") return said(t("standing.training", values), t("standing.keepOpen"));
  if (now.kind === "sending" && reached) return said(t("standing.sending", values), t("standing.keepOpen"));
  return null;
}

/** @param {Pick<Campaign, "definition" | "rounds">} campaign */
export const roundsOf = ({ definition, rounds }) => definition?.settings.rounds ?? rounds.length;

/** While a round is open, or being added up. @param {Campaign} campaign @param {boolean} reached */
function inRound(campaign, reached) {
  const last = campaign.rounds.at(-1);
  if (!last || FINISHED.includes(last.state)) return null;
  const values = { round: last.number, of: roundsOf(campaign) };
  const until = last.state === "open" && last.until !== null ? t("standing.until", { when: formatTime(last.until) }) : "";
  const isLast = last.number >= roundsOf(campaign);
  if (last.mine === "arrived") return said(t("standing.arrived", values), isLast ? comeBack(campaign) : last.state === "open" ? t("standing.nothingToDo") : t("standing.addedUp"));
  if (last.mine === "late") return said(t("standing.late", values), isLast ? comeBack(campaign) : t("standing.nothingToDo"));
  if (last.mine === "unused") return said(t("standing.unused", values), t("standing.waitsForNext"));
  if (last.mine === "refused") return said(t("standing.refused", values), t("standing.waitsForNext"));
  if (last.mine === "undrawn") return said(t("standing.notDrawn", values), t(last.state === "open" ? "standing.mayBeDrawn" : "standing.waitsForNext"));
  if (last.state !== "open") return said(t("standing.without", values), t("standing.waitsForNext"));
  if (last.mine === "sending") return said(t(reached ? "standing.sending" : "standing.kept", values), until);
  if (last.mine === "nothing" || !campaign.contributed) return said(t("standing.recordFirst", values), together(until, unsaid(campaign)), "record");
  if (!reached) return said(t("standing.waitsForNetwork", values), until);
  return said(t("standing.open", values), together(until, t("standing.keepOpen")));
}

/** After the last round: when to come back, and for what. @param {Campaign} campaign */
function comeBack({ definition, claim, payTo, rounds }) {
  if (!definition || !isPaid(definition) || claim.until === null) return t("standing.lastThanks");
  const when = formatTime(rounds.at(-1)?.until ?? definition.rounds_until);
  const until = formatTime(claim.until);
  return payTo.asked && payTo.to === null ? t("standing.sayWhere", { when, until }) : t("standing.comeBack", { when, until });
}

/** What was recorded waits for its owner's word. @param {Campaign} campaign */
const unsaid = ({ recordings, contributed }) => (recordings && !contributed ? t("record.notSent") : "");

/** Before the first round, between two, and after the last. @param {Campaign} campaign */
function between(campaign) {
  const { rounds, next, contributed } = campaign;
  const last = rounds.at(-1);
  const act = contributed ? null : "record";
  if (last && last.number >= roundsOf(campaign)) return said(t("standing.lastDone"), comeBack(campaign));
  const before = last ? t("standing.ready") : company(campaign);
  const more = together(act ? unsaid(campaign) || t("standing.recordNow") : before, act && !last && before);
  if (next) return said(t(last ? "standing.nextAt" : "standing.firstAt", { when: formatTime(next) }), more, act);
  return said(t(last ? "standing.waitsNext" : "standing.waitsFirst"), more, act);
}

/** How many have joined, and how many the first round needs. @param {Campaign} campaign */
function company({ enrolled, definition }) {
  if (enrolled === null || !definition) return "";
  const needed = definition.plan.start_with ?? definition.settings.min_participants;
  if (enrolled < needed) return t("standing.gathering", { count: enrolled, needed });
  return t("standing.gathered", { count: enrolled });
}

/** What a campaign is called. @param {Campaign | undefined} campaign */
export function nameOf(campaign) {
  const purpose = campaign?.definition ? plainly(textsOf(campaign.definition).purpose).trim() : "";
  return purpose || t("home.unnamed", { name: campaign?.task.slice(0, 8) ?? "" });
}

/** Of an element that holds the name. @param {Campaign | undefined} campaign */
export const nameLanguage = (campaign) => (campaign?.definition ? written(textsOf(campaign.definition).languages.purpose) : {});
