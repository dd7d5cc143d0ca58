// Leave a campaign, take back what was sent, forget it all.

import { h } from "../../../web/common/dom.js";
import { money } from "../../../web/common/format.js";
import { actionButton, ask, button, card, notice, part, title } from "../../../web/common/parts.js";
import { listOf, t } from "../../../web/common/text.js";
import { isPaid } from "../../protocol/amounts.js";
import { heldWords } from "../about.js";
import { download } from "../download.js";
import { go } from "../router.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */

/** @param {Model} model @param {string} task */
export function leaveView(model, task) {
  const shown = part("div", null, (/** @type {Shown} */ campaign) =>
    campaign ? [leaving(model, campaign), withdrawing(model, campaign), ownData(model, campaign), forgetting(model, campaign)] : []);
  const element = h("div", null, title(t("leave.title")), shown.element);
  const update = () => shown.show(pick(model.get(task)));
  update();
  return { element, update };
}

/** @typedef {ReturnType<typeof pick>} Shown */

/** @param {Campaign | undefined} campaign */
function pick(campaign) {
  if (!campaign) return null;
  const { task, phase, claim, payTo, withdrawn, definition } = campaign;
  return { task, phase, amount: claim.amount > 0n ? money(claim.amount, definition?.settings.currency) : null, claim: claim.state, withdrawn,
    until: isPaid(definition) ? claim.until : null, asked: payTo.asked };
}

/** @param {Model} model @param {NonNullable<Shown>} campaign */
function leaving(model, { task, phase }) {
  if (phase !== "joined") return h("p", null, t(phase === "left" ? "leave.hasLeft" : "leave.notIn"));
  const question = { title: t("leave.stopAsk"), text: [t("leave.stopWhat"), t("leave.stopKept")], action: t("leave.stop") };
  const leave = button(t("leave.stop"), () => ask(question, () => model.leave(task)), { kind: "danger", id: "leave" });
  return h("section.card", { "aria-labelledby": "stop" }, h("h2", { id: "stop" }, t("leave.stopTitle")), h("p", null, t("leave.stopSoft")), leave);
}

/** @param {Model} model @param {NonNullable<Shown>} campaign */
function withdrawing(model, { task, phase, withdrawn }) {
  const listed = (/** @type {number[]} */ rounds) => listOf(rounds.map(String)) || t("leave.noRound");
  if (withdrawn) {
    const words = [t("leave.withdrawn"), t("leave.deleted", { rounds: listed(withdrawn.deleted) }), t("leave.standing", { rounds: listed(withdrawn.standing) })];
    return card(t("leave.withdrawTitle"), ...words.map((text) => h("p", null, text)));
  }
  if (phase === "ended") return null;
  const later = h("div");
  const question = { title: t("leave.withdrawAsk"), text: [t("leave.withdrawWhat"), t("leave.withdrawStays"), t("leave.withdrawFinal")], action: t("leave.withdraw") };
  const withdraw = button(t("leave.withdraw"), () => ask(question, async () => {
    const { told } = await model.withdraw(task);
    if (!told) later.replaceChildren(notice("warn", t("leave.toldLater")));
  }), { kind: "danger", id: "withdraw" });
  return card(t("leave.withdrawTitle"), h("p", null, t("leave.withdrawSoft")), withdraw, later);
}

/** What is held here, to take away; and what the servers hold, and until when. @param {Model} model @param {NonNullable<Shown>} campaign */
function ownData(model, { task, until, asked }) {
  const trouble = h("div");
  const save = actionButton(t("data.save"), trouble, async () => {
    const { name, text } = await model.ownData(task);
    download(name, text, "application/json");
  }, { id: "own-data" });
  const [ends, ...parties] = heldWords(until, asked);
  return card(t("data.title"), h("p", null, t("data.here")), save, trouble,
    h("details", { id: "servers-keep" }, h("summary", null, t("data.servers")), h("p", null, ends),
      h("ul", null, ...parties.map((words) => h("li", null, words)))));
}

/** @param {Model} model @param {NonNullable<Shown>} campaign */
function forgetting(model, { task, phase, amount, claim }) {
  const owed = amount !== null && !["expired", "refused"].includes(claim);
  const text = [t("leave.forgetWhat"), owed && t("leave.forgetOwed", { amount }), phase === "joined" && t("leave.forgetLeaves")];
  const question = { title: t("leave.forgetAsk"), text: text.filter(Boolean), action: t("leave.forgetDo") };
  const forget = button(t("leave.forget"), () => ask(question, async () => {
    await model.forget(task);
    go("campaigns");
  }), { kind: "danger", id: "forget" });
  return h("section.card", { "aria-labelledby": "gone" }, h("h2", { id: "gone" }, t("leave.forgetTitle")),
    owed && notice("warn", t("leave.claimFirst", { amount })), h("p", null, t("leave.forgetSoft")), forget);
}
