// A task's money: what is pending, paid in, earned and returned; and a form to announce a deposit.
import { h, table } from "../web/common/dom.js";
import { money } from "../web/common/format.js";
import { button, card, form, labelled, notice, stateTag } from "../web/common/parts.js";
import { post } from "./api.js";
import { isOver } from "./list.js";

/** @typedef {import("./task.js").Task} Task */
/** @typedef {import("./task.js").Standing} Standing */
/** @typedef {import("./task.js").Report} Report */

/** @param {Task} task @param {AbortSignal} signal */
export function moneyCard(task, signal) {
  const books = h("div", null, h("p.soft", null, "asking SP …"));
  const fund = fundForm(task, signal);
  const show = (/** @type {Standing} */ { status, report, unpaid }) => {
    books.replaceChildren(...booksOf(report));
    fund.element.hidden = isOver(status.state);
    fund.show(report, unpaid);
  };
  return { element: card("Money", books, fund.element), show };
}

/** @param {Report} report */
function booksOf({ pending, paid_in, offered, earned, returned, deposits, movements }) {
  const sums = { "waits for confirmation": pending, "paid in": paid_in, "offered by rounds": offered, ...(earned === null ? {} : { "earned by participants": earned }), returned };
  const waiting = deposits.map(({ name, amount, state }) => [name, money(amount), stateTag(state)]);
  const moved = movements.map(({ name, source, target, amount }) => [name, source, target, money(amount)]);
  return [
    h("dl.sums", null, ...Object.entries(sums).map(([name, amount]) => h("div", null, h("dt", null, name), h("dd", null, money(amount))))),
    table("Deposits", ["name", "amount", "state"], waiting, { numbers: [1], empty: "no deposit was announced" }),
    h("details", null, h("summary", null, `Every movement (${movements.length})`),
      table("Movements", ["movement", "from", "to", "amount"], moved, { numbers: [3] })),
  ];
}

/** @param {Task} task @param {AbortSignal} signal */
function fundForm(task, signal) {
  const place = h("div", null);
  const amount = /** @type {HTMLInputElement} */ (h("input", { type: "text", inputmode: "decimal", autocomplete: "off" }));
  let typed = false;
  amount.addEventListener("input", () => { typed = true; });
  const announce = button("Announce the deposit", null, { kind: "main", type: "submit" });
  let name = newName(); // kept until it is in: a repeat after a lost answer is the same deposit
  const send = async () => {
    const made = await post(`tasks/${task.task}/deposits`, { amount: amount.value, name }, signal);
    place.replaceChildren(notice("good", `Deposit ${made.deposit} of ${money(made.amount)} is pending until the platform's operator confirms it. Pay it in under this name.`));
    name = newName();
    typed = false;
  };
  /** Suggest what is missing, and say what became of deposits in their table alone. @param {Report} report @param {number} unpaid */
  const show = (report, unpaid) => {
    if (!typed) amount.value = unpaid ? money(unpaid) : "";
    if (!report.pending) place.replaceChildren();
  };
  const element = form(announce, place, send, h("h3", null, "Fund"),
    h("div.inline", null, labelled("amount", "Amount", amount, task.budget ? `All ${task.rounds} rounds cost ${money(task.budget * task.rounds)}.` : "This task pays no rewards."), h("div", null, announce)),
    place);
  return { element, show };
}

const newName = () => `page-${crypto.randomUUID().slice(0, 13)}`;
