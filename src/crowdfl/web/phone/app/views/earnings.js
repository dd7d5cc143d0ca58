// What was earned, round by round, the one claim at the end, and where it is to be paid.

import { h, table } from "../../../web/common/dom.js";
import { duration, formatTime, money } from "../../../web/common/format.js";
import { actionButton, ask, button, notice, part, title } from "../../../web/common/parts.js";
import { isSaid, listOf, t } from "../../../web/common/text.js";
import { sentence } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RoundView} RoundView */
/** @typedef {import("../types.js").ClaimView} ClaimView */

/** @param {Model} model @param {string} task */
export function earningsView(model, task) {
  const total = part("p.headline", null, (/** @type {string} */ amount) => [t("earnings.earned", { amount })]);
  const claim = part("section.card", { "aria-label": t("earnings.claim") }, (/** @type {Claimed} */ shown) => claiming(model, task, shown));
  const history = part("div", null, (/** @type {RoundView[]} */ rounds) => [byRound(rounds)]);
  const element = h("div", null, title(t("earnings.title")), total.element, claim.element, history.element);
  const update = () => {
    const campaign = model.get(task);
    if (!campaign) return;
    const { definition, rewards } = campaign;
    total.show(money(rewards));
    claim.show({ claim: campaign.claim, amount: money(campaign.claim.amount), window: definition?.claim_window ?? 0 });
    history.show(campaign.rounds);
  };
  update();
  return { element, update };
}

/** @param {RoundView[]} rounds */
function byRound(rounds) {
  const rows = rounds.map(({ number, reward, reason }) => {
    const known = reward !== null || (reason && reason !== "not_shown");
    return [number, known ? money(reward ?? 0n) : t("common.notKnown"), reason && isSaid(`reason.${reason}`) ? t(`reason.${reason}`) : ""];
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
  const end = until === null ? "" : ` ${t("earnings.until", { when: formatTime(until) })}`;
  switch (state) {
    case "none": return t("earnings.none");
    case "later": return t("earnings.later", { time: duration(window) });
    case "due": return t("earnings.due", { amount }) + end;
    case "sent": return t("earnings.sent", { amount }) + end;
    case "paid": return t("earnings.paid", { amount });
    case "refused": return t("earnings.refused");
    default: return t("earnings.tooLate");
  }
}
