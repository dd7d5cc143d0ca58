// One recording from the tap on "start" to the tap on "stop": what is seen meanwhile, and saving it bit by bit.

import { h } from "../../web/common/dom.js";
import { duration } from "../../web/common/format.js";
import { leastSeconds } from "./about.js";
import { notice } from "../../web/common/parts.js";
import { askForSensors, Recorder } from "./sensors.js";
import { Trace } from "./trace.js";
import { explain } from "./messages.js";

/** @typedef {import("./types.js").DefinitionBody} DefinitionBody */
/** @typedef {import("./types.js").Samples} Samples */

const SAVED_EVERY = 5; // seconds: a closed tab loses no more
const SAID_EVERY = 10; // seconds between two words to a screen reader

export class RecordingSession {
  /**
   * @param {DefinitionBody} definition
   * @param {(id: string, label: string, samples: Samples, whole: boolean) => Promise<void>} keep The same id again replaces what was kept.
   * @param {() => void} onChange When recording begins or ends.
   */
  constructor(definition, keep, onChange) {
    this.definition = definition;
    this.keep = keep;
    this.onChange = onChange;
    /** @type {Recorder | null} */
    this.recorder = null;
    this.label = "";
    this.id = "";
    this.saved = 0;
    this.spokenAt = 0;
    this.busy = false;
    this.closed = false;
    this.saving = Promise.resolve();
    this.trace = new Trace();
    this.counter = h("p.counter", null, "0 s");
    this.spoken = h("p.for-readers", { role: "status" });
    this.trouble = h("div");
    this.element = h("div", null, this.counter, this.trace.canvas,
      h("p.soft", null, "Acceleration in three directions, the last seconds."), this.spoken, this.trouble);
  }

  get isRunning() {
    return this.recorder !== null;
  }

  /** @param {string | undefined} label */
  async toggle(label) {
    if (this.busy) return;
    this.busy = true;
    try {
      if (this.isRunning) await this.stop();
      else await this.start(label ?? "");
    } catch (wrong) {
      this.recorder = null;
      this.onChange();
      this.trouble.replaceChildren(notice("bad", explain(wrong)));
    } finally {
      this.busy = false;
    }
  }

  /** @param {string} label */
  async start(label) {
    this.trouble.replaceChildren();
    this.trace.clear();
    await askForSensors();
    const recorder = new Recorder(this.definition.training.channels ?? 6, {
      onSample: (sample, seconds) => this.show(sample, seconds),
      onHidden: (hidden) => this.warn(hidden),
    });
    this.label = label;
    this.id = `${new Date().toISOString()} ${crypto.randomUUID().slice(0, 8)}`;
    this.saved = this.spokenAt = 0;
    await recorder.start();
    if (this.closed) return recorder.stop(); // while the sensors woke up
    this.recorder = recorder;
    this.say(`Recording ${label}.`);
    this.onChange();
  }

  async stop() {
    const recorder = this.recorder;
    if (!recorder) return;
    this.recorder = null;
    recorder.stop();
    await this.save(recorder, true);
    this.end(recorder);
    this.onChange();
  }

  /** The view goes away: what was recorded is kept. */
  close() {
    this.closed = true;
    return this.stop();
  }

  /** @param {Recorder} recorder @param {boolean} [whole] */
  save(recorder, whole = false) {
    const { id, label } = this;
    const samples = recorder.samples();
    this.saving = this.saving.catch(() => {}).then(() => this.keep(id, label, samples, whole));
    return this.saving;
  }

  /** @param {number[]} sample @param {number} seconds */
  show(sample, seconds) {
    this.trace.add(sample);
    this.counter.textContent = `${Math.floor(seconds)} s`;
    if (!this.recorder) return;
    if (seconds - this.saved >= SAVED_EVERY) {
      this.saved = seconds;
      this.save(this.recorder).catch((wrong) => this.trouble.replaceChildren(notice("bad", explain(wrong))));
    }
    if (seconds - this.spokenAt >= SAID_EVERY) {
      this.spokenAt = seconds;
      this.say(this.words(this.recorder));
    }
  }

  /** @param {boolean} hidden */
  warn(hidden) {
    if (!hidden) {
      this.trouble.replaceChildren(notice("warn", "This page was in the background. A phone stops its sensors then, and that time is missing. Keep the page in front and the screen on."));
    } else if (this.recorder) {
      void this.save(this.recorder); // it may never come back
    }
  }

  /** @param {Recorder} recorder */
  end(recorder) {
    const least = leastSeconds(this.definition);
    const words = `Saved: ${this.words(recorder)}`;
    this.say(words);
    this.counter.textContent = `${Math.floor(recorder.seconds)} s`;
    if (recorder.seconds < least) {
      this.trouble.append(notice("warn", `This recording is short: ${duration(recorder.seconds)}. Record at least ${least} s, so that some can be held back to test the model.`));
    } else {
      this.trouble.append(notice("good", words));
    }
  }

  /** @param {Recorder} recorder */
  words(recorder) {
    return `${this.label}, ${duration(recorder.seconds)}, ${Math.round(recorder.rate)} samples a second.`;
  }

  /** @param {string} words */
  say(words) {
    this.spoken.textContent = words;
    this.trace.describe(`Acceleration. ${words}`);
  }
}
