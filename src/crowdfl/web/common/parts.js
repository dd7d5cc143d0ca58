// Pieces that the pages share: buttons, notices, questions, and parts that are drawn again.
import { h } from "./dom.js";
import { formatTime, money } from "./format.js";
import { chooseLanguage, isSaid, language, LANGUAGES, listOf, spokenHere, t } from "./text.js";

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {{ kind?: "main" | "danger" | "", label?: string, id?: string, small?: boolean, type?: "button" | "submit" }} ButtonOptions */

/** A heading that takes the focus when its view opens. @param {string} text @param {Record<string, unknown>} [more] */
export const title = (text, more) => h("h1", { tabindex: -1, ...more }, text);

/** @param {string} heading @param {...Child} children */
export const card = (heading, ...children) => h("section.card", null, h("h2", null, heading), ...children);

/** @param {string} text @param {((event: Event) => unknown) | null} act @param {ButtonOptions} [options] */
export function button(text, act, { kind = "", label, id, small, type = "button" } = {}) {
  const tag = ["button", kind, small ? "small" : ""].filter(Boolean).join(".");
  return /** @type {HTMLButtonElement} */ (h(tag, { type, onclick: act, "aria-label": label, id }, text));
}

/** A button whose action is an `attempt`. @param {string} text @param {HTMLElement} place @param {() => Promise<unknown>} act @param {ButtonOptions} [options] */
export function actionButton(text, place, act, options) {
  const made = button(text, () => attempt(made, place, act), options);
  return made;
}

/** @param {HTMLButtonElement} send @param {HTMLElement} place @param {() => Promise<unknown>} act @param {...Child} children */
export function form(send, place, act, ...children) {
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void attempt(send, place, act);
  };
  return h("form", { novalidate: true, onsubmit: submit }, ...children);
}

/** @param {string} id @param {string} label @param {HTMLElement} input @param {string} [hint] */
export function labelled(id, label, input, hint) {
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", null, h("label", { for: id }, label), input, hint && h("p.hint", { id: `${id}-hint` }, hint));
}

/** @param {readonly (readonly [string, ...Child[]] | null | false)[]} entries A name, and what is said about it. */
export function facts(entries) {
  const rows = entries.filter((entry) => !!entry).map((entry) => {
    const [name, ...text] = /** @type {[string, ...Child[]]} */ (entry);
    return h("div", null, h("dt", null, name), h("dd", null, ...text));
  });
  return h("dl.facts", null, ...rows);
}

/**
 * A box that says something went wrong, or is worth knowing. A screen reader says it at once.
 * @param {"bad" | "warn" | "good"} kind @param {...Child} text
 */
export const notice = (kind, ...text) => h(`div.notice.${kind}`, { role: kind === "bad" ? "alert" : "status" }, h("p", null, ...text));

/** @type {Record<string, string>} Classes for a state. */
const LOOKS = { running: "good", paused: "warn", cancelled: "bad", aborted: "bad", unknown: "bad", rejected: "bad", confirmed: "good", paid: "good", pending: "warn", no_destination: "warn", waiting: "warn", failed: "bad" };

/** @param {string} state As the services call it. */
export const stateTag = (state) =>
  h(["span", "state", LOOKS[state]].filter(Boolean).join("."), null, isSaid(`state.${state}`) ? t(`state.${state}`) : state);

/** @typedef {{ code: string, amount?: number, currency?: string, names?: string[], [value: string]: any }} Wait What a task waits for, as the services tell it. */

/** @param {Wait} wait */
export function waitText({ code, amount, currency, names, at, until, since, ...rest }) {
  const moment = formatTime(at ?? until ?? since);
  return t(`wait.${code}`, { ...rest, moment, amount: amount === undefined ? "" : money(amount, currency), names: listOf(names ?? []) });
}

let explain = (/** @type {unknown} */ failure) => (failure instanceof Error ? failure.message || failure.name : String(failure));

/** What this page says of a failure. @param {unknown} failure */
export const messageOf = (failure) => explain(failure);

/** For a page with words of its own. @param {(failure: unknown) => string} words */
export function explainBy(words) {
  explain = words;
}

/**
 * Run what a button starts, once at a time, and show beside it what goes wrong; what was called off says nothing.
 * @param {HTMLButtonElement} pressed @param {HTMLElement} place @param {() => Promise<unknown>} act
 */
async function attempt(pressed, place, act) {
  if (pressed.getAttribute("aria-disabled") === "true") return;
  pressed.setAttribute("aria-disabled", "true"); // `disabled` would take the focus away
  place.replaceChildren();
  try {
    await act();
  } catch (wrong) {
    if (!(wrong instanceof DOMException && wrong.name === "AbortError")) place.replaceChildren(notice("bad", explain(wrong)));
  } finally {
    pressed.removeAttribute("aria-disabled");
  }
}

