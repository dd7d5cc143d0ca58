// Leave a campaign, and forget it.

import { h } from "../../../web/common/dom.js";
import { money } from "../../../web/common/format.js";
import { ask, button, facts, notice, part, title } from "../../../web/common/parts.js";
import { go } from "../router.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */

/** @param {Model} model @param {string} task */
export function settingsView(model, task) {
  const shown = part("div", null, (/** @type {Shown} */ campaign) => campaign ? [leaving(model, campaign), forgetting(model, campaign), names(campaign)] : []);
  const element = h("div", null, title("Leave this campaign"), shown.element);
  const update = () => shown.show(pick(model.get(task)));
  update();
  return { element, update };
}

/** @typedef {ReturnType<typeof pick>} Shown */

/** @param {Campaign | undefined} campaign */
function pick(campaign) {
  if (!campaign) return null;
  const { task, phase, rewards, claim, who, sp, kgc, definition } = campaign;
  return { task, phase, rewards, claim: claim.state, who, sp, kgc, requester: definition?.requester ?? null };
}

/** @param {Model} model @param {NonNullable<Shown>} campaign */
function leaving(model, { task, phase }) {
  if (phase !== "joined") return h("p", null, phase === "left" ? "You have left. You can still claim what you earned." : "You do not take part now.");
  const text = ["Your phone trains and sends nothing more for it. What you have sent stays in the sums: nobody can take it out. You can still claim what you earned."];
  const leave = button("Leave", () => ask({ title: "Leave this campaign?", text, action: "Leave" }, () => model.leave(task)), { kind: "danger", id: "leave" });
  return h("section.card", { "aria-labelledby": "stop" }, h("h2", { id: "stop" }, "Stop taking part"),
    h("p", null, "From the next round on you are not in it. Your recordings stay on this phone until you forget the campaign."), leave);
}

/** @param {Model} model @param {NonNullable<Shown>} campaign */
function forgetting(model, { task, phase, rewards, claim }) {
  const owed = rewards > 0n && !["paid", "too late", "refused", "none"].includes(claim);
  const text = ["Deletes its recordings, keys, receipts and rewards from this phone. This cannot be undone."];
  if (owed) text.push(`You have not been paid ${money(rewards)} yet. Without the keys nobody can claim it.`);
  if (phase === "joined") text.push("You leave the campaign first.");
  const forget = button("Forget this campaign", () => ask({ title: "Forget this campaign?", text, action: "Forget it" }, async () => {
    await model.forget(task);
    go("campaigns");
  }), { kind: "danger", id: "forget" });
  return h("section.card", { "aria-labelledby": "gone" }, h("h2", { id: "gone" }, "Forget everything about it"),
    owed && notice("warn", `You have earned ${money(rewards)} that was not paid yet. Claim it first.`),
    h("p", null, "Recordings, keys, receipts and rewards of this campaign are deleted from this phone."), forget);
}

/** @param {NonNullable<Shown>} campaign */
function names({ task, who, sp, kgc, requester }) {
  return h("details.card", null, h("summary", null, "Names and addresses"), facts([
    ["Campaign", h("code.wrap", null, task)],
    who !== null && ["Your name in it, made up by your phone", h("code.wrap", null, who)],
    requester !== null && ["Key of whoever asks", h("code.wrap", null, requester)],
    ["Platform", h("code.wrap", null, sp)],
    ["Key centre", h("code.wrap", null, kgc)],
  ]));
}
