// A ring that fills, with something in its middle. Words beside it say the same.

import { h } from "../../web/common/dom.js";

/** @param {number} share @param {...(Node | string)} middle */
export function ring(share, ...middle) {
  const element = h("span.ring", null, ...middle);
  fill(element, share);
  return element;
}

/** @param {HTMLElement} element @param {number} share */
export function fill(element, share) {
  element.style.setProperty("--share", String(Math.min(1, Math.max(0, share))));
  element.classList.toggle("full", share >= 1);
}
