// A task's definition in the words of someone who is asked to take part: plain text, no markup.

import { privacyOf } from "../protocol/accounting.js";
import { claimsEarly, estimateOf, toMillionths } from "../protocol/amounts.js";
import { duration, formatTime, money, moneyExactly, moneyRange } from "../../web/common/format.js";
import { listOf, locale, t, together } from "../../web/common/text.js";
import { slowNames } from "./sensors.js";

/** @typedef {import("./types.js").DefinitionBody} DefinitionBody */

/** In a smaller crowd an average says too much about one person; the Python participant has the same number. */
export const LEAST_PARTICIPANTS = 5;
const WEAK = 10; // a larger epsilon promises next to nothing
const BETWEEN = 20; // seconds from one activity to the next

/** @param {DefinitionBody} definition */
export function sensorsOf(definition) {
  const channels = definition.training.channels ?? 6;
  const motion = channels === 3 ? t("about.moved") : channels === 6 ? t("about.movedAndTurned") : t("about.otherSensors", { channels });
  return together(motion, extraSensors(definition));
}

/** The sensors beside motion, which ask for permissions of their own; "" without any. @param {DefinitionBody} definition */
export function extraSensors(definition) {
  const names = listOf(slowNames(definition).map((name) => t(`sensor.${name}`)));
  return names && t("about.beside", { sensors: names });
}

/** @param {DefinitionBody} definition */
export const recordsWithSensors = ({ training }) => [3, 6].includes(training.channels ?? 6);

/** The least seconds of a recording that some is trained on and some held back. @param {DefinitionBody} definition */
export function leastSeconds({ training }) {
  const { window_samples: length = 100, hertz = 50, held_out: held = 0.3 } = training;
  return Math.ceil(Math.max(length / (1 - held), (2 * length) / held) / hertz) + 1;
}

/** "3 activities, about 2 minutes": each is recorded once. @param {DefinitionBody} definition */
export function effortWords(definition) {
  const count = (definition.training.labels ?? []).length;
  const minutes = Math.ceil(count * (leastSeconds(definition) + BETWEEN) / 60);
  return t("invite.effort", { activities: t("invite.activities", { count }), minutes: t("invite.minutes", { count: minutes }) });
}

/** How often, in a line. @param {DefinitionBody} definition */
export function roundsLine({ settings, plan }) {
  return together(t("about.rounds", { count: settings.rounds }), paceWords(plan));
}

/** @param {DefinitionBody["plan"]} plan */
function paceWords({ every }) {
  if (typeof every === "string") return t("about.daily", { at: every.slice("day at ".length) });
  return every === null ? "" : t("about.every", { gap: duration(every) });
}

/** @param {DefinitionBody} definition */
export function durationWords(definition) {
  const { settings, plan } = definition;
  const count = plan.start_with ?? settings.min_participants;
  return [
    plan.enrol_until !== null && t("about.joinUntil", { when: momentOf(plan.enrol_until) }),
    plan.start_at === null ? t("about.firstWith", { count }) : t("about.firstAt", { when: momentOf(plan.start_at), count }),
    roundsLine(definition),
    t("about.lastDay", { when: formatTime(definition.rounds_until) }),
    together(t("about.openFor", { long: duration(settings.window) }), settings.late > 0 && t("about.openLate", { long: duration(settings.late) })),
    t("about.openLonger", { count: settings.min_participants }),
    plan.goal !== null && t("about.earlyGoal", { count: plan.goal }),
    plan.closes === "everyone" && t("about.earlyEveryone"),
    settings.per_round == null ? t("about.everyRound") : t("about.drawn", { count: settings.per_round }),
  ].filter((words) => words !== false);
}

/** @param {string} text A moment with its offset. */
const momentOf = (text) => formatTime(Date.parse(text) / 1000);

/** @param {DefinitionBody} definition */
export const isPaid = ({ settings }) => settings.budget !== null && settings.budget !== undefined && settings.pay !== "none";

/** About how much, in a line. @param {DefinitionBody} definition */
export function payLine(definition) {
  const estimate = estimateOf(definition);
  if (!estimate) return t("about.unpaid");
  const { settings } = definition;
  if (settings.pay === "fixed") return fixedLine(settings);
  const range = moneyRange(estimate.low, estimate.high, definition.settings.currency ?? "EUR");
  return t(estimate.varies ? "invite.paidUnequally" : "invite.paid", { range });
}

/** @param {Record<string, any>} settings */
function amountsOf({ each, bonus, rounds: count, currency }) {
  const words = (/** @type {any} */ amount) => money(toMillionths(amount), currency ?? "EUR");
  return { each: words(each), bonus: bonus === null ? "" : words(bonus), count };
}

