// Deposits to confirm, and payouts.
import { h, table } from "../web/common/dom.js";
import { formatTime, money } from "../web/common/format.js";
import { ask, button, stateTag } from "../web/common/parts.js";
import { post, taskPath } from "./api.js";
import { taskName } from "./tasks.js";

/** @typedef {import("./live.js").Row} Row */
/** @typedef {import("./live.js").Live} Live */
/** @typedef {import("./main.js").Panel} Panel */

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
    rows.map((row) => [row.name, money(row.amount), decision(row), taskName(row.task, live), formatTime(row.announced_at)]),
    { numbers: [1], empty });
}

/** What was decided, or the buttons for it: near the amount, where a phone shows them. @param {Row} row */
function decision(row) {
  if (row.state === "pending") return buttons(row);
  return h("span", null, stateTag(row.state), ` ${formatTime(row.decided_at)}`);
}

/** @param {Row} row */
function buttons(row) {
  const [key, place, of] = [`${row.task}-${row.name}`, `${taskPath(row.task)}/deposits/${encodeURIComponent(row.name)}`, `deposit ${row.name}`];
  const confirm = () => ask({
    title: `Confirm ${of}`,
    text: ["Look at the bank account, and type the amount that came in. From then on it can fund rounds."],
    fields: [{ name: "amount", label: "Amount that came in", hint: "Such as 36.00. It must be what was announced.", inputmode: "decimal" }],
    action: "Confirm", danger: false,
  }, (values) => post(`${place}/confirmation`, values));
  const reject = () => ask({
    title: `Reject ${of}`,
    text: [`No such money came in: ${money(row.amount)} were announced. This is final. The requester can announce another deposit.`],
    action: "Reject",
  }, () => post(`${place}/rejection`));
  return h("span", null, button("Confirm …", confirm, { id: `confirm-${key}`, label: `Confirm … ${of}` }),
    button("Reject …", reject, { id: `reject-${key}`, label: `Reject … ${of}`, kind: "danger" }));
}

/** @param {Live} live */
function payouts(live) {
  const totals = live.rows("payouts").map((row) => [taskName(row.task, live), stateTag(row.state), row.count, money(row.amount)]);
  return [
    h("h2", null, "Payouts"),
    table("Not paid yet, in sum", ["task", "state", "payments", "amount"], totals, { numbers: [2, 3], empty: "nothing is owed" }),
    paymentTable("Payments that wait", live.rows("payments"), live),
  ];
}

/** @param {string} caption @param {Row[]} rows @param {Live} live */
export function paymentTable(caption, rows, live) {
  return table(caption, ["amount", "state", "participant", "why", "attempts", "task", "since"],
    rows.map((row) => [money(row.amount), h("span", null, stateTag(row.state), " ", resolution(row)),
      h("code", null, row.who), row.error ?? "", row.attempts, taskName(row.task, live), formatTime(row.since)]),
    { numbers: [0, 4], empty: "none" });
}

/** @param {Row} row */
function resolution(row) {
  if (!["unknown", "pending"].includes(row.state)) return "";
  const paid = resolver(row, "paid", "It was paid", `Your bank shows that ${money(row.amount)} were paid under the key ${row.key}. SP will not pay it again.`);
  if (row.state === "pending") return paid;
  return h("span", null, paid, resolver(row, "again", "Pay again",
    `Your bank knows nothing of the key ${row.key}. SP will pay ${money(row.amount)} once more. If it was paid after all, it is paid twice.`));
}

/** @param {Row} row @param {string} how @param {string} action @param {string} text */
function resolver(row, how, action, text) {
  const danger = how === "again";
  const resolve = () => ask({ title: `${action}: ${row.who}`, text: [text], action, danger },
    () => post(`${taskPath(row.task)}/payments/${encodeURIComponent(row.who)}/resolution`, { how }));
  return button(`${action} …`, resolve, { id: `${how}-${row.task}-${row.who}`, label: `${action} … payment to ${row.who}`, kind: danger ? "danger" : "" });
}
