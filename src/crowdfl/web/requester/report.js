// The campaign's report on the screen: as the program writes it into a file, to be printed or saved.
import { h } from "../web/common/dom.js";
import { actionButton, button } from "../web/common/parts.js";
import { language, t } from "../web/common/text.js";
import { download, getText } from "./api.js";

/** @param {AbortSignal} signal @param {string} id */
export async function reportView(signal, id) {
  const path = `tasks/${id}/report.${language()}.html`;
  const whole = await getText(path, signal);
  const page = new DOMParser().parseFromString(whole.replace(/<style>.*?<\/style>/s, ""), "text/html"); // this page has the styles, and takes none inside
  const report = h("div.report", null, ...page.querySelectorAll("main > *"));
  const place = h("div");
  const element = h("div", null,
    h("div.screen", null, h("p", null, h("a", { href: `#/tasks/${id}` }, t("sheet.back"))),
      h("div.row", null, button(t("sheet.print"), () => print(), { kind: "main" }),
        actionButton(t("paper.save"), place, () => download(path, `report-${id.slice(0, 8)}.html`))), place),
    report);
  return { title: t("paper.title"), element };
}