/**
 * @typedef {{ name: string, label: string, hint?: string, kind?: "text" | "checkbox", inputmode?: string }} Field
 * @typedef {Record<string, string | boolean>} Values
 * @typedef {{ title: string, text: Child[], action: string, back?: string, danger?: boolean, fields?: readonly Field[] }} Question
 */

/**
 * Ask before something is done, and do it. The dialog stays open with the words of a refusal; the focus goes back to where it was.
 * @param {Question} question @param {(values: Values) => Promise<unknown>} [act] @returns {Promise<boolean>} Whether it was done.
 */
export function ask({ title: heading, text, action, back = t("common.notNow"), danger = true, fields = [] }, act = async () => {}) {
  const opener = document.activeElement;
  const [inputs, wrong] = [fields.map(inputOf), h("div")];
  const send = button(action, null, { kind: danger ? "danger" : "main", type: "submit" });
  let done = false;
  const submit = async () => {
    await act(Object.fromEntries(inputs.map(({ name, value }) => [name, value()])));
    done = true;
    dialog.close();
  };
  const inside = form(send, wrong, submit, h("h2", { id: "question" }, heading), ...text.map((one) => (one instanceof HTMLFieldSetElement ? one : h("p", null, one))),
    ...inputs.map(({ element }) => element), wrong, h("div.buttons", null, button(back, () => dialog.close()), send));
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-labelledby": "question" }, inside));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    dialog.remove();
    const again = opener?.id ? document.getElementById(opener.id) : opener; // it may have been drawn again
    if (again instanceof HTMLElement) again.focus();
    resolve(done);
  }));
}

/** @param {Field} field */
function inputOf({ name, label, hint, kind = "text", inputmode }) {
  const plain = { autocomplete: "off", spellcheck: "false", autocapitalize: "none" };
  const box = /** @type {HTMLInputElement} */ (h("input", { name, type: kind, inputmode, ...plain }));
  const element = labelled(`field-${name}`, label, box, hint);
  if (kind === "checkbox") element.className = "check";
  return { name, element, value: () => (kind === "checkbox" ? box.checked : box.value.trim()) };
}

/**
 * Put new elements into a place; focus, open details and sideways scrolling stay.
 * @param {HTMLElement} place @param {readonly Child[]} children
 */
export function redraw(place, children) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  const regions = () => [...place.querySelectorAll(".scroll")];
  const keep = { focus: focused && pathTo(focused), left: regions().map((one) => one.scrollLeft),
    open: [...place.querySelectorAll("details[open][id]")].map(({ id }) => id) };
  place.replaceChildren(...h("div", null, ...children).childNodes);
  for (const id of keep.open) document.getElementById(id)?.setAttribute("open", "");
  regions().forEach((one, number) => { one.scrollLeft = keep.left[number] ?? 0; });
  if (keep.focus) /** @type {HTMLElement | null} */ (place.querySelector(keep.focus))?.focus({ preventScroll: true });
}

/** By its id, else by its label: what is drawn anew is another element. @param {Element} element */
function pathTo(element) {
  const [label, around] = [element.getAttribute("aria-label"), element.parentElement?.id];
  if (element.id) return `#${CSS.escape(element.id)}`;
  if (label) return `[aria-label="${CSS.escape(label)}"]`;
  return element.tagName === "SUMMARY" && around ? `#${CSS.escape(around)} > summary` : null;
}

/**
 * A part of a view that is made again when what it shows has changed, and only then.
 * @template Shown
 * @param {string} tag @param {Record<string, unknown> | null} properties @param {(shown: Shown) => Child[]} render
 */
export function part(tag, properties, render) {
  const element = h(tag, properties);
  let last = "";
  /** @param {Shown} shown */
  const show = (shown) => {
    const now = JSON.stringify(shown, (_, value) => (typeof value === "bigint" ? `${value}n` : value));
    if (now !== last) redraw(element, render(shown));
    last = now;
  };
  return { element, show };
}

/** The bar above a console. @param {HTMLElement} place @param {string} name @param {Record<string, string>} links @param {...Child} more */
export function showBar(place, name, links, ...more) {
  const views = Object.entries(links).map(([to, text]) => h("a", { href: to }, text));
  place.replaceChildren(h("div.page.row", null, h("strong", null, name), h("nav", { "aria-label": t("shell.views") }, ...views), h("span.row", null, ...more, languageChoice())));
}

/** The page in another language: it is loaded again. */
export function languageChoice() {
  const options = spokenHere().map((code) => h("option", { value: code, lang: code, selected: code === language() }, LANGUAGES[code]));
  const choose = (/** @type {Event} */ event) => chooseLanguage(/** @type {HTMLSelectElement} */ (event.target).value);
  return h("select.language", { "aria-label": t("common.language"), onchange: choose }, ...options);
}

/** Mark the link to the view that is open. @param {string} hash */
export function markView(hash) {
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === hash) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}
