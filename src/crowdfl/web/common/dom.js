// Elements without markup in strings: what anyone has typed is text, never HTML.
import { digits, t } from "./text.js";

/**
 * @param {string} tag A tag, with classes after dots: `p.soft`.
 * @param {Record<string, unknown> | null} [properties] Attributes; `on…` are listeners; null, undefined and false are left out.
 * @param {...(Node | string | number | null | undefined | false | readonly (Node | string)[])} children
 * @returns {HTMLElement}
 */
export function h(tag, properties, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on") && typeof value === "function") {
      element.addEventListener(key.slice(2).toLowerCase(), /** @type {EventListener} */ (value));
    } else {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : typeof child === "number" ? digits(child) : child);
    }
  }
  return element;
}

/**
 * A table that a screen reader can read. Cells are text or nodes; columns that hold numbers are aligned.
 * @param {string} caption @param {readonly string[]} columns
 * @param {readonly (readonly (Node | string | number)[])[]} rows
 * @param {{ numbers?: readonly number[], empty?: string }} [options]
 */
export function table(caption, columns, rows, { numbers = [], empty = t("common.nothing") } = {}) {
  // Roles are named since a narrow window shows each row as a card, which takes them away.
  const cell = (/** @type {Node | string | number} */ value, /** @type {number} */ place) =>
    h(numbers.includes(place) ? "td.number" : "td", { role: "cell", "data-column": columns[place] }, value);
  const body = rows.length
    ? rows.map((row) => h("tr", { role: "row" }, ...row.map(cell)))
    : [h("tr", { role: "row" }, h("td.soft", { role: "cell", colspan: columns.length }, empty))];
  const head = h("tr", { role: "row" }, ...columns.map((name, place) =>
    h(numbers.includes(place) ? "th.number" : "th", { role: "columnheader", scope: "col" }, name)));
  return h("div.scroll", { tabindex: 0, role: "region", "aria-label": caption }, h("table", { role: "table" },
    h("caption", null, caption), h("thead", { role: "rowgroup" }, head), h("tbody", { role: "rowgroup" }, ...body)));
}
