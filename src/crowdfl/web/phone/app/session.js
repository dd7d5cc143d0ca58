// Recording, full screen: get ready, record, answer the task's questions, and on to the next activity by itself. Cloth touches the
// screen of a phone in a pocket: while it records, nothing but a long press stops it.

import { h } from "../../web/common/dom.js";
import { duration } from "../../web/common/format.js";
import { ask, button, notice } from "../../web/common/parts.js";
import { digits, t } from "../../web/common/text.js";
import { aboutFields, questionsOf } from "./answers.js";
import { explain } from "./messages.js";
import { fill, ring } from "./ring.js";
import { askForMotion, OPEN, Recorder, slowNames, TRIMMED } from "./sensors.js";
import { Signals } from "./signals.js";
import { textsOf, theirWord } from "./theirs.js";
import { Trace } from "./trace.js";

/** @typedef {import("./types.js").DefinitionBody} DefinitionBody */
/** @typedef {import("./types.js").KeptRecording} KeptRecording */

const READY = 5; // seconds before the first activity
const PAUSE = 10; // seconds before each further one
const TICKS = 3; // of these, the last are heard
const HOLD = 1500; // milliseconds of a press that stops
const SAVED_EVERY = 5; // seconds: a closed tab loses no more
const SAID_EVERY = 10; // seconds between two words to a screen reader

export class RecordingSession {
  /**
   * @param {DefinitionBody} definition
   * @param {(recording: KeptRecording, whole: boolean) => Promise<void>} keep The same id again replaces what was kept.
   */
  constructor(definition, keep) {
    this.definition = definition;
    this.keep = keep;
    this.texts = textsOf(definition);
    /** @type {import("./sensors.js").Slow[]} */
    this.slow = [];
    /** @type {Set<string>} Slow sensors whose use was explained. */
    this.explained = new Set();
    this.saving = Promise.resolve();
    this.busy = this.closed = this.collecting = false;
    this.over = (/** @type {boolean} */ _whole) => {};
    this.trouble = h("div"); // for the page behind
    this.stage = /** @type {HTMLDialogElement} */ (h("dialog.stage", { "aria-labelledby": "stage-title", oncancel: (/** @type {Event} */ event) => event.preventDefault() }));
  }

  /**
   * One activity after the other; null is one that is asked for afterwards.
   * @param {readonly (string | null)[]} labels @param {number} target Seconds of each; Infinity: until it is stopped.
   */
  async run(labels, target) {
    if (this.busy) return;
    this.busy = true;
    this.trouble.replaceChildren();
    try {
      await this.open();
      for (const [place, label] of labels.entries()) {
        if (this.closed || !(await this.getReady(label, place ? PAUSE : READY, labels.length - place - 1))) break;
        if (!(await this.record(label, target))) break;
      }
    } catch (wrong) {
      this.trouble.append(notice("bad", explain(wrong)));
    } finally {
      await this.shut();
    }
  }

  /** By a tap, as browsers want it: sound, permissions, sensors, the whole screen. */
  async open() {
    this.signals = new Signals();
    await askForMotion();
    for (const name of slowNames(this.definition)) if (!(await this.openSlow(name))) throw new Error(t("sensor.notNow", { sensor: t(`sensor.${name}`) }));
    this.recorder = new Recorder(this.definition, this.slow, {
      onSample: (sample, seconds) => this.collecting && this.show(sample, seconds),
      onHidden: (hidden) => this.warn(hidden),
    });
    await this.recorder.start();
    await document.documentElement.requestFullscreen?.({ navigationUI: "hide" }).catch(() => {}); // not on an iPhone
    if (this.closed) return;
    document.body.append(this.stage);
    this.stage.showModal();
  }

  /** Its own words come before the browser's question. @param {import("./sensors.js").SlowName} name */
  async openSlow(name) {
    const open = async () => { this.slow.push(await OPEN[name]()); };
    if (this.explained.has(name)) return open().then(() => true);
    const allowed = await ask({ title: t(`sensorTitle.${name}`), text: [t(`sensorWhy.${name}`)], action: t("sensor.allow"), danger: false }, open);
    if (allowed) this.explained.add(name);
    return allowed;
  }

  /** Show something until it is over. @param {...(Node | string)} children @returns {Promise<boolean>} */
  step(...children) {
    this.stage.replaceChildren(...children);
    /** @type {HTMLElement | null} */ (this.stage.querySelector("h2"))?.focus();
    return new Promise((resolve) => { this.over = resolve; });
  }

  /** @param {string | null} label */
  heading(label) {
    return h("h2", { id: "stage-title", tabindex: -1 }, label === null ? t("record.anything") : theirWord(this.texts, label));
  }

  /** @param {string | null} label @param {number} seconds @param {number} further Activities after this one. */
  async getReady(label, seconds, further) {
    let left = seconds;
    const number = h("p.big", null, left);
    const circle = ring(0, number);
    const timer = setInterval(() => {
      left -= 1;
      number.textContent = digits(Math.max(left, 0));
      fill(circle, 1 - left / seconds);
      if (left <= 0) this.over(true);
      else if (left <= TICKS) this.signals?.give("tick");
    }, 1000);
    const isReady = await this.step(h("p.soft", null, t("record.getReady")), this.heading(label), circle,
      h("p", { role: "status" }, t("record.pocket")), further > 0 && h("p.soft", null, t("record.further", { count: further })) || "",
      h("div.buttons", null, button(t("record.stopHere"), () => this.over(false)), button(t("record.startNow"), () => this.over(true), { kind: "main" })));
    clearInterval(timer);
    return isReady;
  }

