// @ts-check
// Pieces that several views use.

import { h } from "../../web/common/dom.js";

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * A heading that takes the focus when its view opens.
 * @param {string} text
 */
export const title = (text) => h("h1", { tabindex: -1 }, text);

/**
 * @param {string} text
 * @param {(event: Event) => unknown} act
 * @param {{ kind?: "main" | "danger" | "", label?: string, id?: string, small?: boolean }} [options]
 */
export function button(text, act, { kind = "", label, id, small } = {}) {
  const tag = ["button", kind, small ? "small" : ""].filter(Boolean).join(".");
  return /** @type {HTMLButtonElement} */ (h(tag, { type: "button", onclick: act, "aria-label": label, id }, text));
}

/**
 * @param {readonly (readonly [string, ...Child[]] | null | false)[]} entries A name, and what is said about it.
 */
export function facts(entries) {
  const rows = entries.filter((entry) => !!entry).map((entry) => {
    const [name, ...said] = /** @type {[string, ...Child[]]} */ (entry);
    return h("div", null, h("dt", null, name), h("dd", null, ...said));
  });
  return h("dl.facts", null, ...rows);
}

/**
 * A box that says something went wrong, or is worth knowing. A screen reader says it at once.
 * @param {"bad" | "warn" | "good"} kind
 * @param {...Child} said
 */
export const notice = (kind, ...said) =>
  h(`div.notice.${kind}`, { role: kind === "bad" ? "alert" : "status" }, h("p", null, ...said));

/**
 * A part of a view that is made again when what it shows has changed, and only then: a reader's place and the focus stay.
 * @template Shown
 * @param {string} tag
 * @param {Record<string, unknown> | null} properties
 * @param {(shown: Shown) => Child[]} render
 */
export function part(tag, properties, render) {
  const element = h(tag, properties);
  let last = "";
  /** @param {Shown} shown */
  const show = (shown) => {
    const now = JSON.stringify(shown, (_, value) => (typeof value === "bigint" ? `${value}n` : value));
    if (now === last) return;
    last = now;
    const focused = element.contains(document.activeElement) ? document.activeElement?.id : "";
    element.replaceChildren(...render(shown).filter((child) => child !== null && child !== undefined && child !== false)
      .map((child) => /** @type {Node | string} */ (child)));
    if (focused) document.getElementById(focused)?.focus();
  };
  return { element, show };
}

/**
 * Ask before something that cannot be undone. The focus goes back to where it was.
 * @param {{ heading: string, words: Child[], yes: string, no?: string }} question
 * @returns {Promise<boolean>}
 */
export function confirmed({ heading, words, yes, no = "Cancel" }) {
  return new Promise((resolve) => {
    const finish = (/** @type {boolean} */ answer) => () => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const stay = button(no, finish(false));
    const buttons = h("div.buttons", null, stay, button(yes, finish(true), { kind: "danger" }));
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-labelledby": "question" },
      h("h2", { id: "question" }, heading), ...words.map((said) => h("p", null, said)), buttons));
    dialog.addEventListener("cancel", finish(false));
    document.body.append(dialog);
    dialog.showModal();
    stay.focus();
  });
}

/**
 * Run what a button starts: the button rests meanwhile, and what goes wrong is shown beside it.
 * @param {HTMLButtonElement} pressed
 * @param {HTMLElement} place
 * @param {() => Promise<unknown>} act
 * @param {(wrong: unknown) => string} explain
 */
export async function attempt(pressed, place, act, explain) {
  pressed.disabled = true;
  place.replaceChildren();
  try {
    await act();
  } catch (wrong) {
    place.replaceChildren(notice("bad", explain(wrong)));
  } finally {
    pressed.disabled = false;
  }
}
