// Recording as a checklist: a ring for each activity, what was recorded and what it was; nothing is sent before the owner says so.

import { h } from "../../../web/common/dom.js";
import { duration, formatTime } from "../../../web/common/format.js";
import { actionButton, ask, button, notice, part, title } from "../../../web/common/parts.js";
import { apart, listOf, t } from "../../../web/common/text.js";
import { folded } from "../../learning/recordings.js";
import { leastSeconds, recordsWithSensors } from "../about.js";
import { aboutFields, labelQuestion, questionsOf } from "../answers.js";
import { explain } from "../messages.js";
import { fill, ring } from "../ring.js";
import { go } from "../router.js";
import { missingSensors, TRIMMED } from "../sensors.js";
import { RecordingSession } from "../session.js";
import { textsOf, theirWord } from "../theirs.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").RecordingView} RecordingView */
/** @typedef {import("../types.js").DefinitionBody} DefinitionBody */
/** @typedef {Awaited<ReturnType<Model["windows"]>>} Windows */

/** @param {Model} model @param {string} task */
export function recordView(model, task) {
  const definition = model.get(task)?.definition;
  if (!definition) return { element: h("div", null, title(t("record.title")), notice("bad", t("record.openFirst"))), update() {} };
  return new RecordPage(model, task, definition);
}

class RecordPage {
  /** @param {Model} model @param {string} task @param {DefinitionBody} definition */
  constructor(model, task, definition) {
    this.model = model;
    this.task = task;
    this.definition = definition;
    this.texts = textsOf(definition);
    this.word = this.texts.word;
    /** @type {string[]} */
    this.labels = definition.training.labels ?? [];
    this.least = leastSeconds(definition);
    this.session = new RecordingSession(definition, (recording, whole) => model.keep(task, recording, whole));
    /** @type {RecordingView[]} */
    this.found = [];
    this.wrong = h("div");
    this.list = part("ul.checklist", null, (/** @type {number[]} */ seconds) => this.labels.map((label, place) => this.row(label, seconds[place])));
    this.standing = part("div", { role: "status" }, (/** @type {Standing} */ standing) => this.words(standing));
    this.dock = part("div.dock", null, (/** @type {Standing} */ standing) => this.buttons(standing));
    this.kept = part("div", null, (/** @type {RecordingView[]} */ found) => this.recordings(found));
    this.element = h("div", null, title(t("record.title")), ...this.introduction(), this.list.element, this.session.trouble, this.standing.element,
      this.wrong, this.dock.element, this.kept.element, importing(model, task, () => this.refresh()));
    /** @type {number | undefined} */
    this.last = undefined;
    this.update();
  }

  get hasSensors() {
    return recordsWithSensors(this.definition) && !missingSensors(this.definition).length;
  }

  introduction() {
    if (!this.hasSensors) return [notice("warn", t("record.noSensors"))];
    const values = { seconds: duration(this.least), trimmed: duration(TRIMMED) };
    return [h("p", null, t(labelQuestion(this.definition) ? "record.introAsked" : "record.intro", values))];
  }

  update() {
    const now = this.model.get(this.task)?.recorded;
    if (now === this.last) return;
    this.last = now;
    void this.refresh();
  }

  close() {
    return this.session.close();
  }

  async refresh() {
    const windows = await this.model.windows(this.task).catch(explain);
    this.found = await this.model.recordings(this.task);
    const seconds = this.labels.map((label) => this.found.filter((one) => folded(one.label) === folded(label)).reduce((sum, one) => sum + one.seconds, 0));
    const standing = {
      missing: this.labels.filter((_, place) => seconds[place] < this.least),
      fresh: this.found.filter(({ said }) => !said).length,
      said: this.model.get(this.task)?.contributed ?? null,
      windows: typeof windows === "string" ? 0 : windows?.train ?? 0,
      wrong: typeof windows === "string" ? windows : null,
    };
    this.list.show(seconds);
    this.standing.show(standing);
    this.dock.show(standing);
    this.kept.show(this.found);
  }

  /** @param {readonly (string | null)[]} labels @param {number} target */
  async record(labels, target) {
    await this.session.run(labels, target);
    await this.refresh();
    /** @type {HTMLElement | null} */ (this.dock.element.querySelector("button.main"))?.focus();
  }

  /** @param {string} label @param {number} seconds */
  row(label, seconds) {
    const isFull = seconds >= this.least;
    const circle = ring(0, isFull ? "✓" : "");
    circle.setAttribute("aria-hidden", "true");
    fill(circle, seconds / this.least);
    const again = button(t(isFull ? "record.more" : "record.record"), () => this.record([label], isFull ? Infinity : this.least),
      { small: true, label: t(isFull ? "record.moreOf" : "record.recordOf", { activity: this.word(label) }) });
    return h("li", null, circle, h("span.grow", null, h("strong", null, theirWord(this.texts, label)), h("br"),
      h("span.soft", null, t("record.ofSeconds", { done: Math.floor(seconds), least: this.least }))),
    this.hasSensors && !labelQuestion(this.definition) && again);
  }

