// One task: its rounds as a timeline, uploads, rejections, books; cancel and purge.
import { h, table } from "../web/common/dom.js";
import { duration, formatTime, formatSeconds, money } from "../web/common/format.js";
import { ask, button, facts, stateTag, waitText } from "../web/common/parts.js";
import { said } from "../web/common/said.js";
import { endingWords, isSaid, listOf, t } from "../web/common/text.js";
import { BY_PAGE, get, post, taskPath } from "./api.js";
import { depositTable, disputeTable, paymentTable } from "./money.js";
import { refusals, short, waitsText } from "./tasks.js";

/** @typedef {import("./live.js").Row} Row */
/** @typedef {import("./live.js").Live} Live */
/** @typedef {import("./live.js").Panel} Panel */

const TYPED = 6; // characters that confirm what cannot be undone
const UNDER_WAY = ["running", "paused"];
const COMPUTED = ["closed", "gathered", "published", "weighed"]; // rounds that may wait for CSP
const ALL_ROUNDS = 1000;

/** What is known of a task: fetched again when something of it has changed. */
export class TaskData {
  /** @param {string} task */
  constructor(task) {
    this.task = task;
    this.rounds = 30;
    /** @type {Row | null} */
    this.about = null;
    /** @type {Row[]} */
    this.uploads = [];
  }

  /** @param {string} [mark] */
  async load(mark) {
    const about = await get(`${taskPath(this.task)}?rounds=${this.rounds}`, mark);
    this.uploads = about.round ? await get(`${taskPath(this.task)}/rounds/${about.round}/uploads`, BY_PAGE) : [];
    this.about = about;
  }
}

/** @param {TaskData} data @param {Live} live @param {() => void} reload @returns {Panel[]} */
export function taskPanels(data, live, reload) {
  const drawn = (/** @type {(about: Row) => Node[]} */ draw) => () => (data.about ? draw(data.about) : [h("p.soft", null, t("task.loading"))]);
  const needs = ["task"];
  return [
    { id: "about", needs, draw: drawn(aboutTask) },
    { id: "rounds", needs, draw: drawn((about) => timeline(about, data, reload)) },
    { id: "uploads", needs, draw: drawn((about) => [uploads(about, data.uploads), refusals(about.refusals, live)]) },
    { id: "ledger", needs, draw: drawn(ledger) },
    { id: "task-money", needs, draw: drawn((about) => [
      depositTable(t("money.deposits"), about.deposits, live, t("money.none")), paymentTable(t("money.waiting"), about.payments, live),
      ...(about.disputes.length ? [disputeTable(t("money.disputed"), about.disputes, live)] : [])]) },
  ];
}

/** @param {Row} about */
function aboutTask(about) {
  return [h("h1", null, about.purpose || short(about.task)), facts([
    [t("task.state"), stateTag(about.state)],
    [t("task.waits"), waitsText(about.waits_for)],
    [t("task.people"), t("task.peopleText", { enrolled: about.enrolled, least: about.least })],
    [t("task.roundsName"), t("task.roundsText", { rounds: about.rounds, time: duration(about.window) })],
    [t("task.profile"), about.profile],
    [t("task.learns"), t(`learnt.${about.profile}_sp`)],
    isSaid(`hidden.${about.profile}_sp`) && [t("task.hidden"), t(`hidden.${about.profile}_sp`)],
    [t("task.kgc"), t("common.kgc")],
    about.ended && [t("task.ended"), t("task.endedText", { words: endingWords(about.ended, said), when: formatTime(about.ended_at) })],
    about.claims_until && [t("task.claims"), formatTime(about.claims_until)],
    about.state === "settled" && about.not_told.length && [t("task.notTold"), listOf(about.not_told)],
    [t("task.id"), h("code", null, about.task)],
    [t("task.key"), h("code", null, about.requester)],
  ]), actions(about), ...reasons(about.why)];
}

/** Whom it waits for, since when, what was tried, and what can be typed: as `crowdfl sp task why` says it. @param {Row[]} why */
const reasons = (why) => (why.length ? [h("h2", null, t("task.whyTitle")), h("ul.why", null, ...why.map(reasonItem)), h("p.soft", null, t("task.whySettings"))] : []);

/** @param {Row} cause */
function reasonItem(cause) {
  const commands = [...cause.do, ...cause.ask.map((/** @type {string} */ command) => t("task.whyRequester", { command }))];
  return h("li", null,
    h("p", null, [waitText(cause.wait), ...(cause.since ? [t("task.whySince", { when: formatTime(cause.since) })] : [])].join(" · ")),
    ...cause.tried.map((/** @type {Row} */ one) => h("p.soft", null, t("task.whyTried", { times: one.times, when: formatTime(one.last), error: one.error }))),
    commands.length > 0 && h("pre", null, h("code", null, commands.join("\n"))));
}

/** @param {Row} about */
function actions(about) {
  if (UNDER_WAY.includes(about.state)) return button(t("task.cancel"), () => cancel(about), { id: "cancel-task", kind: "danger" });
  if (about.can_purge) return button(t("task.purge"), () => purge(about), { id: "purge-task", kind: "danger" });
  return h("p.soft", null, t("task.purgeLater"));
}

