// This phone: install the page, how safe its storage is, which version of the code runs, forget everything.

import { h } from "../../../web/common/dom.js";
import { canInstall, install, isInstalled, versions } from "../browser.js";
import { ask, button, card, facts, part, title } from "../../../web/common/parts.js";
import { t } from "../../../web/common/text.js";
import { grouped } from "../messages.js";
import { go } from "../router.js";

/** @typedef {import("../types.js").Model} Model */

/** @param {Model} model */
export function deviceView(model) {
  const stored = part("p", null, (/** @type {boolean} */ kept) => [t(kept ? "device.kept" : "device.mayGo")]);
  const code = part("div", null, (/** @type {import("../browser.js").Versions | null} */ found) => found ? [versionFacts(found)] : []);
  const element = h("div", null, title(t("device.title")),
    card(t("device.storage"), h("p", null, t("device.here")), stored.element),
    installing(),
    card(t("device.code"), code.element, ...[t("about.served"), t("about.compare")].map((text) => h("p", null, text))),
    forgetting(model));
  const update = () => void model.persisted().then(stored.show);
  void versions().then(code.show);
  update();
  return { element, update };
}

/** @param {import("../browser.js").Versions} found */
function versionFacts({ running, newest }) {
  const digest = (/** @type {string} */ version) => h("code", null, grouped(version));
  return facts([
    [t("device.version"), digest(running), h("p.soft", null, t("device.versionWhy"))],
    newest !== running && [t("device.newer"), digest(newest)],
  ]);
}

function installing() {
  const words = isInstalled() ? "device.installed" : canInstall() ? "device.better" : "device.byMenu";
  return card(t("device.install"), h("p", null, t(words)), !isInstalled() && canInstall() && button(t("device.installDo"), install));
}

/** @param {Model} model */
function forgetting(model) {
  const question = { title: t("device.forgetAsk"), text: [t("device.forgetWhat")], action: t("device.forget") };
  const forget = button(t("device.forget"), () => ask(question, async () => {
    await model.forgetAll();
    go("campaigns");
  }), { kind: "danger" });
  return card(t("device.forget"), h("p", null, t("device.everything")), forget);
}
