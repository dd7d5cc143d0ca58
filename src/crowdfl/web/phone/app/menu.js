// The bar above every view: back to the campaign's page, and the menu.

import { h } from "../../web/common/dom.js";
import { chooseLanguage, language, LANGUAGES, t } from "../../web/common/text.js";
import { hashOf } from "./router.js";

/** @typedef {import("./router.js").Place} Place */

/** @param {HTMLElement} bar @param {Place} place @param {boolean} joined Whether it is of a campaign that this phone takes part in. */
export function showMenu(bar, { name, task }, joined) {
  const back = joined && name !== "home" ? h("a.back", { href: hashOf("home", task) }, t("menu.home")) : null;
  const own = joined ? /** @type {const} */ (["about", "earnings", "details", "leave"]).map((view) => link(view, task, name)) : [];
  const menu = h("div.menu", { id: "menu", popover: "auto" },
    h("ul", null, ...own, link("campaigns", "", name), link("device", "", name)), h("label", { for: "language" }, t("common.language")), languages());
  bar.replaceChildren(...(back ? [back] : []), h("button.small", { type: "button", popovertarget: "menu", id: "open-menu" }, t("menu.menu")), menu);
  bar.hidden = false;
}

/** @param {string} view @param {string} task @param {string} shown */
const link = (view, task, shown) => h("li", null, h("a", { href: hashOf(view, task), "aria-current": view === shown && "page" }, t(`menu.${view}`)));

function languages() {
  const choices = Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, lang: code, selected: code === language() }, name));
  const select = /** @type {HTMLSelectElement} */ (h("select", { id: "language" }, ...choices));
  select.addEventListener("change", () => chooseLanguage(select.value));
  return select;
}
