// Rewards: by round, the one claim at the end, and until when.

import { h, table } from "../../../web/common/dom.js";
import { duration, formatTime, money } from "../../../web/common/format.js";
import { actionButton, ask, button, notice, part, title } from "../../../web/common/parts.js";
import { sentence } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RoundView} RoundView */
/** @typedef {import("../types.js").ClaimView} ClaimView */

/** @param {Model} model @param {string} task */
export function rewardsView(model, task) {
  const total = part("p.headline", null, (/** @type {bigint} */ earned) => [`You have earned ${money(earned)}.`]);
  const claim = part("section.card", { "aria-label": "Claim" }, (/** @type {{ claim: ClaimView, window: number }} */ shown) =>
    claiming(model, task, shown.claim, shown.window));
  const history = part("div", null, (/** @type {RoundView[]} */ rounds) => [byRound(rounds)]);
  const element = h("div", null, title("Rewards"), total.element, claim.element, history.element);
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
  const rows = rounds.map(({ number, reward, why }) => [number, reward === null ? "–" : money(reward), why ? sentence(why) : ""]);
  return table("Rewards by round", ["Round", "Reward", "Why"], rows, { numbers: [0, 1], empty: "No round yet." });
}

/** @param {Model} model @param {string} task @param {ClaimView} claim @param {number} window */
function claiming(model, task, claim, window) {
  const trouble = h("div");
  const question = { title: "Claim without them?", text: ["A claim is paid once. What is missing now is then lost."], action: "Claim the rest" };
  const rest = button("Claim without the missing rewards", () => ask(question, () => model.claim(task, true)));
  rest.hidden = true;
  const send = actionButton("Claim now", trouble, () => model.claim(task, false).catch((wrong) => {
    rest.hidden = wrong?.name !== "NotReady";
    throw wrong;
  }), { kind: "main", id: "claim" });
  return [
    h("p", { role: "status" }, words(claim, window)),
    claim.why && notice(["refused", "paid"].includes(claim.state) ? "bad" : "warn", sentence(claim.why)),
    ["due", "sent", "refused", "too late"].includes(claim.state) && h("div.buttons", null, send, rest), // the last two by the platform's word, which may change
    trouble,
  ];
}

/** @param {ClaimView} claim @param {number} window */
function words({ state, amount, until }, window) {
  const end = until === null ? "" : ` You can claim until ${formatTime(until)}.`;
  switch (state) {
    case "none": return "There is nothing to claim.";
    case "later": return `You claim once, after the last round, and have ${duration(window)} for it. The page does it by itself if it is open then.`;
    case "due": return `You can claim ${money(amount)} now. The page does it by itself while it is open.${end}`;
    case "sent": return `Your claim of ${money(amount)} is on its way.${end}`;
    case "paid": return `You were paid ${money(amount)} in the platform's books. Whoever runs the platform pays it out.`;
    case "refused": return "The platform refused your claim. It is kept on this phone, as proof.";
    default: return "The time to claim is over. What was not claimed went back to the requester.";
  }
}
