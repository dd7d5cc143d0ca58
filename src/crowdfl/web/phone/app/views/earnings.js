// What was earned, round by round, what is claimed of it, and where it is to be paid.

import { h, table } from "../../../web/common/dom.js";
import { formatTime, money } from "../../../web/common/format.js";
import { actionButton, button, form, labelled, notice, part, title } from "../../../web/common/parts.js";
import { isSaid, listOf, t, together } from "../../../web/common/text.js";
import { grouped, plainly, reasonWords, sentence } from "../messages.js";
import { BONUS } from "../../protocol/rewards.js";
import { paidOf, sumsOf } from "../standing.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RoundView} RoundView */
/** @typedef {import("../types.js").ClaimView} ClaimView */
/** @typedef {import("../types.js").PayToView} PayToView */

/** @param {Model} model @param {string} task */
export function earningsView(model, task) {
  const earned = part("p.headline", null, (/** @type {string} */ amount) => [t("earnings.earned", { amount })]);
  const claim = part("section.card", { "aria-label": t("earnings.claim") }, (/** @type {Claimed} */ shown) => claiming(model, task, shown));
  const where = part("div", null, (/** @type {PayToView | null} */ payTo) => payTo ? [destination(model, task, payTo)] : []);
  const history = part("div", null, (/** @type {{ rounds: RoundView[], currency: string | undefined }} */ shown) => [byRound(shown.rounds, shown.currency)]);
  const element = h("div", null, title(t("earnings.title")), earned.element, claim.element, where.element, history.element);
  const update = () => {
    const campaign = model.get(task);
    if (!campaign) return;
    const { definition, rewards, payTo, phase } = campaign;
    const currency = definition?.settings.currency;
    earned.show(money(rewards, currency));
    claim.show({ claim: campaign.claim, amount: money(campaign.claim.amount, currency), sums: sumsOf(paidOf(campaign), currency) });
    where.show(payTo.asked && phase !== "invited" ? payTo : null);
    history.show({ rounds: paidOf(campaign), currency });
  };
  update();
  if (model.get(task)?.payTo.asked) void model.payKinds(task).catch(() => {}); // what was kept of it is shown meanwhile
  return { element, update };
}

/** @param {RoundView[]} rounds @param {string} [currency] */
function byRound(rounds, currency) {
  const rows = rounds.map(({ number, reward, reason, pay }) => {
    const known = reward !== null || (reason && reason !== "not_shown");
    return [number === BONUS ? t("earnings.bonus") : number, known ? money(reward ?? 0n, currency) : t("common.notKnown"), pay ? payWords(pay) : "", reason ? reasonWords(reason) : ""];
  });
  const columns = [t("details.round"), t("details.earned"), t("earnings.state"), t("earnings.why")];
  return table(t("earnings.byRound"), columns, rows, { numbers: [0, 1], empty: t("details.none") });
}

/** @param {import("../../agent/state.js").PayView} pay */
const payWords = ({ state, note }) => (note ? t("earnings.stateWhy", { state: t(`state.${state}`), why: plainly(note) }) : t(`state.${state}`));

/** @typedef {{ claim: ClaimView, amount: string, sums: string[] }} Claimed */

/** @param {Model} model @param {string} task @param {Claimed} shown */
function claiming(model, task, { claim, amount, sums }) {
  const trouble = h("div");
  const send = actionButton(t("earnings.send"), trouble, () => model.claim(task), { kind: "main", id: "claim" });
  const listed = (/** @type {number[]} */ rounds) => listOf(rounds.map(String));
  return [
    h("p", { role: "status" }, words(claim, amount)),
    h("ul.plain", { id: "sums" }, ...sums.map((sum) => h("li", null, sum))),
    !!claim.disputed?.length && notice("warn", t("earnings.disputed", { rounds: listed(claim.disputed) })),
    !!claim.short?.length && notice("bad", t("earnings.short", { rounds: listed(claim.short) })),
    claim.why && notice(claim.state === "refused" ? "bad" : "warn", t("errors.detail", { words: sentence(claim.why) })),
    ["due", "sent", "refused", "expired"].includes(claim.state) && h("div.buttons", null, send), // the last two by the platform's word, which may change
    trouble,
  ];
}

/** @param {ClaimView} claim @param {string} amount Not claimed yet. */
function words({ state, until, early }, amount) {
  const when = until === null ? "" : formatTime(until);
  switch (state) {
    case "none": return t("earnings.none");
    case "later": return t(early ? "earnings.laterEarly" : "earnings.later", { when });
    case "due": return together(t("earnings.due", { amount }), when && t("earnings.until", { when }));
    case "sent": return together(t("earnings.sent", { amount }), when && t("earnings.until", { when }));
    case "claimed": return t("earnings.claimed");
    case "refused": return t("earnings.refused", { amount });
    default: return t("earnings.tooLate", { amount });
  }
}

/** @param {Model} model @param {string} task @param {PayToView} payTo */
function destination(model, task, payTo) {
  const place = h("div", null);
  const { to, kind, state } = payTo;
  const given = () => place.replaceChildren(h("p", null, t("payTo.given", { kind: t(`payKind.${kind}`), to: to ?? "" })), h("p.soft", null, t(`payTo.${state}`)),
    state === "closed" ? "" : h("div.buttons", null, button(t("payTo.correct"), () => place.replaceChildren(asking(model, task, payTo)), { id: "correct" })));
  if (to === null) place.append(asking(model, task, payTo));
  else given();
  return h("section.card", { "aria-labelledby": "pay-to" }, h("h2", { id: "pay-to" }, t("payTo.title")), place,
    h("p.soft", null, t("payTo.readers")), h("details", { id: "payer" }, h("summary", null, t("payTo.payer")),
      h("p", null, t("payTo.payerWhy"), " ", h("code", null, grouped(payTo.fingerprint)))));
}

/** @param {Model} model @param {string} task @param {PayToView} payTo */
function asking(model, task, { kinds, kind: before, to }) {
  const known = kinds.filter((kind) => isSaid(`payKind.${kind}`));
  if (!known.length) return h("p", { role: "status" }, t("payTo.asks"));
  const [trouble, input] = [h("div"), /** @type {HTMLInputElement} */ (h("input", { autocomplete: "off", spellcheck: "false", autocapitalize: "none", value: to ?? "" }))];
  const choice = /** @type {HTMLSelectElement} */ (h("select", null, ...known.map((kind) => h("option", { value: kind, selected: kind === before }, t(`payKind.${kind}`)))));
  const adapt = () => {
    input.type = choice.value === "email" ? "email" : "text";
    input.dir = choice.value === "iban" ? "ltr" : "";
    input.placeholder = t(`payExample.${choice.value}`);
  };
  choice.addEventListener("change", adapt);
  adapt();
  const send = button(t("payTo.save"), null, { kind: "main", type: "submit" });
  return form(send, trouble, () => model.payTo(task, choice.value, input.value).catch(inWords),
    labelled("pay-kind", t("payTo.kind"), choice), labelled("pay-where", t("payTo.where"), input), trouble, h("div.buttons", null, send));
}

/** @param {unknown} wrong @returns {never} */
function inWords(wrong) {
  const code = wrong instanceof Error && wrong.name === "WrongDestination" ? /** @type {any} */ (wrong).code : null;
  throw code === null ? wrong : new Error(t(`wrongPayTo.${code}`));
}
