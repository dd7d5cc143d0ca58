// What happened, in words.
import { said } from "../web/common/said.js";
import { isSaid, t } from "../web/common/text.js";

/** @typedef {import("./live.js").Row} Row */

/** By the event's name; a new one is said as SP calls it. @param {Row} row */
export function eventText({ event, number = 0, uploads = 0, name = "", error }) {
  const values = { number, count: uploads, name, error: error ? said(error) : t("news.noReason") };
  return isSaid(`event.${event}`) ? t(`event.${event}`, values) : String(event);
}
