// A new task, step by step: every setting, the phone's page beside it, and what it leads to before anything is sent.
import { h } from "../web/common/dom.js";
import { bytes, duration, formatTime, money } from "../web/common/format.js";
import { button, facts, form, messageOf, notice } from "../web/common/parts.js";
import { said, translated } from "../web/common/said.js";
import { language, LANGUAGES, listOf, t, together } from "../web/common/text.js";
import { Refusal } from "../web/common/api.js";
import { claimsEarly } from "../phone/protocol/amounts.js";
import { follow, get, post } from "./api.js";
import { control, hintOf, inForm, keyOf, spoken } from "./fields.js";

/** @typedef {import("./fields.js").Field} Field */
/** @typedef {import("./fields.js").Control} Control */
/** @typedef {Record<string, Record<string, string | boolean>>} Values */
/** @typedef {{ name: string, values: Values }} Start */
/** @typedef {{ profile: string, parameters: number, widths: string, dealt: string, warnings: string[] }} Explanation */
/** @typedef {{ errors: Record<string, string>, problem: string | null, named: string[], idle: string[] | null, explanation: Explanation | null, cost: number, upload: number, body: any }} Answer */

const DRAFT = "crowdfl-draft";
const PAUSE_MS = 350;

/** The steps, and in each its settings; what few people decide, and the rest of a section, is behind "More settings" of its step. @type {Record<string, string[]>} */
const STEPS = {
  what: ["task.purpose", "who.name", "who.institution", "who.contact", "who.approval", "who.logo", "task.terms", "task.readers"],
  record: ["training.labels", "training.channels", "training.sensors", "training.questions", "training.learner", "training.layers", "training.features", "training.epochs"],
  plan: ["settings.min_participants", "settings.max_participants", "task.recruit", "plan.start_with", "plan.enrol_until", "plan.start_at",
    "settings.rounds", "plan.every", "settings.window", "plan.closes"],
  pay: ["settings.pay", "settings.each", "settings.bonus", "settings.budget", "settings.currency", "task.claim_window"],
  consent: ["consent.version", "consent.text"],
  protect: ["settings.profile", "settings.weighting", "settings.max_norm", "settings.max_samples", "settings.server_step"],
  check: [],
};
/** Chosen by whoever needs them, and found by nobody who has to look for them. */
const OPEN = ["training.sensors", "training.questions"];
/** @type {Record<string, string>} Where the rest of a section is. */
const HOMES = { task: "what", who: "what", plan: "plan", settings: "protect", training: "record", consent: "consent" };
const TRANSLATED = ["purpose", "terms", "readers", "consent", "words"];

/** @param {AbortSignal} signal @param {string} [from] A task to start from. */
export async function createView(signal, from) {
  const { fields, starts } = /** @type {{ fields: Field[], starts: Start[] }} */ (await get("form", signal));
  const maker = new Maker(fields, signal);
  maker.fill(from ? (await get(`tasks/${from}`, signal)).values : draft() ?? starts[0].values);
  const element = h("div", null, h("h1", null, t("create.title")), startChoice(starts, maker), maker.element);
  void maker.explain();
  return { title: t("create.title"), element };
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
  const choice = /** @type {HTMLSelectElement} */ (h("select", { id: "start" }, ...starts.map(({ name }) => h("option", { value: name }, t(`start.${name}`)))));
  const use = () => {
    const start = starts.find(({ name }) => name === choice.value);
    if (start) maker.fill(start.values);
    void maker.explain();
  };
  return h("details", { id: "starting" }, h("summary", null, t("create.startTitle")), h("label", { for: "start" }, t("create.start")), choice,
    h("p.hint", null, t("create.startHint")), h("div.row", null, button(t("create.fill"), use)));
}

class Maker {
  /** @type {Map<string, { field: Field, control: Control, fault: HTMLElement, step: string, element: HTMLElement }>} */
  #inputs = new Map();
  #verdict = h("p.headline", { role: "status" });
  #answer = h("div", null);
  #timeline = h("div", null);
  #work = h("div", null);
  #send = button(t("create.create"), null, { kind: "main", type: "submit" });
  #back = button(t("create.back"), () => this.go(-1));
  #next = button(t("create.next"), () => this.go(1), { kind: "main" });
  #preview = new Preview();
  #step = "what";
  #timer = 0;
  #asking = new AbortController();

