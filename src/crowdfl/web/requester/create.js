// @ts-check
// A new task: every setting, and what it leads to before anything is sent.
import { h } from "../web/common/dom.js";
import { duration } from "../web/common/format.js";
import { Refusal, follow, get, post } from "./api.js";
import { guarded, notice, progress, showFailure } from "./parts.js";
import { costOfRounds, explainedRows } from "./words.js";

/**
 * @typedef {object} Field
 * @property {string} section @property {string} name @property {string} kind @property {string[]} choices
 * @property {boolean} optional @property {boolean} required @property {boolean} usual @property {boolean} seconds
 * @property {string} help @property {string} expected @property {string | null} example
 */
/** @typedef {Record<string, Record<string, string | boolean>>} Values */
/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Input */
/** @typedef {{ name: string, title: string, values: Values }} Start */
/** @typedef {{ profile: string, parameters: number, widths: string, dealt: string, warnings: string[] }} Explanation */
/** @typedef {{ errors: Record<string, string>, problem: string | null, named: string[], explanation: Explanation | null }} Answer */

const DRAFT = "crowdfl-draft";
const PAUSE_MS = 350;
/** @type {Record<string, string>} */
const TITLES = { task: "What people are told", settings: "Rounds, money and protection", training: "What every device trains" };

/** @param {AbortSignal} signal @param {string} [from] A task to start from. */
export async function createView(signal, from) {
  const { fields, starts } = /** @type {{ fields: Field[], starts: Start[] }} */ (await get("form", signal));
  const maker = new Maker(fields, signal);
  maker.fill(from ? (await get(`tasks/${from}`, signal)).values : draft() ?? starts[0].values);
  const element = h("div", null, h("h1", null, "New task"), startChoice(starts, maker), maker.element);
  void maker.explain();
  return { title: "New task", element };
}

/** What was typed before the page was loaded again. @returns {Values | null} */
function draft() {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFT) ?? "null");
  } catch {
    return null;
  }
}

/** @param {readonly Start[]} starts @param {Maker} maker */
function startChoice(starts, maker) {
  const choice = /** @type {HTMLSelectElement} */ (h("select", { id: "start" }, ...starts.map(({ name, title }) => h("option", { value: name }, title))));
  const use = () => {
    const start = starts.find(({ name }) => name === choice.value);
    if (start) maker.fill(start.values);
    void maker.explain();
  };
  return h("div.card", null, h("label", { for: "start" }, "Start from"), choice,
    h("p.hint", null, "This replaces every value in the form."),
    h("div.row", null, h("button", { type: "button", onClick: use }, "Fill the form in")));
}

class Maker {
  /** @type {Map<string, { field: Field, input: Input, fault: HTMLElement, note: HTMLElement }>} */
  #inputs = new Map();
  #answer = h("div", null);
  #said = h("p.headline", { role: "status" });
  #work = h("div", null);
  #send = /** @type {HTMLButtonElement} */ (h("button.main", { type: "submit" }, "Create the task"));
  #timer = 0;
  #asking = new AbortController();

