// Gives the owner a file that this page has made.

import { h } from "../../web/common/dom.js";

/** @param {string} name @param {string} text @param {string} type */
export function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // a slow phone may still be reading it
}