  /** @param {readonly Field[]} fields @param {AbortSignal} signal */
  constructor(fields, signal) {
    this.signal = signal;
    this.languages = h("div", null);
    /** @type {Record<string, HTMLElement>} */
    this.sections = Object.fromEntries(Object.keys(STEPS).map((step) => [step, this.#section(step, fields)]));
    this.tabs = Object.fromEntries(Object.keys(STEPS).map((step) => [step, button(t(`step.${step}`), () => this.show(step), { id: `step-${step}` })]));
    const inside = form(this.#send, this.#work, () => this.create(), ...Object.values(this.sections),
      h("div.buttons", null, this.#back, this.#next, this.#send), this.#work);
    inside.addEventListener("input", () => this.#changed());
    const beside = h("aside.answer", { "aria-label": t("create.beside") }, this.#verdict, this.#preview.element);
    this.element = h("div", null,
      h("ol.wizard", null, ...Object.values(this.tabs).map((tab) => h("li", null, tab))), h("div.maker", null, inside, beside));
    this.show(this.#step);
  }

  /** @param {string} step @param {readonly Field[]} fields */
  #section(step, fields) {
    const listed = STEPS[step].map((key) => fields.find((field) => keyOf(field) === key)).filter((field) => !!field);
    const all = Object.values(STEPS).flat();
    const some = listed.some(({ first }) => first);
    const seldom = some ? listed.filter((field) => !field.first && !OPEN.includes(keyOf(field))) : [];
    const rest = [...seldom, ...fields.filter((field) => HOMES[field.section] === step && !all.includes(keyOf(field)))];
    const extra = { plan: [this.#timeline], consent: [this.languages, this.#adder()], check: [this.#answer] }[step] ?? [];
    return h("section", { hidden: true, "aria-labelledby": `title-${step}` }, h("h2", { id: `title-${step}`, tabindex: -1 }, t(`step.${step}`)),
      h("p.soft", null, t(`about.${step}`)), h("div.fields", null, ...listed.filter((field) => !seldom.includes(field)).map((field) => this.#field(field, step))), ...extra,
      rest.length ? h("details", null, h("summary", null, t("create.more", { count: rest.length })),
        h("div.fields", null, ...rest.map((field) => this.#field(field, step)))) : null);
  }

  /** @param {Field} field @param {string} step */
  #field(field, step) {
    const id = `field-${field.section}-${field.name}`;
    const made = control(field, id);
    const fault = h("p.fault", { id: `${id}-fault` });
    made.input.setAttribute("aria-describedby", `${id}-hint ${id}-fault`);
    const flag = field.kind === "flag";
    const label = made.group ? h("p.label", { id: `${id}-label` }, spoken(field)) : h(flag ? "label.flag" : "label", { for: id }, flag && made.element, spoken(field));
    const wide = ["long", "lines"].includes(field.kind) || field.name === "logo" || made.group;
    const element = h(wide ? "div.wide" : "div", null, label, !flag && made.element, h("p.hint", { id: `${id}-hint` }, hintOf(field)), fault);
    this.#inputs.set(keyOf(field), { field, control: made, fault, step, element });
    return element;
  }

  /** Another language for what people read. */
  #adder() {
    const tag = /** @type {HTMLInputElement} */ (h("input", { id: "language", list: "languages", autocomplete: "off", placeholder: "de" }));
    const names = h("datalist", { id: "languages" }, ...Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code }, name)));
    const act = () => {
      if (!/^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$/.test(tag.value) || this.languages.querySelector(`[data-tag="${tag.value}"]`)) return tag.focus();
      this.#language(tag.value);
      tag.value = "";
      this.#changed();
    };
    return h("div.inline", null, h("div", null, h("label", { for: "language" }, t("create.language")), tag, names, h("p.hint", null, t("create.languageHint"))),
      h("div", null, button(t("create.addLanguage"), act)));
  }

  /** The fields of one language. @param {string} tag */
  #language(tag) {
    const section = `texts.${tag}`;
    const texts = TRANSLATED.map((name) => this.#field({ section, name, kind: "long", choices: [], optional: false, required: false, seconds: false, first: false, example: null }, "consent"));
    const remove = () => {
      for (const name of TRANSLATED) this.#inputs.delete(`${section}.${name}`);
      place.remove();
      this.#changed();
    };
    const place = h("fieldset", { "data-tag": tag }, h("legend", null, nameOf(tag)), ...texts, button(t("create.removeLanguage"), remove, { kind: "danger", label: t("create.removeOf", { language: nameOf(tag) }) }));
    this.languages.append(place);
  }

  /** @param {string} step @param {boolean} [moved] Whether somebody went there. */
  show(step, moved = true) {
    this.#step = step;
    const names = Object.keys(STEPS);
    for (const name of names) {
      this.sections[name].hidden = name !== step;
      if (name === step) this.tabs[name].setAttribute("aria-current", "step");
      else this.tabs[name].removeAttribute("aria-current");
    }
    [this.#back.hidden, this.#next.hidden, this.#send.hidden] = [step === names[0], step === "check", step !== "check"];
    if (moved && this.element?.isConnected) document.getElementById(`title-${step}`)?.focus();
  }

  /** @param {number} by */
  go(by) {
    const names = Object.keys(STEPS);
    this.show(names[names.indexOf(this.#step) + by]);
  }

  /** @param {Values} values */
  fill(values) {
    this.languages.replaceChildren();
    for (const key of [...this.#inputs.keys()].filter((one) => one.startsWith("texts."))) this.#inputs.delete(key);
    for (const section of Object.keys(values).filter((one) => one.startsWith("texts."))) this.#language(section.slice("texts.".length));
    for (const { field, control: { set } } of this.#inputs.values()) set(values[field.section]?.[field.name] ?? "");
    this.#keep();
  }

  /** @returns {Values} */
  values() {
    /** @type {Values} */
    const found = {};
    for (const { field, control: { get: typed } } of this.#inputs.values()) (found[field.section] ??= {})[field.name] = typed();
    return found;
  }

  #keep() {
    sessionStorage.setItem(DRAFT, JSON.stringify(this.values()));
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
    try {
      this.#show(await post("explain", { values: this.values() }, signal));
    } catch (failure) {
      if (!signal.aborted) this.#answer.replaceChildren(notice("bad", messageOf(failure)));
    }
  }

  /** @param {Answer} answer */
  #show({ errors, problem, named, idle, explanation, cost, upload, body }) {
    this.#mark(errors, named);
    if (idle) for (const [key, { element }] of this.#inputs) element.hidden = idle.includes(key);
    const count = Object.keys(errors).length;
    this.#verdict.className = `headline ${explanation ? "good" : "bad"}`;
    if (explanation) {
      this.#verdict.textContent = upload ? t("create.fits", { size: bytes(upload) }) : t("create.fitsPlain");
      this.#answer.replaceChildren(timeline(body), ...explained(explanation, cost && money(cost, body.settings.currency)));
      this.#timeline.replaceChildren(h("h3", null, t("time.title")), timeline(body));
      this.#preview.show(body);
    } else {
      this.#verdict.textContent = problem ? t("create.doesNotFit") : t("create.wrong", { count });
      const list = Object.entries(errors).map(([key, text]) => h("li", null, this.#linkTo(key), inForm(text)));
      this.#answer.replaceChildren(problem ? notice("bad", inForm(problem)) : h("ul", null, ...list));
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
    const found = this.#inputs.get(key);
    if (!found) return;
    this.show(found.step, false);
    const hidden = found.control.input.closest("details");
    if (hidden) hidden.open = true;
    found.control.input.focus();
  }

  /** @param {Record<string, string>} errors @param {readonly string[]} [named] */
  #mark(errors, named = []) {
    for (const tab of Object.values(this.tabs)) tab.classList.remove("wrong");
    for (const [key, { control: { input }, fault, step }] of this.#inputs) {
      const text = inForm(errors[key] ?? "");
      if (fault.textContent !== text) fault.textContent = text;
      input.classList.toggle("named", named.includes(key));
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      if (text || named.includes(key)) this.tabs[step].classList.add("wrong");
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

/** A language by its name, in the reader's. @param {string} tag */
const nameOf = (tag) => new Intl.DisplayNames(language(), { type: "language" }).of(tag) ?? tag;

/** @param {string} code */
const languageOption = (code) => h("option", { value: code, lang: code, selected: code === language() }, LANGUAGES[code] ?? new Intl.DisplayNames(code, { type: "language" }).of(code) ?? code);

/** The phone's own page with the invitation as people would see it, in any language that it speaks or that the task is written in. */
class Preview {
  #frame = /** @type {HTMLIFrameElement} */ (h("iframe.phone", { src: "preview.html", title: t("create.phone") }));
  #code = /** @type {HTMLSelectElement} */ (h("select", { id: "preview-language", onchange: () => this.show() },
    ...Object.keys(LANGUAGES).map((code) => languageOption(code))));
  /** @type {any} */
  #definition = null;
  #ready = false;

  constructor() {
    addEventListener("message", ({ origin, data, source }) => {
      if (origin !== location.origin || data !== "ready" || source !== this.#frame.contentWindow) return;
      this.#ready = true;
      this.show();
    });
    this.element = h("div.preview", null, h("label", { for: "preview-language" }, t("create.phone")), this.#code, this.#frame);
  }

  /** Whoever reads a language that the page does not speak reads the task in it all the same. @param {readonly string[]} written */
  #offer(written) {
    const codes = [...new Set([...Object.keys(LANGUAGES), ...written])];
    if (codes.join() === [...this.#code.options].map(({ value }) => value).join()) return;
    const chosen = this.#code.value;
    this.#code.replaceChildren(...codes.map(languageOption));
    this.#code.value = codes.includes(chosen) ? chosen : language();
  }

  /** What people would see; the last form that fitted stays. @param {any} [definition] */
  show(definition = this.#definition) {
    this.#definition = definition;
    if (definition) this.#offer([definition.language, ...Object.keys(definition.texts)]);
    if (this.#ready && definition) this.#frame.contentWindow?.postMessage({ definition, code: this.#code.value }, location.origin);
  }
}

/** A task's plan in the order in which things happen. @param {any} body */
export function timeline({ plan, settings, rounds_until: last, claims_until: until }) {
  const at = (/** @type {string} */ text) => formatTime(Date.parse(text) / 1000);
  const first = [plan.start_at && t("time.notBefore", { when: at(plan.start_at) }), t("time.once", { count: plan.start_with ?? settings.min_participants })].filter(Boolean);
  const pace = typeof plan.every === "string" ? t("time.daily", { when: plan.every.slice("day at ".length) }) : plan.every ? t("time.every", { time: duration(plan.every) }) : t("time.atOnce");
  const early = [plan.goal && t("time.goal", { count: plan.goal }), plan.closes === "everyone" && t("time.everyone")].filter(Boolean);
  const closes = early.length ? t("time.early", { when: listOf(early, "disjunction") }) : t("time.deadline");
  const draw = settings.per_round && t("time.drawn", { count: settings.per_round, time: duration(settings.window / 2) });
  const steps = [
    [t("time.join"), plan.enrol_until ? t("time.until", { when: at(plan.enrol_until), count: settings.max_participants }) : t("time.toTheLast", { count: settings.max_participants })],
    [t("time.first"), listOf(first)],
    [t("time.rounds", { count: settings.rounds }), together(pace, draw, t("time.open", { time: duration(settings.window) }), settings.late > 0 && t("time.late", { time: duration(settings.late) }), closes)],
    [t("time.last"), t("time.lastText", { when: formatTime(last) })],
    settings.budget ? [t("time.claims"), t(claimsEarly(settings) ? "time.claimsEarly" : "time.claimsText", { when: formatTime(until) })] : null,
  ];
  return h("ol.timeline", null, ...steps.filter((step) => step !== null).map(([name, text]) => h("li", null, h("strong", null, name), h("div", null, text))));
}

/** @param {Explanation} explanation @param {string | 0} cost */
function explained({ profile, widths, dealt, warnings }, cost) {
  return [
    h("p", null, together(t("create.profile", { profile }), cost && t("create.cost", { cost }))),
    ...warnings.map((text) => notice("warn", t("create.warning", { text: inForm(text) }))),
    h("details", { id: "widths" }, h("summary", null, t("create.widths")), facts(explainedRows(widths)), dealt && h("p", null, t("create.dealt", { dealt: dealt.split("; ").map(said).join("; ") }))),
    h("p.soft", null, t("create.nothingSent")),
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
    const [last, [term, text]] = [rows.at(-1), partsOf(line)];
    if (last && !line.slice(0, LABEL).trim()) last[1] += ` ${text}`;
    else rows.push([term, text]);
  }
  return rows;
}

/** As a catalogue parts it, or its columns. @param {string} line */
function partsOf(line) {
  const [term, text] = (translated(line.trim()) ?? line.trim()).split("\t");
  if (text) return [term, inForm(text)];
  return /\S\s+$/.test(line.slice(0, LABEL)) ? [line.slice(0, LABEL).trim(), inForm(line.slice(LABEL).trim())] : ["", inForm(term)];
}
