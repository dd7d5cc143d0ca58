// What was earned, round by round, the one claim at the end, and until when.

import { h, table } from "../../../web/common/dom.js";
import { duration, formatTime, money } from "../../../web/common/format.js";
import { actionButton, ask, button, notice, part, title } from "../../../web/common/parts.js";
import { t } from "../../../web/common/text.js";
import { sentence } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RoundView} RoundView */
/** @typedef {import("../types.js").ClaimView} ClaimView */

/** @param {Model} model @param {string} task */
export function earningsView(model, task) {
  const total = part("p.headline", null, (/** @type {bigint} */ earned) => [t("earnings.earned", { amount: money(earned) })]);
  const claim = part("section.card", { "aria-label": t("earnings.claim") }, (/** @type {{ claim: ClaimView, window: number }} */ shown) =>
    claiming(model, task, shown.claim, shown.window));
  const history = part("div", null, (/** @type {RoundView[]} */ rounds) => [byRound(rounds)]);
  const element = h("div", null, title(t("earnings.title")), total.element, claim.element, history.element);
  const update = () => {
    const campaign = model.get(task);
    if (!campaign) return;
    total.show(campaign.rewards);
    claim.show({ claim: campaign.claim, window: campaign.definition?.claim_window ?? 0 });
    history.show(campaign.rounds);
  };
  update();
  return { element, update };
}

/** @param {RoundView[]} rounds */
function byRound(rounds) {
  const rows = rounds.map(({ number, reward, why }) => [number, reward === null ? t("common.notKnown") : money(reward), why ? sentence(why) : ""]);
  const columns = [t("details.round"), t("details.earned"), t("earnings.why")];
  return table(t("earnings.byRound"), columns, rows, { numbers: [0, 1], empty: t("details.none") });
}

/** @param {Model} model @param {string} task @param {ClaimView} claim @param {number} window */
function claiming(model, task, claim, window) {
  const trouble = h("div");
  const question = { title: t("earnings.restAsk"), text: [t("earnings.restWhat")], action: t("earnings.restDo") };
  const rest = button(t("earnings.rest"), () => ask(question, () => model.claim(task, true)));
  rest.hidden = true;
  const send = actionButton(t("earnings.send"), trouble, () => model.claim(task, false).catch((wrong) => {
    rest.hidden = wrong?.name !== "NotReady";
    throw wrong;
  }), { kind: "main", id: "claim" });
  return [
    h("p", { role: "status" }, words(claim, window)),
    claim.why && notice(["refused", "paid"].includes(claim.state) ? "bad" : "warn", sentence(claim.why)),
    ["due", "sent", "refused", "expired"].includes(claim.state) && h("div.buttons", null, send, rest), // the last two by the platform's word, which may change
    trouble,
  ];
}

/** @param {ClaimView} claim @param {number} window */
function words({ state, amount, until }, window) {
  const end = until === null ? "" : ` ${t("earnings.until", { when: formatTime(until) })}`;
  const values = { amount: money(amount) };
  switch (state) {
    case "none": return t("earnings.none");
    case "later": return t("earnings.later", { time: duration(window) });
    case "due": return t("earnings.due", values) + end;
    case "sent": return t("earnings.sent", values) + end;
    case "paid": return t("earnings.paid", values);
    case "refused": return t("earnings.refused");
    default: return t("earnings.tooLate");
  }
}