/** @param {Row} about */
const typed = (about) => ({ name: "begins", label: t("task.typed", { count: TYPED, begins: about.task.slice(0, TYPED) }) });

/** @param {Row} about */
const cancel = (about) => ask({
  title: t("task.cancelTitle"),
  text: [t("task.cancelText")],
  fields: [{ name: "reason", label: t("task.reason"), hint: t("task.reasonHint") }, typed(about)],
  action: t("task.cancelNow"),
}, (values) => post(`${taskPath(about.task)}/cancellation`, values));

/** @param {Row} about @param {number} number */
const retry = (about, number) => ask({
  title: t("task.retryTitle", { number }),
  text: [t("task.retryText")],
  fields: [{ name: "void", label: t("task.void"), kind: "checkbox", hint: t("task.voidHint") }, typed(about)],
  action: t("task.retryNow"),
}, (values) => post(`${taskPath(about.task)}/rounds/${number}/retry`, values));

/** @param {Row} about */
async function purge(about) {
  const held = await get(`${taskPath(about.task)}/held`).catch(() => null);
  const list = listOf(Object.entries(held ?? {}).map(([kind, count]) => t("task.held", { count, kind: isSaid(`held.${kind}`) ? t(`held.${kind}`) : kind })));
  return ask({
    title: t("task.purgeTitle"),
    text: [t("task.purgeText", { list: list || t("task.purgeNothing") })],
    fields: [
      { name: "results", label: t("task.results"), kind: "checkbox", hint: t("task.resultsHint") },
      typed(about)],
    action: t("task.purgeNow"),
  }, (values) => post(`${taskPath(about.task)}/purge`, values));
}

/** @param {Row} about @param {TaskData} data @param {() => void} reload */
function timeline(about, data, reload) {
  const hidden = about.round - about.timeline.length;
  const more = () => { data.rounds = ALL_ROUNDS; reload(); };
  return [
    h("h2", null, t("task.roundsName")),
    h("p.soft", null, t("task.times", { when: formatTime(about.watched_since) })),
    about.timeline.length ? h("ol.rounds", null, ...about.timeline.map((/** @type {Row} */ round) => roundCard(round, about))) : h("p", null, t("task.noRound", { words: waitsText(about.waits_for) })),
    ...(hidden > 0 ? [button(t("task.more", { count: hidden }), more, { id: "more-rounds" })] : []),
  ];
}

/** @param {Row} round @param {Row} about */
function roundCard(round, about) {
  const next = round.steps.findIndex((/** @type {Row} */ step) => !step.done);
  return h("li.card", null,
    h("h3", null, t("task.round", { number: round.number }), " ", stateTag(round.state)),
    h("ol.steps", null, ...round.steps.map((/** @type {Row} */ step, /** @type {number} */ place) => stepItem(step, place === next))),
    h("p", null, [t("task.uploads", { count: round.uploads }), t("task.leftOut", { count: round.rejected }), ...(round.extended ? [t("task.extended")] : [])].join(" · ")),
    COMPUTED.includes(round.state) && button(t("task.retry"), () => retry(about, round.number), { id: `retry-${round.number}` }),
    round.rejected > 0 && h("details", { id: `left-out-${round.number}` }, h("summary", null, t("task.who")),
      table(t("task.leftOutOf", { number: round.number }), [t("task.participant"), t("task.why")], round.rejections.map((/** @type {Row} */ one) => [h("code", null, one.who), t(`why.${one.why}`)]))));
}

/** @param {Row} step @param {boolean} next */
function stepItem(step, next) {
  const look = step.name === "aborted" ? "li.done.aborted" : step.done ? "li.done" : next ? "li.now" : "li";
  const when = step.done ? (step.at ? formatSeconds(step.at) : t("task.timeLost")) : t(next ? "task.next" : "task.notYet");
  return h(look, next ? { "aria-current": "step" } : null, h("strong", null, t(`step.${step.name}`)), h("small", null, when));
}

/** @param {Row} about @param {Row[]} rows */
function uploads(about, rows) {
  return table(about.round ? t("task.uploadsOf", { number: about.round }) : t("task.uploadsNone"), [t("task.when"), t("task.participant"), t("task.inTime")],
    rows.map((row) => [row.at ? formatSeconds(row.at) : t("task.before"), h("code", null, row.who), t(row.late ? "task.late" : "task.yes")]));
}

/** @param {Row} about */
function ledger(about) {
  const books = about.ledger;
  const kinds = ["funded", "returned", "offered", "earned", "expired", "unclaimed"];
  return [
    h("h2", null, t("task.ledger")),
    h("p", null, t("task.ledgerText", { in: money(books.paid_in, about.currency), free: money(books.escrow, about.currency) })),
    table(t("task.byRound"), [t("task.roundColumn"), ...kinds.map((kind) => t(`books.${kind}`))], books.rounds.map((/** @type {Row} */ row) => [row.number === 0 ? t("task.bonus") : row.number, ...kinds.map((kind) => money(row[kind], about.currency))]),
      { numbers: [0, 1, 2, 3, 4, 5, 6], empty: t("task.noMoney") }),
  ];
}
