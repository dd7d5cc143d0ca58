// The first view: how SP and its peers are, every task, and what has just happened.
import { h, table } from "../web/common/dom.js";
import { bytes, formatTime, formatSeconds, percent } from "../web/common/format.js";
import { stateTag, waitText } from "../web/common/parts.js";
import { said } from "../web/common/said.js";
import { isSaid, listOf, t } from "../web/common/text.js";
import { eventText } from "./messages.js";

/** @typedef {import("./live.js").Row} Row */
/** @typedef {import("./live.js").Live} Live */
/** @typedef {import("./live.js").Panel} Panel */

/** The part of a long name that people compare. @param {string} id */
export const short = (id) => id.slice(0, 8);

/** @param {readonly import("../web/common/parts.js").Wait[]} waits */
export const waitsText = (waits) => (waits.length ? listOf(waits.map(waitText)) : t("wait.nothing"));

/** @param {Live} live @returns {Panel[]} */
export function tasksPanels(live) {
  return [
    { id: "health", needs: ["health"], draw: () => health(live.rows("health")) },
    { id: "tasks", needs: ["tasks"], draw: () => tasks(live.rows("tasks")) },
    { id: "arrivals", needs: ["arrivals", "tasks"], draw: () => [arrivals(live), h("p.soft", null, t("tasks.seen"))] },
    { id: "refusals", needs: ["refusals", "tasks"], draw: () => [refusals(live.rows("refusals"), live)] },
    { id: "happened", needs: ["news", "tasks"], draw: () => [news(live)] },
  ];
}

/** @param {Row[]} rows */
function health(rows) {
  const word = (/** @type {Row} */ { name, code, since, free, share, count = 0 }) => {
    const values = { name: isSaid(`healthOf.${name}`) ? t(`healthOf.${name}`) : name,
      words: t(`health.${code}`, { count, size: free === undefined ? "" : bytes(free * 1e9), share: share === undefined ? "" : percent(share) }) };
    return since ? t("tasks.since", { ...values, when: formatTime(since) }) : t("tasks.well", values);
  };
  return [
    h("h2.for-readers", null, t("tasks.health")),
    h("ul.health", null, ...rows.map((row) => h(row.well ? "li" : "li.ill", null, row.well ? "" : "⚠ ", word(row)))),
  ];
}

/** Those under way first. @param {Row[]} rows */
function tasks(rows) {
  const order = ["running", "paused", "finished", "cancelled", "settled"];
  const sorted = [...rows].sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state));
  if (!rows.length) return [h("h2", null, t("tasks.heading")), h("p.soft", null, t("tasks.none"))];
  return [h("h2", null, t("tasks.count", { count: rows.length })), h("ul.tasks.columns", null, ...sorted.map(taskCard))];
}

/** @param {Row} row */
function taskCard(row) {
  const open = row.round_state === "open";
  const all = Math.max(row.enrolled, row.uploads, 1);
  return h("li", null, h("article.card", null,
    h("h3", null, taskLink(row.task, row)),
    h("p.row", null, stateTag(row.state), h("code", null, short(row.task)), h("span.soft", null, t("tasks.round", { number: row.round, rounds: row.rounds }))),
    open && h("p", null, t("tasks.progress", { come: row.uploads, all: row.enrolled, when: formatTime(row.until) })),
    open && h("progress", { max: all, value: row.uploads, "aria-label": t("tasks.bar", { number: row.round }) }),
    !open && h("p.soft", null, t("tasks.waits", { words: waitsText(row.waits_for) }))));
}

/** @param {string} task @param {Row | undefined} row */
export function taskLink(task, row) {
  return h("a", { href: `#/tasks/${task}`, id: `link-${task}` }, row?.purpose || short(task));
}

/** Without an id: a task may be named in many rows. @param {string | undefined} task @param {Live} live */
export function taskName(task, live) {
  return task ? h("a", { href: `#/tasks/${task}` }, live.row("tasks", task)?.purpose || short(task)) : "";
}

/** @param {...string} names */
const columns = (...names) => names.map((name) => t(`tasks.${name}`));

/** @param {Live} live */
function arrivals(live) {
  const rows = newestFirst(live.rows("arrivals"));
  return table(t("tasks.arrivals"), columns("when", "task", "number", "who"),
    rows.map((row) => [formatSeconds(row.at), taskName(row.task, live), row.number, h("code", null, row.who)]),
    { numbers: [2], empty: t("tasks.noneSince") });
}

/** @param {Row[]} rows @param {Live} live */
export function refusals(rows, live) {
  return table(t("tasks.refusals"), columns("last", "task", "number", "who", "why", "times"),
    newestFirst(rows).map((row) => [formatSeconds(row.at), taskName(row.task, live), row.number, h("code", null, row.who), said(row.reason ?? row.error), row.times]),
    { numbers: [2, 5], empty: t("tasks.noneSince") });
}

/** @param {Live} live */
function news(live) {
  return table(t("tasks.news"), columns("when", "what", "task"),
    newestFirst(live.rows("news")).map((row) => [formatSeconds(row.at), eventText(row), taskName(row.task, live)]),
    { empty: t("tasks.noneSince") });
}

/** @param {Row[]} rows */
const newestFirst = (rows) => [...rows].sort((one, other) => other.at - one.at || (other.id ?? 0) - (one.id ?? 0));
