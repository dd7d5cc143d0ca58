// The list of campaigns; what this page is, for whoever opens it without an invitation; what to do where a campaign was lost.

import { h } from "../../../web/common/dom.js";
import { money } from "../../../web/common/format.js";
import { actionButton, button, part, title } from "../../../web/common/parts.js";
import { t } from "../../../web/common/text.js";
import { fragmentOf } from "../link.js";
import { explainLink, phaseWord } from "../messages.js";
import { go, hashOf } from "../router.js";
import { nameLanguage, nameOf } from "../standing.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */

/** @param {Model} model */
export function campaignsView(model) {
  const list = part("div", null, (/** @type {{ campaigns: Campaign[], lost: string[] }} */ { campaigns, lost }) => [
    lost.length > 0 && missing(h("h2", null, t("lost.title")), button(t("lost.known"), () => model.forgetLost())),
    ...(campaigns.length ? campaigns.map(card) : lost.length ? [] : [empty()]),
  ]);
  const element = h("div", null, title(t("campaigns.title")), list.element, pasting(model));
  const update = () => list.show({ campaigns: model.campaigns(), lost: model.lost() });
  update();
  return { element, update };
}

/** An address that names a campaign of which this phone has nothing. @param {Model} model */
export function lostView(model) {
  return { element: h("div", null, title(t("lost.title")), missing(), pasting(model)), update() {} };
}

/** @param {...Node} around */
const missing = (...around) => h("section.card", null, around[0], h("p", null, t("lost.why")), h("p", null, t("lost.gone")), h("p", null, t("lost.what")), around[1]);

/** An installed page has no address bar. @param {Model} model */
function pasting(model) {
  const trouble = h("div");
  const input = /** @type {HTMLInputElement} */ (h("input", { id: "link", type: "text", dir: "ltr", autocomplete: "off", spellcheck: "false", autocapitalize: "off" }));
  const open = actionButton(t("campaigns.open"), trouble, async () => {
    try {
      const task = await model.accept(fragmentOf(input.value, location));
      input.value = "";
      go("about", task);
      void model.look(task);
    } catch (wrong) {
      throw new Error(explainLink(wrong));
    }
  });
  return h("details.card", null, h("summary", null, t("campaigns.paste")), h("label", { for: "link" }, t("campaigns.link")), input,
    h("div.buttons", null, open), trouble);
}

/** @param {Campaign} campaign */
function card(campaign) {
  const { task, phase, rewards, problem, definition } = campaign;
  return h("article.card.campaign", null,
    h("p", null, h("a", { href: hashOf(phase === "invited" ? "about" : "home", task), ...nameLanguage(campaign) }, nameOf(campaign))),
    h("p", null, h("span.state", null, phaseWord(phase)), rewards ? ` ${t("earnings.earned", { amount: money(rewards, definition?.settings.currency) })}` : ""),
    problem && h("p.warn", null, problem));
}

const empty = () => h("div.card", null, h("p.headline", null, t("campaigns.none")), h("p", null, t("campaigns.how")), h("p", null, t("campaigns.what")));
