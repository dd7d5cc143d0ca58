// What was earned, round by round, the one claim at the end, and where it is to be paid.

import { h, table } from "../../../web/common/dom.js";
import { duration, formatTime, money } from "../../../web/common/format.js";
import { actionButton, ask, button, form, labelled, notice, part, title } from "../../../web/common/parts.js";
import { isSaid, listOf, t, together } from "../../../web/common/text.js";
import { grouped, reasonWords, sentence } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RoundView} RoundView */
/** @typedef {import("../types.js").ClaimView} ClaimView */
/** @typedef {import("../types.js").PayToView} PayToView */

const ENDED = ["due", "sent", "paid", "refused"]; // claims of a campaign that is over

/** @param {Model} model @param {string} task */
export function earningsView(model, task) {
  const total = part("p.headline", null, (/** @type {string} */ amount) => [t("earnings.earned", { amount })]);
  const claim = part("section.card", { "aria-label": t("earnings.claim") }, (/** @type {Claimed} */ shown) => claiming(model, task, shown));
  const where = part("div", null, (/** @type {PayToView | null} */ payTo) => payTo ? [destination(model, task, payTo)] : []);
  const history = part("div", null, (/** @type {{ rounds: RoundView[], currency: string | undefined }} */ shown) => [byRound(shown.rounds, shown.currency)]);
  const element = h("div", null, title(t("earnings.title")), total.element, claim.element, where.element, history.element);
  const update = () => {
    const campaign = model.get(task);
    if (!campaign) return;
    const { definition, rewards, payTo } = campaign;
    const currency = definition?.settings.currency;
    total.show(money(rewards, currency));
    claim.show({ claim: campaign.claim, amount: money(campaign.claim.amount, currency), window: definition?.claim_window ?? 0 });
    where.show(payTo.asked && ENDED.includes(campaign.claim.state) ? payTo : null);
    history.show({ rounds: campaign.rounds, currency });
  };
  update();
  if (model.get(task)?.payTo.asked) void model.payKinds(task).catch(() => {}); // what was kept of it is shown meanwhile
  return { element, update };
}

/** @param {RoundView[]} rounds @param {string} [currency] */
function byRound(rounds, currency) {
  const rows = rounds.map(({ number, reward, reason }) => {
    const known = reward !== null || (reason && reason !== "not_shown");
    return [number, known ? money(reward ?? 0n, currency) : t("common.notKnown"), reason ? reasonWords(reason) : ""];
  });
  const columns = [t("details.round"), t("details.earned"), t("earnings.why")];
  return table(t("earnings.byRound"), columns, rows, { numbers: [0, 1], empty: t("details.none") });
}

/** @typedef {{ claim: ClaimView, amount: string, window: number }} Claimed */

/** @param {Model} model @param {string} task @param {Claimed} shown */
function claiming(model, task, { claim, amount, window }) {
  const trouble = h("div");
  const question = { title: t("earnings.restAsk"), text: [t("earnings.restWhat")], action: t("earnings.restDo") };
  const rest = button(t("earnings.rest"), () => ask(question, () => model.claim(task, true)));
  rest.hidden = true;
  const send = actionButton(t("earnings.send"), trouble, () => model.claim(task, false).catch((wrong) => {
    rest.hidden = wrong?.name !== "NotReady";
    throw wrong;
  }), { kind: "main", id: "claim" });
  return [
    h("p", { role: "status" }, words(claim, amount, window)),
    claim.short?.length && notice("bad", t("earnings.short", { rounds: listOf(claim.short.map(String)) })),
    claim.why && notice(claim.state === "refused" ? "bad" : "warn", t("errors.detail", { words: sentence(claim.why) })),
    ["due", "sent", "refused", "expired"].includes(claim.state) && h("div.buttons", null, send, rest), // the last two by the platform's word, which may change
    trouble,
  ];
}

/** @param {ClaimView} claim @param {string} amount @param {number} window */
function words({ state, until }, amount, window) {
  const end = until === null ? "" : t("earnings.until", { when: formatTime(until) });
  switch (state) {
    case "none": return t("earnings.none");
    case "later": return t("earnings.later", { time: duration(window) });
    case "due": return together(t("earnings.due", { amount }), end);
    case "sent": return together(t("earnings.sent", { amount }), end);
    case "paid": return t("earnings.paid", { amount });
    case "refused": return t("earnings.refused");
    default: return t("earnings.tooLate");
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