  /** @param {string | null} label @param {number} target @returns {Promise<boolean>} Whether it ended by itself. */
  async record(label, target) {
    const recorder = /** @type {Recorder} */ (this.recorder);
    this.recording = { id: `${new Date().toISOString()} ${crypto.randomUUID().slice(0, 8)}`, label: label ?? "", answers: {} };
    this.target = target;
    this.saved = this.spokenAt = 0;
    this.trace = new Trace();
    this.number = h("p.big", null, 0);
    this.circle = ring(0, this.number);
    this.spoken = h("p.for-readers", { role: "status" }, t("record.recording", { activity: label === null ? "" : this.texts.word(label) }));
    recorder.begin();
    this.collecting = true;
    this.signals?.give("begin");
    const byItself = await this.step(h("p.soft", null, t("record.isRecording")), this.heading(label), this.circle, this.trace.canvas, this.spoken,
      h("p.soft", null, t("record.locked")), holdButton(t("record.hold"), () => this.over(false)));
    this.collecting = false;
    this.signals?.give("end");
    await this.finish(recorder.samples());
    return byItself && !this.closed;
  }

  /** @param {import("./types.js").Samples} samples */
  async finish(samples) {
    const recording = /** @type {NonNullable<typeof this.recording>} */ (this.recording);
    if (samples.times.length < 2) {
      this.trouble.replaceChildren(notice("warn", t("record.tooShort", { trimmed: duration(TRIMMED) })));
      return;
    }
    await this.save({ ...recording, ...samples }, true);
    if (!questionsOf(this.definition).length || this.closed) return;
    const fields = aboutFields(this.definition, recording, false);
    await this.step(h("h2", { id: "stage-title", tabindex: -1 }, t("record.shortQuestion")), h("p.soft", null, t("record.answersStay")), ...fields.elements,
      h("div.buttons", null, button(t("record.save"), () => this.over(true), { kind: "main" })));
    await this.save({ ...recording, ...fields.value(), ...samples }, true);
  }

  /** @param {KeptRecording} recording @param {boolean} whole */
  save(recording, whole) {
    this.saving = this.saving.catch(() => {}).then(() => this.keep(recording, whole));
    return this.saving;
  }

  /** What there is so far; if the page is closed, it is kept. */
  saveSome() {
    const samples = this.recorder?.samples();
    if (!this.recording || !samples?.times.length) return;
    this.save({ ...this.recording, ...samples }, false).catch((wrong) => this.trouble.replaceChildren(notice("bad", explain(wrong))));
  }

  /** @param {number[]} sample @param {number} seconds */
  show(sample, seconds) {
    const usable = Math.max(0, Math.floor(seconds - 2 * TRIMMED));
    const target = this.target ?? Infinity;
    this.trace?.add(sample);
    if (this.number) this.number.textContent = duration(usable);
    if (this.circle) fill(this.circle, target === Infinity ? 1 : seconds / (target + 2 * TRIMMED));
    if (seconds - (this.saved ?? 0) >= SAVED_EVERY) {
      this.saved = seconds;
      this.saveSome();
    }
    if (seconds - (this.spokenAt ?? 0) >= SAID_EVERY && this.spoken) {
      this.spokenAt = seconds;
      this.spoken.textContent = duration(usable);
    }
    if (seconds >= target + 2 * TRIMMED && (this.recorder?.samples().times.at(-1) ?? 0) >= target) this.over(true);
  }

  /** @param {boolean} hidden */
  warn(hidden) {
    if (!this.collecting) return;
    if (hidden) this.saveSome(); // it may never come back
    else this.trouble.replaceChildren(notice("warn", t("record.background")));
  }

  /** The view goes away: what was recorded is kept. */
  async close() {
    this.closed = true;
    this.over(false);
    await this.saving.catch(() => {});
  }

  async shut() {
    this.recorder?.stop();
    for (const one of this.slow) one.close();
    this.slow = [];
    this.signals?.close();
    this.stage.close();
    this.stage.remove();
    if (document.fullscreenElement) await document.exitFullscreen().catch(() => {});
    this.busy = false;
  }
}

/** A tap does nothing, a long press acts; so does a keyboard or a screen reader, which no pocket has. @param {string} text @param {() => void} act */
function holdButton(text, act) {
  const made = button(text, (event) => /** @type {UIEvent} */ (event).detail === 0 && act(), { kind: "danger" });
  made.classList.add("hold");
  let timer = 0;
  const release = () => {
    clearTimeout(timer);
    made.classList.remove("held");
  };
  made.addEventListener("pointerdown", () => {
    made.classList.add("held");
    timer = window.setTimeout(act, HOLD);
  });
  for (const name of ["pointerup", "pointerleave", "pointercancel"]) made.addEventListener(name, release);
  made.addEventListener("contextmenu", (event) => event.preventDefault());
  return made;
}
