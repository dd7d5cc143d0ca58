// Deposits to confirm, payouts by instalment, and what is disputed.
import { h, table } from "../web/common/dom.js";
import { formatTime, money } from "../web/common/format.js";
import { ask, button, stateTag } from "../web/common/parts.js";
import { said } from "../web/common/said.js";
import { isSaid, t } from "../web/common/text.js";
import { post, taskPath } from "./api.js";
import { taskName } from "./tasks.js";

/** @typedef {import("./live.js").Row} Row */
/** @typedef {import("./live.js").Live} Live */
/** @typedef {import("./live.js").Panel} Panel */

/** @param {Live} live @returns {Panel[]} */
export function moneyPanels(live) {
  return [
    { id: "deposits", needs: ["deposits", "tasks"], draw: () => deposits(live) },
    { id: "payouts", needs: ["payments", "payouts", "tasks"], draw: () => payouts(live) },
    { id: "disputes", needs: ["disputes", "tasks"], draw: () => [h("h2", null, t("money.disputes")), disputeTable(t("money.disputed"), live.rows("disputes"), live)] },
  ];
}

/** @param {Live} live */
function deposits(live) {
  const rows = live.rows("deposits");
  const decided = rows.filter((row) => row.state !== "pending").sort((one, other) => other.decided_at - one.decided_at);
  return [
    h("h2", null, t("money.deposits")),
    depositTable(t("money.announced"), rows.filter((row) => row.state === "pending"), live, t("money.nothing")),
    depositTable(t("money.decided"), decided, live, t("money.noneYet")),
  ];
}

/** @param {string} caption @param {Row[]} rows @param {Live} live @param {string} empty */
export function depositTable(caption, rows, live, empty) {
  return table(caption, columns("name", "amount", "state", "task", "at"),
    rows.map((row) => [row.name, money(row.amount, row.currency), decision(row), taskName(row.task, live), formatTime(row.announced_at)]),
    { numbers: [1], empty });
}

/** @param {...string} names */
const columns = (...names) => names.map((name) => t(`money.${name}`));

/** What was decided, or the buttons for it: near the amount, where a phone shows them. @param {Row} row */
function decision(row) {
  if (row.state === "pending") return buttons(row);
  return h("span", null, stateTag(row.state), ` ${formatTime(row.decided_at)}`);
}

/** @param {Row} row */
function buttons(row) {
  const [key, place, { name }] = [`${row.task}-${row.name}`, `${taskPath(row.task)}/deposits/${encodeURIComponent(row.name)}`, row];
  const confirm = () => ask({
    title: t("money.confirmTitle", { name }),
    text: [t("money.confirmText")],
    fields: [{ name: "amount", label: t("money.came"), hint: t("money.cameHint"), inputmode: "decimal" },
      { name: "currency", label: t("money.currency"), hint: t("money.currencyHint") }],
    action: t("money.confirmNow"), danger: false,
  }, (values) => post(`${place}/confirmation`, values));
  const reject = () => ask({
    title: t("money.rejectTitle", { name }),
    text: [t("money.rejectText", { amount: money(row.amount, row.currency) })],
    action: t("money.rejectNow"),
  }, () => post(`${place}/rejection`));
  return h("span", null, button(t("money.confirm"), confirm, { id: `confirm-${key}`, label: t("money.confirmOf", { name }) }),
    button(t("money.reject"), reject, { id: `reject-${key}`, label: t("money.rejectOf", { name }), kind: "danger" }));
}

/** @param {Live} live */
function payouts(live) {
  const totals = live.rows("payouts").map((row) => [taskName(row.task, live), stateTag(row.state), row.count, money(row.amount, row.currency)]);
  return [
    h("h2", null, t("money.payouts")),
    table(t("money.sums"), columns("task", "state", "payments", "amount"), totals, { numbers: [2, 3], empty: t("money.owed") }),
    paymentTable(t("money.waiting"), live.rows("payments"), live),
  ];
}

/** @param {string} caption @param {Row[]} rows @param {Live} live */
export function paymentTable(caption, rows, live) {
  return table(caption, columns("amount", "onWord", "state", "who", "instalment", "where", "why", "attempts", "task", "since"),
    rows.map((row) => [money(row.amount, row.currency), row.on_sp_word === "0" ? "" : money(row.on_sp_word, row.currency),
      h("span", null, stateTag(row.state), " ", resolution(row)), h("code", null, row.who), row.sequence, t(`where.${row.destination}`),
      said(row.error ?? ""), row.attempts, taskName(row.task, live), formatTime(row.since)]),
    { numbers: [0, 1, 4, 7], empty: t("money.none") });
}

/** @param {Row} row */
function resolution(row) {
  return h("span", null, ...row.can.map((/** @type {"paid" | "again"} */ how) => resolver(row, how)));
}

/** @param {Row} row @param {"paid" | "again"} how */
function resolver(row, how) {
  const [danger, action, { who, key, sequence: number }] = [how === "again", t(`money.${how}`), row];
  const text = [t(danger ? "money.againText" : "money.paidText", { amount: money(row.amount, row.currency), key })];
  const asksHow = how === "paid" && row.destination !== "sealed";
  const fields = asksHow ? [{ name: "note", label: t("money.note"), hint: t("money.noteHint") }] : [];
  const resolve = () => ask({ title: t("money.resolveTitle", { action, who, number }), text, fields, action, danger },
    (values) => post(`${taskPath(row.task)}/payments/${encodeURIComponent(key)}/resolution`, { how, ...values }));
  return button(t("money.resolve", { action }), resolve, { id: `${how}-${key}`, label: t("money.resolveOf", { action, who, number }), kind: danger ? "danger" : "" });
}

/** What a participant claims and the books do not owe: held until somebody has looked at both. @param {string} caption @param {Row[]} rows @param {Live} live */
export function disputeTable(caption, rows, live) {
  return table(caption, columns("amount", "held", "books", "proofs", "who", "number", "task", "since"),
    rows.map((row) => [money(row.amount, row.currency), h("span", null, money(row.held, row.currency), " ", decider(row, "pay"), decider(row, "refuse")), booksOf(row),
      h("a", { href: placeOf(row), download: "" }, t("money.save")), h("code", null, row.who), row.number, taskName(row.task, live), formatTime(row.since)]),
    { numbers: [0, 5], empty: t("money.noDispute") });
}

/** @param {Row} row */
const placeOf = (row) => `${taskPath(row.task)}/disputes/${encodeURIComponent(row.who)}/${row.number}`;

/** @param {Row} row */
function booksOf({ round, owed, counted, currency }) {
  const state = isSaid(`state.${round}`) ? t(`state.${round}`) : t("money.unknownRound");
  return t(counted ? "money.booksCounted" : "money.booksText", { state, owed: money(owed, currency) });
}

/** @param {Row} row @param {"pay" | "refuse"} how */
function decider(row, how) {
  const [danger, action, { who, number }] = [how === "refuse", t(`money.${how}`), row];
  const decide = () => ask({ title: t("money.decideTitle", { action, who, number }), text: [t(danger ? "money.refuseText" : "money.payText", { amount: money(row.held, row.currency) })], action, danger },
    () => post(`${placeOf(row)}/resolution`, { how }));
  return button(t("money.decide", { action }), decide, { id: `${how}-${row.task}-${who}-${number}`, label: t("money.decideOf", { action, who, number }), kind: danger ? "danger" : "" });
}
