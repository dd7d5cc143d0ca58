// How a setting is typed or chosen: in people's units on the page, in the task file's own when it is sent.
import { h } from "../web/common/dom.js";
import { said } from "../web/common/said.js";
import { isSaid, t } from "../web/common/text.js";
import { questionEditor, sensorEditor } from "./editors.js";

/**
 * @typedef {object} Field
 * @property {string} section @property {string} name @property {string} kind @property {string[]} choices
 * @property {boolean} optional @property {boolean} required @property {boolean} seconds
 * @property {boolean} first Whether most people decide it.
 * @property {string | null} example
 */
/** @typedef {import("./editors.js").Input} Input */
/** @typedef {import("./editors.js").Value} Value */
/** @typedef {import("./editors.js").Control} Control */

/** @param {Field} field */
export const keyOf = ({ section, name }) => `${section}.${name}`;

/** As people call it. @param {Field} field */
export function spoken({ section, name, optional }) {
  const label = section.startsWith("texts.") ? t(`texts.${name}`) : t(`field.${section}_${name}`);
  return optional ? t("create.optional", { label }) : label;
}

const SECTIONS = ["settings", "plan", "training", "task", "consent", "who"];

/** What the service says of settings, with the names that the form has for them. @param {string} words */
export function inForm(words) {
  return said(words).replace(/`(\w+)`/g, (whole, name) => {
    const key = SECTIONS.map((section) => `field.${section}_${name}`).find(isSaid);
    return key ? t("create.named", { label: t(key) }) : whole;
  });
}

/** @param {Field} field */
export const hintOf = ({ section, name }) => (section.startsWith("texts.") ? t(`textHint.${name}`) : t(`hint.${section}_${name}`));

/** @param {Field} field @param {string} id @returns {Control} */
export function control(field, id) {
  const made = SPECIAL[keyOf(field)]?.(id);
  if (made) return made;
  if (field.seconds) return span(id);
  if (field.kind === "flag") {
    const box = /** @type {HTMLInputElement} */ (h("input", { id, type: "checkbox" }));
    return { element: box, input: box, get: () => box.checked, set: (value) => { box.checked = value === true; } };
  }
  return plain(inputOf(field, id));
}

/** @param {Input} input @returns {Control} */
function plain(input) {
  const set = (/** @type {Value} */ value) => {
    const text = typeof value === "string" ? value : "";
    // Of a task to start from that has what is not offered here, such as code: kept, not replaced unseen.
    if (input instanceof HTMLSelectElement && ![...input.options].some((one) => one.value === text)) input.append(h("option", { value: text }, text));
    input.value = text;
  };
  return { element: input, input, get: () => input.value, set };
}

/** @param {Field} field @param {string} id @returns {Input} */
function inputOf({ section, name, kind, choices, optional, example }, id) {
  if (kind === "choice") {
    const shown = (/** @type {string} */ one) => isSaid(`choice.${name}_${one}`) ? t(`choice.${name}_${one}`) : one;
    const options = [...(optional ? [h("option", { value: "" }, t("create.asUsual"))] : []), ...choices.map((one) => h("option", { value: one }, shown(one)))];
    return /** @type {HTMLSelectElement} */ (h("select", { id }, ...options));
  }
  const rows = section === "consent" ? 10 : kind === "long" ? 3 : 4;
  if (kind === "long" || kind === "lines") return /** @type {HTMLTextAreaElement} */ (h("textarea", { id, rows }));
  const mode = { whole: "numeric", number: "decimal", money: "decimal" }[kind];
  return /** @type {HTMLInputElement} */ (h("input", { id, type: "text", inputmode: mode, autocomplete: "off", placeholder: example && t("create.example", { example }) }));
}

/** @type {readonly (readonly [string, number])[]} */
const UNITS = [["days", 86_400], ["hours", 3_600], ["minutes", 60], ["seconds", 1]];

/** A length of time, in the largest unit that it is whole in. @param {string} id @returns {Control} */
function span(id) {
  const input = /** @type {HTMLInputElement} */ (h("input", { id, type: "text", inputmode: "decimal", autocomplete: "off" }));
  const unit = /** @type {HTMLSelectElement} */ (h("select", { id: `${id}-unit`, "aria-label": t("create.unit") },
    ...UNITS.map(([name, size]) => h("option", { value: size }, t(`unit.${name}`)))));
  let [given, shown] = ["", ""];
  const typed = () => `${input.value} ${unit.value}`;
  const get = () => {
    if (typed() === shown) return given; // as it was written
    return Number(input.value) > 0 ? String(Number((Number(input.value) * Number(unit.value)).toFixed(3))) : input.value;
  };
  const set = (/** @type {Value} */ value) => {
    given = String(value);
    const size = UNITS.find(([, one]) => Number(given) > 0 && Number(given) % one === 0)?.[1] ?? (Number(given) ? 1 : 86_400);
    [input.value, unit.value] = [Number(given) > 0 ? String(Number(given) / size) : given, String(size)];
    shown = typed();
  };
  return { element: h("div.span", null, input, unit), input, get, set };
}