  /** @param {readonly Field[]} fields @param {AbortSignal} signal */
  constructor(fields, signal) {
    this.signal = signal;
    const sections = [...new Set(fields.map(({ section }) => section))];
    const form = h("form", { novalidate: true, onSubmit: (/** @type {Event} */ event) => { event.preventDefault(); void guarded(this.#send, this.#work, () => this.create()); } },
      ...sections.map((section) => this.#section(section, fields.filter((field) => field.section === section))),
      h("div.row", null, this.#send), this.#work);
    form.addEventListener("input", () => this.#changed());
    const answer = h("section.card.answer", { "aria-labelledby": "answer" }, h("h2", { id: "answer" }, "What this leads to"),
      this.#said, this.#answer, h("p.soft", null, "Computed here. Nothing is sent before you create the task."));
    this.element = h("div.maker", null, form, answer);
  }

  /** @param {string} section @param {readonly Field[]} fields */
  #section(section, fields) {
    const make = (/** @type {Field} */ field) => this.#field(field);
    const [usual, more] = [fields.filter(({ usual }) => usual), fields.filter(({ usual }) => !usual)];
    return h("fieldset", null, h("legend", null, TITLES[section] ?? section),
      h("div.fields", null, ...usual.map(make)),
      more.length ? h("details", null, h("summary", null, `More settings (${more.length})`), h("div.fields", null, ...more.map(make))) : null);
  }

  /** @param {Field} field */
  #field(field) {
    const key = `${field.section}.${field.name}`;
    const id = `field-${field.section}-${field.name}`;
    const input = inputOf(field, id);
    const note = h("p.hint", { id: `${id}-note` });
    const fault = h("p.fault", { id: `${id}-fault` });
    input.setAttribute("aria-describedby", `${id}-hint ${id}-note ${id}-fault`);
    this.#inputs.set(key, { field, input, fault, note });
    const label = field.kind === "flag" ? h("label.flag", { for: id }, input, spoken(field)) : h("label", { for: id }, spoken(field));
    const wide = ["long", "lines"].includes(field.kind);
    return h(wide ? "div.wide" : "div", null, label, field.kind === "flag" ? null : input,
      h("p.hint", { id: `${id}-hint` }, hintOf(field)), note, fault);
  }

  /** @param {Values} values */
  fill(values) {
    for (const { field, input } of this.#inputs.values()) {
      const value = values[field.section]?.[field.name];
      if (input instanceof HTMLInputElement && input.type === "checkbox") input.checked = value === true;
      else input.value = typeof value === "string" ? value : "";
    }
    this.#keep();
  }

  /** @returns {Values} */
  values() {
    /** @type {Values} */
    const found = {};
    for (const { field, input } of this.#inputs.values()) {
      const checked = input instanceof HTMLInputElement && input.type === "checkbox";
      (found[field.section] ??= {})[field.name] = checked ? input.checked : input.value;
    }
    return found;
  }

  #keep() {
    sessionStorage.setItem(DRAFT, JSON.stringify(this.values()));
    for (const { field, input, note } of this.#inputs.values()) {
      if (field.seconds) note.textContent = Number(input.value) > 0 ? `= ${duration(Number(input.value))}` : "";
    }
  }

  #changed() {
    this.#keep();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.explain(), PAUSE_MS);
  }

  /** Ask what the values lead to; an older question is dropped. */
  async explain() {
    this.#asking.abort();
    this.#asking = new AbortController();
    const signal = AbortSignal.any([this.#asking.signal, this.signal]);
    if (!this.#said.textContent) this.#answer.replaceChildren(h("p.soft", null, "Computing …"));
    try {
      this.#show(await post("explain", { values: this.values() }, signal));
    } catch (failure) {
      if (!signal.aborted) showFailure(this.#answer, failure);
    }
  }

  /** @param {Answer} answer */
  #show({ errors, problem, named, explanation }) {
    this.#mark(errors, named);
    const count = Object.keys(errors).length;
    this.#said.className = explanation ? "headline good" : "headline bad";
    if (explanation) {
      this.#said.textContent = `It fits: ${explanation.parameters.toLocaleString("en")} parameters.`;
      this.#answer.replaceChildren(...this.#explained(explanation));
    } else {
      this.#said.textContent = problem ? "It does not fit." : `${count} ${count === 1 ? "setting is" : "settings are"} wrong.`;
      const list = Object.entries(errors).map(([key, text]) => h("li", null, this.#linkTo(key), text));
      this.#answer.replaceChildren(problem ? h("div.notice.bad", null, problem) : h("ul", null, ...list));
    }
  }

  /** @param {Explanation} explanation */
  #explained({ profile, widths, dealt, warnings }) {
    return [
      h("p", null, `Profile ${profile}.`, this.#cost()),
      ...warnings.map((text) => notice(`Warning: ${text}`, "warn")),
      h("h3", null, "Widths and bounds"),
      h("dl.widths", null, ...explainedRows(widths).flatMap(([term, text]) => [h("dt", null, term), h("dd", null, text)])),
      ...(dealt ? [h("h3", null, "Dealt by KGC"), h("p", null, dealt)] : []),
    ];
  }

  #cost() {
    const { budget, rounds } = this.values().settings;
    const cost = costOfRounds(String(budget), String(rounds));
    return cost && ` All rounds cost ${cost}.`;
  }

  /** @param {string} key */
  #linkTo(key) {
    const found = this.#inputs.get(key);
    if (!found) return "";
    const go = (/** @type {Event} */ event) => { event.preventDefault(); this.#focus(key); };
    return h("span", null, h("a", { href: "#/new", onClick: go }, spoken(found.field)), ": ");
  }

  /** @param {string} key */
  #focus(key) {
    const input = this.#inputs.get(key)?.input;
    const hidden = input?.closest("details");
    if (hidden) hidden.open = true;
    input?.focus();
  }

  /** @param {Record<string, string>} errors @param {readonly string[]} [named] */
  #mark(errors, named = []) {
    for (const [key, { input, fault }] of this.#inputs) {
      const text = errors[key] ?? "";
      if (fault.textContent !== text) fault.textContent = text;
      input.classList.toggle("named", named.includes(key));
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  }

  async create() {
    this.#work.replaceChildren();
    try {
      const job = await post("tasks", { values: this.values() }, this.signal);
      const { task } = await follow(job, (now) => this.#work.replaceChildren(progress(now)), this.signal);
      sessionStorage.removeItem(DRAFT);
      location.hash = `#/tasks/${task}`;
    } catch (failure) {
      if (failure instanceof Refusal && Object.keys(failure.faults).length) {
        this.#mark(failure.faults);
        this.#focus(Object.keys(failure.faults)[0]);
      }
      throw failure;
    }
  }
}

/** @param {Field} field @param {string} id @returns {Input} */
function inputOf({ kind, choices, optional, example }, id) {
  if (kind === "choice") {
    const options = [...(optional ? [h("option", { value: "" }, "as usual")] : []), ...choices.map((one) => h("option", { value: one }, one))];
    return /** @type {HTMLSelectElement} */ (h("select", { id }, ...options));
  }
  if (kind === "flag") return /** @type {HTMLInputElement} */ (h("input", { id, type: "checkbox" }));
  if (kind === "long" || kind === "lines") return /** @type {HTMLTextAreaElement} */ (h("textarea", { id, rows: kind === "long" ? 2 : 4 }));
  const mode = { whole: "numeric", number: "decimal", money: "decimal" }[kind];
  return /** @type {HTMLInputElement} */ (h("input", { id, type: "text", inputmode: mode, autocomplete: "off", placeholder: example ? `e.g. ${example}` : null }));
}

/** @param {Field} field */
const spoken = ({ name, optional }) => `${name.replaceAll("_", " ")}${optional ? " (optional)" : ""}`;

/** @param {Field} field */
function hintOf({ help, expected, kind }) {
  const lines = { lines: " One a line.", numbers: " Several with commas." }[kind] ?? "";
  return kind === "choice" || kind === "flag" || kind === "long" ? help : `${help} ${expected[0].toUpperCase()}${expected.slice(1)}.${lines}`;
}
