// The list of campaigns; what this page is, for whoever opens it without an invitation.

import { h } from "../../../web/common/dom.js";
import { money } from "../../../web/common/format.js";
import { actionButton, part, title } from "../../../web/common/parts.js";
import { fragmentOf } from "../link.js";
import { go, hashOf } from "../router.js";
import { explainLink, phaseWord, plainly } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */

/** @param {Model} model */
export function campaignsView(model) {
  const list = part("div", null, (/** @type {Campaign[]} */ campaigns) =>
    campaigns.length ? campaigns.map(card) : empty());
  const element = h("div", null, title("Your campaigns"), list.element, pasting(model),
    h("p", null, h("a", { href: hashOf("device") }, "This phone: storage, install, forget everything")));
  const update = () => list.show(model.campaigns());
  update();
  return { element, update };
}

/** An installed page has no address bar. @param {Model} model */
function pasting(model) {
  const trouble = h("div");
  const input = /** @type {HTMLInputElement} */ (h("input", { id: "link", type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off" }));
  const open = actionButton("Open", trouble, async () => {
    try {
      const task = await model.accept(fragmentOf(input.value, location));
      input.value = "";
      go("about", task);
      void model.look(task);
    } catch (wrong) {
      throw new Error(explainLink(wrong));
    }
  });
  return h("details.card", null, h("summary", null, "Paste a link"), h("label", { for: "link" }, "Invitation link"), input,
    h("div.buttons", null, open), trouble);
}

/** @param {Campaign} campaign */
function card(campaign) {
  const { task, definition, phase, rewards, problem } = campaign;
  const place = phase === "invited" ? "about" : "rounds";
  const name = plainly(definition?.purpose ?? "").trim() || `Campaign ${task.slice(0, 8)}`;
  return h("article.card.campaign", null,
    h("p", null, h("a", { href: hashOf(place, task) }, name)),
    h("p", null, h("span.state", null, phaseWord(phase)), rewards ? ` You have earned ${money(rewards)}.` : ""),
    problem && h("p.warn", null, problem));
}

function empty() {
  return [
    h("div.card", null,
      h("p.headline", null, "No invitation yet"),
      h("p", null, "Open the link that somebody sent you, or scan their QR code with your camera. It leads here, and you can read everything before you join."),
      h("p", null, "With a campaign you help to train a shared model, for example one that tells walking from sitting. What your phone records stays on your phone.")),
  ];
}