/** A moment, in the time zone of whoever types it; what was not touched stays as it was written. @param {string} id @returns {Control} */
function momentOf(id) {
  const input = /** @type {HTMLInputElement} */ (h("input", { id, type: "datetime-local" }));
  let [given, shown] = ["", ""];
  const set = (/** @type {Value} */ value) => {
    const date = new Date(String(value || NaN));
    given = String(value);
    input.value = shown = Number.isNaN(date.getTime()) ? "" : local(date);
  };
  return { element: input, input, get: () => (input.value === shown ? given : input.value && `${input.value}:00${offset(new Date(input.value))}`), set };
}

/** @param {Date} date */
const local = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

/** @param {Date} date */
function offset(date) {
  const minutes = -date.getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((one) => String(one).padStart(2, "0"));
  return `${minutes < 0 ? "-" : "+"}${hours}:${rest}`;
}

/** A time of day in a place; the place is this browser's, unless the task says another. @param {string} id @returns {Control} */
function daily(id) {
  const input = /** @type {HTMLInputElement} */ (h("input", { id, type: "time" }));
  const place = h("span.soft");
  let zone = "";
  const set = (/** @type {Value} */ value) => {
    const [time = "", where = ""] = String(value).split(" ");
    [input.value, zone] = [time, where || Intl.DateTimeFormat().resolvedOptions().timeZone];
    place.textContent = zone;
  };
  return { element: h("div.span", null, input, place), input, get: () => input.value && `${input.value} ${zone}`, set };
}

/** At once, at a time of day, or so long apart. @param {string} id @returns {Control} */
function pace(id) {
  const kinds = ["atOnce", "daily", "apart"];
  const kind = /** @type {HTMLSelectElement} */ (h("select", { id }, ...kinds.map((one) => h("option", { value: one }, t(`pace.${one}`)))));
  const controls = /** @type {Record<string, Control>} */ ({ daily: daily(`${id}-time`), apart: span(`${id}-apart`) });
  for (const one of Object.values(controls)) one.input.setAttribute("aria-label", t("field.plan_every"));
  const choose = () => { for (const [name, one] of Object.entries(controls)) one.element.hidden = kind.value !== name; };
  kind.addEventListener("change", choose);
  const get = () => {
    const typed = kind.value === "atOnce" ? "" : controls[kind.value].get();
    return kind.value === "daily" && typed ? "day at ".concat(String(typed)) : typed;
  };
  const set = (/** @type {Value} */ value) => {
    const text = String(value);
    kind.value = !text ? "atOnce" : text.startsWith("day at ") ? "daily" : "apart";
    controls.daily.set(kind.value === "daily" ? text.slice("day at ".length) : "");
    controls.apart.set(kind.value === "apart" ? text : "604800");
    choose();
  };
  return { element: h("div", null, kind, controls.daily.element, controls.apart.element), input: kind, get, set };
}

/** A PNG, as the definition carries it. @param {string} id @returns {Control} */
function logo(id) {
  const input = /** @type {HTMLInputElement} */ (h("input", { id, type: "file", accept: "image/png" }));
  const shown = /** @type {HTMLImageElement} */ (h("img.logo", { alt: "", width: 48, hidden: true }));
  let kept = "";
  const set = (/** @type {Value} */ value) => {
    kept = String(value || "");
    shown.hidden = !kept;
    if (kept) shown.src = `data:image/png;base64,${kept}`;
  };
  input.addEventListener("change", async () => {
    const bytes = new Uint8Array(await (input.files?.[0]?.arrayBuffer() ?? new ArrayBuffer(0)));
    set(btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")));
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
  return { element: h("div.span", null, input, shown), input, get: () => kept, set };
}

/** @type {Record<string, (id: string) => Control>} */
const SPECIAL = { "plan.enrol_until": momentOf, "plan.start_at": momentOf, "plan.every": pace, "who.logo": logo, "training.questions": questionEditor, "training.sensors": sensorEditor };
