// Deposits to confirm, and payouts.
import { h, table } from "../web/common/dom.js";
import { moment, money } from "../web/common/format.js";
import { call, depositPath, paymentPath } from "./api.js";
import { ask } from "./dialogs.js";
import { taskName } from "./tasks.js";
import { stateClass } from "./words.js";

/** @typedef {import("./live.js").Row} Row */
/** @typedef {import("./live.js").Live} Live */
/** @typedef {import("./panels.js").Panel} Panel */

/** An amount as the server sends it: millionths in decimal. @param {string} text */
export const amount = (text) => money(BigInt(text));

/** @param {Live} live @returns {Panel[]} */
export function moneyPanels(live) {
  return [
    { id: "deposits", needs: ["deposits", "tasks"], draw: () => deposits(live) },
    { id: "payouts", needs: ["payments", "payouts", "tasks"], draw: () => payouts(live) },
  ];
}

/** @param {Live} live */
function deposits(live) {
  const rows = live.rows("deposits");
  const decided = rows.filter((row) => row.state !== "pending").sort((one, other) => other.decided_at - one.decided_at);
  return [
    h("h2", null, "Deposits"),
    depositTable("Announced by a requester, not decided", rows.filter((row) => row.state === "pending"), live, "nothing to decide"),
    depositTable("Decided lately", decided, live, "none yet"),
  ];
}

/** @param {string} caption @param {Row[]} rows @param {Live} live @param {string} empty */
export function depositTable(caption, rows, live, empty) {
  return table(caption, ["name", "amount", "state", "task", "announced"],
    rows.map((row) => [row.name, amount(row.amount), decision(row), taskName(row.task, live), moment(row.announced_at)]),
    { numbers: [1], empty });
}

/** What was decided, or the buttons for it: near the amount, where a phone shows them. @param {Row} row */
function decision(row) {
  if (row.state === "pending") return buttons(row);
  return h("span", null, h(stateClass(row.state), null, row.state), ` ${moment(row.decided_at)}`);
}

/** What a button is about, for whoever does not see its row. @param {string} words */
const of = (words) => h("span.for-readers", null, ` ${words}`);

/** @param {Row} row */
function buttons(row) {
  const key = `${row.task}-${row.name}`;
  return h("span", null,
    h("button", { id: `confirm-${key}`, onclick: () => confirm(row) }, "Confirm …", of(`deposit ${row.name}`)),
    h("button.danger", { id: `reject-${key}`, onclick: () => reject(row) }, "Reject …", of(`deposit ${row.name}`)));
}

/** @param {Row} row */
function confirm(row) {
  ask({
    title: `Confirm deposit ${row.name}`,
    text: [h("p", null, "Look at the bank account, and type the amount that came in. From then on it can fund rounds.")],
    fields: [{ name: "amount", label: "Amount that came in", hint: "Such as 36.00. It must be what was announced.", inputmode: "decimal" }],
    action: "Confirm",
  }, (values) => call("POST", `${depositPath(/** @type {any} */ (row))}/confirmation`, values));
}

/** @param {Row} row */
function reject(row) {
  ask({
    title: `Reject deposit ${row.name}`,
    text: [h("p", null, `No such money came in: ${amount(row.amount)} were announced. This is final. The requester can announce another deposit.`)],
    fields: [], action: "Reject", danger: true,
  }, () => call("POST", `${depositPath(/** @type {any} */ (row))}/rejection`));
}

/** @param {Live} live */
function payouts(live) {
  const totals = live.rows("payouts").map((row) => [taskName(row.task, live), h(stateClass(row.state), null, row.state), row.count, amount(row.amount)]);
  return [
    h("h2", null, "Payouts"),
    table("Not paid yet, in sum", ["task", "state", "payments", "amount"], totals, { numbers: [2, 3], empty: "nothing is owed" }),
    paymentTable("Payments that wait", live.rows("payments"), live),
  ];
}

/** @param {string} caption @param {Row[]} rows @param {Live} live */
export function paymentTable(caption, rows, live) {
  return table(caption, ["amount", "state", "participant", "why", "attempts", "task", "since"],
    rows.map((row) => [amount(row.amount), h("span", null, h(stateClass(row.state), null, row.state), " ", resolution(row)),
      h("code", null, row.who), row.error ?? "", row.attempts, taskName(row.task, live), moment(row.since)]),
    { numbers: [0, 4], empty: "none" });
}

/** @param {Row} row */
function resolution(row) {
  const key = `${row.task}-${row.who}`;
  const paid = h("button", { id: `paid-${key}`, onclick: () => paidByHand(row) }, "It was paid …", of(`payment to ${row.who}`));
  const again = h("button.danger", { id: `again-${key}`, onclick: () => payAgain(row) }, "Pay again …", of(`payment to ${row.who}`));
  if (row.state === "unknown") return h("span", null, paid, again);
  return row.state === "pending" ? paid : "";
}

/** @param {Row} row */
function paidByHand(row) {
  resolve(row, "paid", "It was paid", `Your bank shows that ${amount(row.amount)} were paid under the key ${row.key}. SP will not pay it again.`);
}

/** @param {Row} row */
function payAgain(row) {
  resolve(row, "again", "Pay again", `Your bank knows nothing of the key ${row.key}. SP will pay ${amount(row.amount)} once more. If it was paid after all, it is paid twice.`);
}

/** @param {Row} row @param {string} how @param {string} title @param {string} words */
function resolve(row, how, title, words) {
  ask({ title: `${title}: ${row.who}`, text: [h("p", null, words)], fields: [], action: title, danger: how === "again" },
    () => call("POST", `${paymentPath(/** @type {any} */ (row))}/resolution`, { how }));
}
