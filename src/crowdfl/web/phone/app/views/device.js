// This phone: install the page, how safe its storage is, which version of the code runs, forget everything.

import { h } from "../../../web/common/dom.js";
import { canInstall, install, isInstalled } from "../browser.js";
import { ask, button, part, title } from "../../../web/common/parts.js";
import { t } from "../../../web/common/text.js";
import { go } from "../router.js";

/** @typedef {import("../types.js").Model} Model */

/** @param {Model} model */
export function deviceView(model) {
  const stored = part("p", null, (/** @type {boolean} */ kept) => [kept
    ? "Your browser has promised to keep what this page stores."
    : "Your browser may delete what this page stores when room is short, or when you have not opened it for weeks. Install the page, and claim rewards soon after a campaign ends."]);
  const element = h("div", null, title("This phone"),
    h("section.card", { "aria-labelledby": "storage" }, h("h2", { id: "storage" }, "Storage"),
      h("p", null, "Recordings, keys, receipts and rewards are stored in this browser, on this phone, and nowhere else. There is no copy: with another phone or browser you start anew."), stored.element),
    installing(),
    h("section.card", { "aria-labelledby": "code" }, h("h2", { id: "code" }, "The code of this page"), ...[t("about.served"), t("about.compare")].map((text) => h("p", null, text))),
    forgetting(model));
  const update = () => void model.persisted().then(stored.show);
  update();
  return { element, update };
}

function installing() {
  const section = h("section.card", { "aria-labelledby": "install" }, h("h2", { id: "install" }, "Install"));
  const words = isInstalled() ? "The page is installed."
    : canInstall() ? "Installed, it opens like an app, and your browser keeps its data longer."
    : "Your browser's menu may have \"Install\" or \"Add to Home Screen\". On an iPhone, an installed page has a storage of its own: install it first, then open the invitation there.";
  section.append(h("p", null, words));
  if (!isInstalled() && canInstall()) section.append(button("Install", install));
  return section;
}

/** @param {Model} model */
function forgetting(model) {
  const text = ["Leaves every campaign, and deletes all recordings, keys, receipts and rewards from this phone. This cannot be undone. Rewards that were not claimed are lost."];
  const forget = button("Forget everything", () => ask({ title: "Forget everything?", text, action: "Forget everything" }, async () => {
    await model.forgetAll();
    go("campaigns");
  }), { kind: "danger" });
  return h("section.card", { "aria-labelledby": "forget-all" }, h("h2", { id: "forget-all" }, "Forget everything"),
    h("p", null, "Every campaign, every recording, every key."), forget);
}
