// One task: its rounds as a timeline, uploads, rejections, books; cancel and purge.
import { h, table } from "../web/common/dom.js";
import { duration, formatTime, formatSeconds, money, plural } from "../web/common/format.js";
import { ask, button, facts, stateTag } from "../web/common/parts.js";
import { BY_PAGE, get, post, taskPath } from "./api.js";
import { depositTable, paymentTable } from "./money.js";
import { refusals, short } from "./tasks.js";

/** @typedef {import("./live.js").Row} Row */
/** @typedef {import("./live.js").Live} Live */
/** @typedef {import("./main.js").Panel} Panel */

const TYPED = 6; // characters that confirm what cannot be undone
const UNDER_WAY = ["running", "paused"];
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
  const drawn = (/** @type {(about: Row) => Node[]} */ draw) => () => (data.about ? draw(data.about) : [h("p.soft", null, "Loading …")]);
  const needs = ["task"];
  return [
    { id: "about", needs, draw: drawn(aboutTask) },
    { id: "rounds", needs, draw: drawn((about) => timeline(about, data, reload)) },
    { id: "uploads", needs, draw: drawn((about) => [uploads(about, data.uploads), refusals(about.refusals, live)]) },
    { id: "ledger", needs, draw: drawn(ledger) },
    { id: "task-money", needs, draw: drawn((about) => [
      depositTable("Deposits", about.deposits, live, "none"), paymentTable("Payments that wait", about.payments, live)]) },
  ];
}

/** @param {Row} about */
function aboutTask(about) {
  return [h("h1", null, about.purpose || short(about.task)), facts([
    ["State", stateTag(about.state)],
    ["Waits for", about.waits_for],
    ["Participants", `${about.enrolled} enrolled, at least ${about.least} in a round`],
    ["Rounds", `${about.rounds}, each open for ${duration(about.window)}`],
    ["Profile", about.profile],
    ["This SP learns", about.learns],
    ["It does not learn", about.hidden],
    about.ended && ["Ended", `${about.ended}, on ${formatTime(about.ended_at)}`],
    about.claims_until && ["Claims until", formatTime(about.claims_until)],
    about.state === "settled" && about.not_told.length && ["Have not heard of its end", about.not_told.join(", ")],
    ["Task", h("code", null, about.task)],
    ["Requester's key", h("code", null, about.requester)],
  ]), actions(about)];
}

/** @param {Row} about */
function actions(about) {
  if (UNDER_WAY.includes(about.state)) return button("Cancel this task …", () => cancel(about), { id: "cancel-task", kind: "danger" });
  if (about.state === "settled") return button("Purge what is held …", () => purge(about), { id: "purge-task", kind: "danger" });
  return h("p.soft", null, "It can be purged when claims have ended.");
}

/** @param {Row} about */
const typed = (about) => ({ name: "begins", label: `Type the first ${TYPED} characters of the task's id: ${about.task.slice(0, TYPED)}` });

/** @param {Row} about */
const cancel = (about) => ask({
  title: "Cancel this task",
  text: ["No further round opens. An open round is aborted, and its money returns to escrow. What people have earned stays claimable. This is final."],
  fields: [{ name: "reason", label: "Reason", hint: "In a sentence. Everyone in the task can read it." }, typed(about)],
  action: "Cancel the task",
}, (values) => post(`${taskPath(about.task)}/cancellation`, values));

/** @param {Row} about */
async function purge(about) {
  const held = await get(`${taskPath(about.task)}/held`).catch(() => null);
  const list = held && Object.entries(held).map(([kind, count]) => `${count} ${kind}`).join(", ");
  return ask({
    title: "Purge what is held of this task",
    text: [`Held now: ${list || "nothing"}. What is erased cannot be had again. Names, books and payments stay.`],
    fields: [
      { name: "results", label: "Averages, rewards and initial weights too", kind: "checkbox", hint: "Participants and the requester can read them no more." },
      typed(about)],
    action: "Purge",
  }, (values) => post(`${taskPath(about.task)}/purge`, values));
}

/** @param {Row} about @param {TaskData} data @param {() => void} reload */
function timeline(about, data, reload) {
  const hidden = about.round - about.timeline.length;
  const more = () => { data.rounds = ALL_ROUNDS; reload(); };
  return [
    h("h2", null, "Rounds"),
    h("p.soft", null, `Times of steps are known since ${formatTime(about.watched_since)}, when this process of SP began. When a round opened is always known.`),
    about.timeline.length ? h("ol.rounds", null, ...about.timeline.map(roundCard)) : h("p", null, `None yet: the task waits for ${about.waits_for}.`),
    ...(hidden > 0 ? [button(`Show ${plural(hidden, "earlier round")}`, more, { id: "more-rounds" })] : []),
  ];
}

/** @param {Row} round */
function roundCard(round) {
  const next = round.steps.findIndex((/** @type {Row} */ step) => !step.done);
  return h("li.card", null,
    h("h3", null, `Round ${round.number} `, stateTag(round.state)),
    h("ol.steps", null, ...round.steps.map((/** @type {Row} */ step, /** @type {number} */ place) => stepItem(step, place === next))),
    h("p", null, `${plural(round.uploads, "upload")}, ${round.rejected} left out${round.extended ? "; extended once" : ""}`),
    round.rejected > 0 && h("details", { id: `left-out-${round.number}` }, h("summary", null, "Who was left out, and why"),
      table(`Left out of round ${round.number}`, ["participant", "why"], round.rejections.map((/** @type {Row} */ one) => [h("code", null, one.who), one.why]))));
}

/** @param {Row} step @param {boolean} next */
function stepItem(step, next) {
  const look = step.name === "aborted" ? "li.done.aborted" : step.done ? "li.done" : next ? "li.now" : "li";
  const when = step.done ? (step.at ? formatSeconds(step.at) : "done, time not kept") : next ? "next" : "not yet";
  return h(look, next ? { "aria-current": "step" } : null, h("strong", null, step.name), h("small", null, when));
}

/** @param {Row} about @param {Row[]} rows */
function uploads(about, rows) {
  return table(about.round ? `Uploads to round ${about.round}, the newest first` : "Uploads", ["when", "participant", "in time"],
    rows.map((row) => [row.at ? formatSeconds(row.at) : "before this process began", h("code", null, row.who), row.late ? "late" : "yes"]));
}

/** @param {Row} about */
function ledger(about) {
  const books = about.ledger;
  const kinds = ["funded", "returned", "offered", "earned", "expired", "unclaimed"];
  return [
    h("h2", null, "Ledger"),
    h("p", null, `Paid in and not refunded: ${money(books.paid_in)}. Not promised to a round: ${money(books.escrow)}.`),
    table("By round", ["round", ...kinds], books.rounds.map((/** @type {Row} */ row) => [row.number, ...kinds.map((kind) => money(row[kind]))]),
      { numbers: [0, 1, 2, 3, 4, 5, 6], empty: "no money has moved for a round" }),
  ];
}
