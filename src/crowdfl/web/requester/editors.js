// What a recording has beside motion: questions to its owner, and other sensors. In the task's form each is one text, as a file writes it.
import { h } from "../web/common/dom.js";
import { button, labelled } from "../web/common/parts.js";
import { t } from "../web/common/text.js";

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Input */
/** @typedef {string | boolean} Value As the console's service takes it. */
/** @typedef {{ element: HTMLElement, input: Input, get: () => Value, set: (value: Value) => void, group?: boolean }} Control `group`: of several inputs. */
/** @typedef {{ name: string, text: string, choices: string[], use: string }} Question `use`: what the model learns (label), or a part of what it sees. */

const MOST = 3;
const SENSORS = ["speed", "loudness"];

/** As a form's text has it: `pain | Does it hurt? | no, a little | feature`, one a line. @param {string} text @returns {Question[]} */
export const parsed = (text) => text.split("\n").filter((line) => line.trim()).map((line) => {
  const [name, asked = "", choices = "", use = ""] = line.split("|").map((part) => part.trim());
  return { name, text: asked, choices: listed(choices), use: use || "feature" };
});

/** What stands between commas, or on lines. @param {string} text */
const listed = (text) => text.split(/[,\n]/).map((one) => one.trim()).filter(Boolean);

/** Without what parts a line. @param {string} text */
const plain = (text) => text.replace(/[|\n]+/g, " ").trim();

/** A name for programs, of whatever was typed. @param {string} typed @param {number} place */
const named = (typed, place) => typed.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^[^a-z]+|_+$/g, "").slice(0, 40) || `question_${place + 1}`;

/** @param {readonly Question[]} questions */
export const written = (questions) => questions.filter(({ text, choices }) => text.trim() || choices.length)
  .map(({ name, text, choices, use }, place) => [named(name, place), plain(text), choices.map(plain).join(", "), use].join(" | ")).join("\n");

/** At most three questions, each with its choices. @param {string} id @returns {Control} */
export function questionEditor(id) {
  /** @type {{ element: HTMLElement, read: () => Question }[]} */
  let rows = [];
  const place = h("div");
  const changed = () => element.dispatchEvent(new Event("input", { bubbles: true }));
  const add = button(t("asked.add"), () => { insert({ name: "", text: "", choices: [], use: "feature" }); changed(); }, { id: `${id}-add` });
  const element = h("fieldset", { id, tabindex: -1, "aria-labelledby": `${id}-label` }, place, h("div.row", null, add));
  const insert = (/** @type {Question} */ question) => {
    const row = questionRow(`${id}-${rows.length}-${crypto.randomUUID().slice(0, 8)}`, question, () => {
      rows = rows.filter((one) => one !== row);
      row.element.remove();
      add.hidden = false;
      changed();
      add.focus();
    });
    rows.push(row);
    place.append(row.element);
    add.hidden = rows.length >= MOST;
  };
  const set = (/** @type {string | boolean} */ value) => {
    rows = [];
    place.replaceChildren();
    add.hidden = false;
    for (const question of parsed(String(value || ""))) insert(question);
  };
  return { element, input: /** @type {any} */ (element), get: () => written(rows.map(({ read }) => read())), set, group: true };
}

/** @param {string} id @param {Question} question @param {() => void} remove */
function questionRow(id, { name, text, choices, use }, remove) {
  const asked = /** @type {HTMLInputElement} */ (h("input", { type: "text", autocomplete: "off", value: text }));
  const answers = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 3 }));
  answers.value = choices.join("\n");
  const short = /** @type {HTMLInputElement} */ (h("input", { type: "text", autocomplete: "off", spellcheck: "false", value: name }));
  const learnt = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id: `${id}-use`, checked: use === "label" }));
  const element = h("div.question", { role: "group", "aria-label": t("asked.one") },
    labelled(`${id}-text`, t("asked.text"), asked), labelled(`${id}-choices`, t("asked.choices"), answers, t("asked.choicesHint")),
    labelled(`${id}-name`, t("asked.name"), short, t("asked.nameHint")),
    h("label.flag", { for: `${id}-use` }, learnt, t("asked.learnt")), button(t("asked.remove"), remove, { small: true }));
  return { element, read: () => ({ name: short.value, text: asked.value, choices: listed(answers.value), use: learnt.checked ? "label" : "feature" }) };
}

/** Each with what it asks of a phone's owner. @param {string} id @returns {Control} */
export function sensorEditor(id) {
  const boxes = SENSORS.map((name) => /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id: `${id}-${name}`, value: name })));
  const rows = boxes.map((box) => h("label.flag", { for: box.id }, box, t(`sensor.${box.value}`)));
  const element = h("fieldset", { id, tabindex: -1, "aria-labelledby": `${id}-label` }, ...rows);
  const get = () => boxes.filter(({ checked }) => checked).map(({ value }) => value).join("\n");
  const set = (/** @type {string | boolean} */ value) => {
    const chosen = listed(String(value || ""));
    for (const box of boxes) box.checked = chosen.includes(box.value);
  };
  return { element, input: /** @type {any} */ (element), get, set, group: true };
}
