// A task's money: what is pending, paid in, earned and returned; and a form to announce a deposit.
import { h, table } from "../web/common/dom.js";
import { money } from "../web/common/format.js";
import { t } from "../web/common/text.js";
import { button, card, form, labelled, notice, stateTag } from "../web/common/parts.js";
import { post } from "./api.js";
import { isOver } from "./list.js";

/** @typedef {import("./api.js").Task} Task */
/** @typedef {import("./api.js").Standing} Standing */
/** @typedef {import("./api.js").Report} Report */

/** Before claims are closed nobody tells what was earned, or attested. @type {readonly ["pending", "paid_in", "offered", "earned", "attested", "returned"]} */
const SUMS = ["pending", "paid_in", "offered", "earned", "attested", "returned"];

/** @param {Task} task @param {AbortSignal} signal */
export function moneyCard(task, signal) {
  const books = h("div", null, h("p.soft", null, t("page.asking")));
  const fund = fundForm(task, signal);
  const show = (/** @type {Standing} */ { status, report, unpaid }) => {
    books.replaceChildren(...booksOf(report, task.currency));
    fund.element.hidden = isOver(status.state);
    fund.show(report, unpaid);
  };
  return { element: card(t("money.title"), books, fund.element), show };
}

/** @param {Report} report @param {string} [currency] */
function booksOf(report, currency) {
  const { deposits, movements } = report;
  const sums = SUMS.map((name) => /** @type {const} */ ([t(`sum.${name}`), report[name]]));
  const waiting = deposits.map(({ name, amount, state }) => [name, money(amount, currency), stateTag(state)]);
  const moved = movements.map(({ name, source, target, amount }) => [name, source, target, money(amount, currency)]);
  return [
    h("dl.sums", null, ...sums.map(([name, amount]) => h("div", null, h("dt", null, name), h("dd", null, amount === null ? t("money.later") : money(amount, currency))))),
    ...compared(report, currency),
    table(t("money.deposits"), [t("money.name"), t("money.amount"), t("money.state")], waiting, { numbers: [1], empty: t("money.noDeposit") }),
    h("details", null, h("summary", null, t("money.every", { count: movements.length })),
      table(t("money.movements"), [t("money.movement"), t("money.from"), t("money.to"), t("money.amount")], moved, { numbers: [3] })),
  ];
}

/** What CSP has signed, once claims have ended, beside what SP says. @param {Report} report @param {string} [currency] */
function compared({ attested, attested_complete: complete, difference, sp_word: word }, currency) {
  const differs = difference !== null && difference !== 0;
  const amount = money(Math.abs(difference ?? 0), currency);
  return [
    attested !== null && notice(differs ? "bad" : "good", differs ? t((difference ?? 0) > 0 ? "money.paidMore" : "money.paidLess", { amount }) : t("money.agrees")),
    attested !== null && complete === false && notice("warn", t("money.incomplete")),
    word > 0 && h("p", { id: "on-word" }, t("money.onWord", { amount: money(word, currency) })),
  ].filter((one) => one instanceof HTMLElement);
}

/** @param {Task} task @param {AbortSignal} signal */
function fundForm(task, signal) {
  const place = h("div", null);
  const amount = /** @type {HTMLInputElement} */ (h("input", { type: "text", inputmode: "decimal", autocomplete: "off" }));
  let typed = false;
  amount.addEventListener("input", () => { typed = true; });
  const announce = button(t("money.announce"), null, { kind: "main", type: "submit" });
  let name = newName(); // kept until it is in: a repeat after a lost answer is the same deposit
  const send = async () => {
    const made = await post(`tasks/${task.task}/deposits`, { amount: amount.value, name }, signal);
    place.replaceChildren(notice("good", t("money.pending", { name: made.deposit, amount: money(made.amount, task.currency) })));
    name = newName();
    typed = false;
  };
  /** Suggest what is missing, and say what became of deposits in their table alone. @param {Report} report @param {number} unpaid */
  const show = (report, unpaid) => {
    if (!typed) amount.value = unpaid ? money(unpaid) : "";
    if (!report.pending) place.replaceChildren();
  };
  const element = form(announce, place, send, h("h3", null, t("money.fund")),
    h("div.inline", null, labelled("amount", task.currency ? t("money.amountIn", { currency: task.currency }) : t("money.amountField"), amount, task.budget ? t("money.cost", { count: task.rounds, amount: money(task.whole, task.currency) }) : t("money.noRewards")), h("div", null, announce)),
    place);
  return { element, show };
}

const newName = () => `page-${crypto.randomUUID().slice(0, 13)}`;
