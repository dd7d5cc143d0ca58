// @ts-check
// Small pieces that the views share: notices, progress, questions, buttons that wait.
import { h } from "../web/common/dom.js";
import { Refusal } from "./api.js";

/** @typedef {import("./api.js").Job} Job */
/** @typedef {{ title: string, element: HTMLElement }} View */

/** @param {string} words @param {"" | "bad" | "warn"} [kind] */
export function notice(words, kind = "") {
  return h(kind ? `div.notice.${kind}` : "div.notice", { role: kind === "bad" ? "alert" : "status" }, words);
}

/** @param {unknown} failure */
export function words(failure) {
  if (failure instanceof Refusal) return failure.message || failure.name;
  return failure instanceof Error ? `The page failed: ${failure.message}` : "The page failed.";
}

/** Show a failure in a place; one that was called off says nothing. @param {HTMLElement} place @param {unknown} failure */
export function showFailure(place, failure) {
  if (failure instanceof DOMException && failure.name === "AbortError") return;
  place.replaceChildren(notice(words(failure), "bad"));
}

/** @param {Job} job */
export function progress(job) {
  const known = job.of > 0 ? { max: job.of, value: job.done } : {};
  return h("div", { role: "status" }, h("p.soft", null, job.words || "working"), h("progress", { "aria-label": job.words || "working", ...known }));
}

/**
 * A button that runs an action once at a time, and shows what goes wrong.
 * @param {string} tag @param {string} text @param {HTMLElement} place @param {() => Promise<void>} action
 */
export function actionButton(tag, text, place, action) {
  const button = /** @type {HTMLButtonElement} */ (h(tag, { type: "button" }, text));
  button.addEventListener("click", () => void guarded(button, place, action));
  return button;
}

/** @param {HTMLButtonElement} button @param {HTMLElement} place @param {() => Promise<void>} action */
export async function guarded(button, place, action) {
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true"); // `disabled` would take the focus away
  try {
    await action();
  } catch (failure) {
    showFailure(place, failure);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

/**
 * Ask before something that cannot be undone.
 * @param {string} title @param {string} text @param {string} yes @param {boolean} [danger] @returns {Promise<boolean>}
 */
export function confirmed(title, text, yes, danger = false) {
  const heading = h("h2", { id: "question" }, title);
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-labelledby": "question" }, heading, h("p", null, text)));
  const button = (/** @type {string} */ tag, /** @type {string} */ label, /** @type {string} */ value) =>
    h(tag, { type: "button", onClick: () => dialog.close(value) }, label);
  dialog.append(h("div.row", null, button(danger ? "button.danger" : "button.main", yes, "yes"), button("button", "Go back", "no")));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(dialog.returnValue === "yes");
  }));
}

/** Whether a task takes neither people nor money any more. @param {string} state */
export const isOver = (state) => ["finished", "cancelled", "settled"].includes(state);

/** @param {string} heading @param {...(Node | string | null)} children */
export function card(heading, ...children) {
  return h("section.card", null, h("h2", null, heading), ...children);
}

/** A labelled input. @param {string} id @param {string} label @param {HTMLElement} input @param {string} [hint] */
export function labelled(id, label, input, hint) {
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", null, h("label", { for: id }, label), input, hint ? h("p.hint", { id: `${id}-hint` }, hint) : null);
}
