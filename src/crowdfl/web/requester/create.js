// A new task: every setting, and what it leads to before anything is sent.
import { h } from "../web/common/dom.js";
import { duration } from "../web/common/format.js";
import { button, facts, form, messageOf, notice } from "../web/common/parts.js";
import { Refusal } from "../web/common/api.js";
import { follow, get, post } from "./api.js";

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
/** @typedef {{ errors: Record<string, string>, problem: string | null, named: string[], explanation: Explanation | null, cost: string }} Answer */

const DRAFT = "crowdfl-draft";
const PAUSE_MS = 350;
/** @type {Record<string, string>} */
const TITLES = { task: "What people are told", who: "Who asks", plan: "When", settings: "Rounds, money and protection", training: "What every device trains" };

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
    h("div.row", null, button("Fill the form in", use)));
}

class Maker {
  /** @type {Map<string, { field: Field, input: Input, fault: HTMLElement, note: HTMLElement }>} */
  #inputs = new Map();
  #answer = h("div", null);
  #verdict = h("p.headline", { role: "status" });
  #work = h("div", null);
  #send = button("Create the task", null, { kind: "main", type: "submit" });
  #timer = 0;
  #asking = new AbortController();

  /** @param {readonly Field[]} fields @param {AbortSignal} signal */
  constructor(fields, signal) {
    this.signal = signal;
    const sections = [...new Set(fields.map(({ section }) => section))];
    const fieldsets = form(this.#send, this.#work, () => this.create(),
      ...sections.map((section) => this.#section(section, fields.filter((field) => field.section === section))),
      h("div.row", null, this.#send), this.#work);
    fieldsets.addEventListener("input", () => this.#changed());
    const answer = h("section.card.answer", { "aria-labelledby": "answer" }, h("h2", { id: "answer" }, "What this leads to"),
      this.#verdict, this.#answer, h("p.soft", null, "Computed here. Nothing is sent before you create the task."));
    this.element = h("div.maker", null, fieldsets, answer);
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
    this.#timer = window.setTimeout(() => void this.explain(), PAUSE_MS);
  }

  /** Ask what the values lead to; an older question is dropped. */
  async explain() {
    this.#asking.abort();
    this.#asking = new AbortController();
    const signal = AbortSignal.any([this.#asking.signal, this.signal]);
    if (!this.#verdict.textContent) this.#answer.replaceChildren(h("p.soft", null, "Computing …"));
    try {
      this.#show(await post("explain", { values: this.values() }, signal));
    } catch (failure) {
      if (!signal.aborted) this.#answer.replaceChildren(notice("bad", messageOf(failure)));
    }
  }

  /** @param {Answer} answer */
  #show({ errors, problem, named, explanation, cost }) {
    this.#mark(errors, named);
    const count = Object.keys(errors).length;
    this.#verdict.className = explanation ? "headline good" : "headline bad";
    if (explanation) {
      this.#verdict.textContent = `It fits: ${explanation.parameters.toLocaleString("en")} parameters.`;
      this.#answer.replaceChildren(...explained(explanation, cost));
    } else {
      this.#verdict.textContent = problem ? "It does not fit." : `${count} ${count === 1 ? "setting is" : "settings are"} wrong.`;
      const list = Object.entries(errors).map(([key, text]) => h("li", null, this.#linkTo(key), text));
      this.#answer.replaceChildren(problem ? notice("bad", problem) : h("ul", null, ...list));
    }
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
    try {
      const job = await post("tasks", { values: this.values() }, this.signal);
      const { task } = await follow(job, this.#work, this.signal);
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

/** @param {Explanation} explanation @param {string} cost */
function explained({ profile, widths, dealt, warnings }, cost) {
  return [
    h("p", null, `Profile ${profile}.`, cost && ` All rounds cost ${cost}.`),
    ...warnings.map((text) => notice("warn", `Warning: ${text}`)),
    h("h3", null, "Widths and bounds"),
    facts(explainedRows(widths)),
    ...(dealt ? [h("h3", null, "Dealt by KGC"), h("p", null, dealt)] : []),
  ];
}

const LABEL = 15; // columns, as `crowdfl task explain` writes its lines

/**
 * The lines of an explanation as terms and what is said of each; a line without a term goes on with the one before.
 * @param {string} widths @returns {[string, string][]}
 */
export function explainedRows(widths) {
  /** @type {[string, string][]} */
  const rows = [];
  for (const line of widths.split("\n").filter((one) => one.trim())) {
    const term = line.slice(0, LABEL).trim();
    const last = rows.at(-1);
    if (!/\s$/.test(line.slice(0, LABEL))) rows.push(["", line.trim()]);
    else if (term || !last) rows.push([term, line.slice(LABEL).trim()]);
    else last[1] += ` ${line.trim()}`;
  }
  return rows;
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