  /** @typedef {{ missing: string[], fresh: number, said: number | null, windows: number, wrong: string | null }} Standing */

  /** @param {Standing} standing */
  words({ fresh, said, wrong }) {
    return [
      wrong && notice("bad", wrong),
      said === null && fresh > 0 && h("p", null, t("record.notSent")),
      said !== null && h("p", null, t("record.said", { count: said })),
      said !== null && fresh > 0 && notice("warn", t("record.fresh", { count: fresh })),
    ];
  }

  /** @param {Standing} standing */
  buttons({ missing, fresh, said, windows }) {
    const isDone = !missing.length;
    const labels = labelQuestion(this.definition) ? [null] : missing;
    return [
      this.hasSensors && !isDone && button(t("record.start", { count: labels.length }), () => this.record(labels, this.least), { kind: fresh ? "" : "main", id: "start" }),
      fresh > 0 && windows > 0 && actionButton(t(said === null ? "record.send" : "record.sendFresh"), this.wrong, () => this.send(missing), { kind: "main", id: "send" }),
    ];
  }

  /** @param {string[]} missing */
  async send(missing) {
    const activities = listOf(missing.map(this.word));
    const question = { title: t("record.sendWithout", { activities }), text: [t("record.sentOnce")], action: t("record.send"), danger: false };
    if (missing.length && !(await ask(question))) return;
    await this.model.contribute(this.task);
    go("home", this.task);
  }

  /** @param {RecordingView[]} found */
  recordings(found) {
    if (!found.length) return [];
    return [h("details.card", { id: "recordings" }, h("summary", null, t("record.yours", { count: found.length })), h("p.soft", null, t("record.stay")),
      h("ul.checklist", null, ...found.map((one) => this.recording(one))))];
  }

  /** @param {RecordingView} one */
  recording(one) {
    const values = { activity: one.label ? this.word(one.label) : t("record.noLabel"), seconds: duration(one.seconds) };
    const answers = questionsOf(this.definition).flatMap(({ id }) => (one.answers[id] ? [" · ", theirWord(this.texts, one.answers[id])] : []));
    return h("li", null, h("span.grow", null, h("strong", null, one.label ? theirWord(this.texts, one.label) : values.activity), ` ${values.seconds}`, ...answers, h("br"),
      h("span.soft", null, one.at === null ? t("record.fromFile") : formatTime(one.at)),
      one.seconds < this.least && h("span.warn", null, ` ${t("record.short")}`)),
    h("span.row", null, button(t("record.change"), () => this.change(one), { small: true, label: t("record.changeOf", values) }),
      button(t("record.delete"), () => this.remove(one), { kind: "danger", small: true, label: t("record.deleteOf", values) })));
  }

  /** @param {RecordingView} one */
  async change(one) {
    const fields = aboutFields(this.definition, one, true);
    const text = [...fields.elements, t("record.sentStays")];
    await ask({ title: t("record.changeTitle"), text, action: t("record.save"), danger: false }, () => this.model.changeRecording(this.task, one.id, fields.value()));
    await this.refresh();
  }

  /** @param {RecordingView} one */
  async remove({ id, label, seconds }) {
    const text = [`${apart(this.word(label))}, ${duration(seconds)}. ${t("record.sentStays")}`];
    if (!(await ask({ title: t("record.deleteTitle"), text, action: t("record.delete") }))) return;
    await this.model.deleteRecording(this.task, id);
    await this.refresh();
    document.getElementById("recordings")?.querySelector("summary")?.focus();
  }
}

/** @param {Model} model @param {string} task @param {() => Promise<void>} refresh */
function importing(model, task, refresh) {
  const results = h("div", { role: "status" });
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "file", id: "csv", accept: ".csv,text/csv", multiple: true }));
  input.addEventListener("change", async () => {
    results.replaceChildren();
    for (const file of input.files ?? []) results.append(await imported(model, task, file));
    input.value = "";
    await refresh();
  });
  return h("details.card", null, h("summary", null, t("record.import")), h("p", null, t("record.importHow")),
    h("label", { for: "csv" }, t("record.files")), input, results);
}

/** @param {Model} model @param {string} task @param {File} file */
async function imported(model, task, file) {
  try {
    return notice("good", await model.importCsv(task, file.name, await file.text()));
  } catch (wrong) {
    const why = wrong instanceof Error ? wrong.message : "";
    return notice("bad", why.startsWith(file.name) ? `${why}.` : `${file.name}: ${explain(wrong)}`); // some name it themselves
  }
}