/** So much for each round, and what comes on top, in a line. @param {Record<string, any>} settings */
function fixedLine(settings) {
  const [values, drawn] = [amountsOf(settings), settings.per_round !== null];
  const bonus = values.bonus && t(drawn ? "invite.bonusDrawn" : "invite.bonus", values);
  return listOf([t(drawn ? "invite.fixedDrawn" : "invite.fixed", values), bonus].filter(Boolean), "unit");
}

/** The same in whole sentences. @param {Record<string, any>} settings */
function fixedWords(settings) {
  const [values, drawn] = [amountsOf(settings), settings.per_round !== null];
  return together(t(drawn ? "about.fixedDrawn" : "about.fixed", values), values.bonus && t(drawn ? "about.bonusDrawn" : "about.bonus", values));
}

/** @param {DefinitionBody} definition */
export function paymentWords(definition) {
  const { settings, plan, claims_until: until } = definition;
  if (!isPaid(definition)) return [t("about.unpaid")];
  const words = (/** @type {any} */ amount) => moneyExactly(toMillionths(amount), settings.currency ?? "EUR");
  const unused = plan.unused_pay == null ? t("about.unusedNoPay") : t("about.unusedPay", { amount: words(plan.unused_pay) });
  return [
    ...(settings.pay === "fixed" ? [fixedWords(settings)] : [t("about.budget", { amount: words(settings.budget) }), t(`share.${settings.pay ?? "equal"}`)]), ...(plan.goal === null ? [] : [unused]),
    t(claimsEarly(settings) ? (definition.payer ? "about.claimPlaced" : "about.claimEarly") : "about.claim", { when: formatTime(until) }),
    t(claimsEarly(settings) ? "about.claimDates" : "about.claimShows"),
  ];
}

/**
 * What others hold of a participant: until when, then by whom. Where nobody asks where to pay, no payer holds anything.
 * @param {number | null} until When claims end, of a campaign that pays. @param {boolean} asked
 */
export function heldWords(until, asked) {
  const parties = ["sp", "csp", "kgc", "asker", ...(asked ? ["payer"] : [])];
  return [until === null ? t("data.endsUnpaid") : t("data.ends", { when: formatTime(until) }), ...parties.map((party) => t(`data.${party}`))];
}

/** How people count in an average. @param {DefinitionBody} definition */
export const countingWords = ({ settings }) => t(settings.weighting === "equal" ? "about.countOnce" : "about.countMore");

/** Whether the requester compares what arrives with its own. @param {DefinitionBody} definition */
export const referenceWords = ({ settings }) => (settings.reference ? [t("about.compared")] : []);

/** What noise promises each person, and what that makes with the epsilon of others; nothing without. @param {DefinitionBody} definition @param {number} others */
export function privacyWords({ settings }, others) {
  const privacy = privacyOf(settings);
  if (privacy === null) return [];
  const { epsilon, delta, sigma, length } = privacy;
  return [
    t(epsilon > WEAK ? "about.weakEpsilon" : "about.epsilon", { epsilon: short(epsilon), delta: short(delta) }),
    t("about.noise", { share: short(sigma / length) }),
    t(others > 0 ? "about.withOthers" : "about.addsUp", { sum: short(epsilon + others) }),
  ];
}

/** Never with an exponent. @param {number} value */
export const short = (value) => new Intl.NumberFormat(locale(), { maximumSignificantDigits: 3 }).format(value);

/** @param {DefinitionBody} definition */
export function crowdWords(definition) {
  const count = definition.settings.min_participants;
  return [t("about.crowd", { count }), isSmallCrowd(definition) && t("about.smallCrowd", { count: LEAST_PARTICIPANTS })].filter((words) => words !== false);
}

/** Whether SP lets people in, and may be everybody else. @param {DefinitionBody} definition */
export const isRecruited = ({ recruiter }) => Boolean(recruiter);

/** Whether its owner must accept that: no noise hides anyone. @param {DefinitionBody} definition */
export const needsAllTheSame = (definition) => isRecruited(definition) && privacyOf(definition.settings) === null;

/** One sentence about it. @param {DefinitionBody} definition */
export const recruitingWords = (definition) => t(needsAllTheSame(definition) ? "invite.recruits" : "invite.recruitsWithNoise");

/** @param {DefinitionBody} definition */
export const isSmallCrowd = ({ settings }) => settings.min_participants < LEAST_PARTICIPANTS;
