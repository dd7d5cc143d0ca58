// Recording: choose the activity, start, stop; see it, delete it; or import a CSV file.

import { h, table } from "../../../web/common/dom.js";
import { duration, formatTime } from "../../../web/common/format.js";
import { leastSeconds, recordsWithSensors, sensorsOf } from "../about.js";
import { notRecorded } from "../enough.js";
import { ask, button, notice, part, title } from "../../../web/common/parts.js";
import { hashOf } from "../router.js";
import { RecordingSession } from "../session.js";
import { explain } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RecordingView} RecordingView */
/** @typedef {import("../types.js").DefinitionBody} DefinitionBody */

/** @param {Model} model @param {string} task */
export function recordView(model, task) {
  const definition = model.get(task)?.definition;
  if (!definition) return { element: h("div", null, title("Record"), notice("bad", "Open the campaign's page first.")), update() {} };
  const list = part("div", null, (/** @type {RecordingView[]} */ found) => recordings(model, task, definition, found, () => refresh()));
  const usable = part("p", { role: "status" }, (/** @type {Windows | string} */ windows) => [usableWords(windows, definition)]);
  const lacking = part("div", { role: "status" }, (/** @type {string[]} */ missing) => missing.length ? [waitingFor(model, task, missing)] : []);
  /** @returns {Promise<void>} */
  const refresh = async () => {
    list.show(await model.recordings(task));
    const windows = await model.windows(task).catch(explain);
    usable.show(windows);
    lacking.show(windows && typeof windows !== "string" && !windows.enough ? notRecorded(windows.labels) : []);
  };
  const sensors = recordsWithSensors(definition) ? recording(model, task, definition, refresh) : null;
  const element = h("div", null, title("Record"), introduction(definition),
    sensors?.element ?? notice("warn", `This task needs ${sensorsOf(definition)}.`),
    h("section.card", { "aria-labelledby": "kept" }, h("h2", { id: "kept" }, "Your recordings"),
      h("p.soft", null, "They are stored on this phone only."), list.element, usable.element, lacking.element),
    importing(model, task, refresh),
    h("p", null, h("a", { href: hashOf("home", task) }, "Done: back to the campaign")));
  /** @type {number | undefined} */
  let last;
  const update = () => {
    const now = model.get(task)?.recorded;
    if (now === last) return;
    last = now;
    void refresh();
  };
  update();
  return { element, update, close: () => sensors?.close() };
}

/** @param {DefinitionBody} definition */
function introduction(definition) {
  const least = leastSeconds(definition);
  return h("p", null, `Choose what you will do, start, put the phone where you usually carry it, and do it. At least ${least} seconds of each; some minutes are better. Keep this page open and in front.`);
}

/** @param {Model} model @param {string} task @param {DefinitionBody} definition @param {() => Promise<void>} refresh */
function recording(model, task, definition, refresh) {
  const labels = /** @type {string[]} */ (definition.training.labels ?? []);
  const choices = labels.map((label, place) => activity(label, place === 0));
  const chosen = () => labels[choices.findIndex(({ input }) => input.checked)];
  const fieldset = /** @type {HTMLFieldSetElement} */ (h("fieldset.choices", null,
    h("legend", null, "What will you do?"), ...choices.map(({ element }) => element)));
  const session = new RecordingSession(definition, (id, label, samples, whole) => model.keep(task, id, label, samples, whole), () => {
    fieldset.disabled = session.isRunning;
    toggle.textContent = session.isRunning ? "Stop" : "Start recording";
    toggle.className = session.isRunning ? "danger" : "main";
    if (!session.isRunning) void refresh();
  });
  const toggle = button("Start recording", () => session.toggle(chosen()), { kind: "main", id: "toggle" });
  const element = h("section.card", { "aria-labelledby": "now" }, h("h2", { id: "now" }, "Record now"),
    fieldset, h("div.buttons", null, toggle), session.element);
  return { element, close: () => session.close() };
}

/** @param {string} label @param {boolean} first */
function activity(label, first) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "radio", name: "activity", value: label, checked: first }));
  return { input, element: h("label.choice", null, input, label) };
}

/**
 * @param {Model} model @param {string} task @param {DefinitionBody} definition @param {RecordingView[]} found
 * @param {() => Promise<void>} refresh
 */
function recordings(model, task, definition, found, refresh) {
  const short = leastSeconds(definition);
  const remove = async (/** @type {RecordingView} */ { id, label, seconds }) => {
    const text = [`${label}, ${duration(seconds)}. Rounds that you have sent already stay as they are.`];
    if (!(await ask({ title: "Delete this recording?", text, action: "Delete" }))) return;
    await model.deleteRecording(task, id);
    await refresh();
    document.getElementById("kept")?.closest("section")?.querySelector("button")?.focus();
  };
  const rows = found.map((one) => [
    described(one, short),
    button("Delete", () => remove(one), { kind: "danger", small: true, label: `Delete ${one.label}, ${duration(one.seconds)}` }),
  ]);
  return [table("On this phone", ["Recording", "Delete"], rows, { empty: "No recording yet." })];
}

/** @typedef {Awaited<ReturnType<Model["windows"]>>} Windows */

/** @param {Windows | string} windows Or why there are none. @param {DefinitionBody} definition */
function usableWords(windows, { settings, training }) {
  if (typeof windows === "string") return windows;
  if (!windows) return "There is nothing to train on yet.";
  const seconds = (training.window ?? 100) / (training.hertz ?? 50);
  const each = windows.labels.map(({ label, train }) => `${label} ${train}`).join(", ");
  const isLimited = settings.weighting === "samples" && windows.train > settings.max_samples;
  const most = isLimited ? ` All are trained on, and ${settings.max_samples} of them count.` : "";
  return `Pieces of ${duration(seconds)} to train on: ${each}.${most}`;
}

/**
 * A round is sent once, so the phone waits for all activities, or for this word.
 * @param {Model} model @param {string} task @param {string[]} missing
 */
function waitingFor(model, task, missing) {
  const box = notice("warn", `Your phone sends nothing before you have recorded ${missing.join(", ")} too. If you cannot, take part without.`);
  box.append(button(`Take part without ${missing.join(", ")}`, () => model.enough(task), { id: "enough" }));
  return box;
}

/** @param {RecordingView} recording @param {number} short */
function described({ label, seconds, samples, at }, short) {
  const rate = seconds > 0 ? `, ${Math.round((samples - 1) / seconds)} samples a second` : "";
  return h("div", null, h("strong", null, label), ` ${duration(seconds)}${rate}`, h("br"),
    h("span.soft", null, at === null ? "from a file" : formatTime(at)),
    seconds < short && h("span.warn", null, " Too short to test the model with."));
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
  return h("details.card", null, h("summary", null, "No sensors? Import a CSV file"),
    h("p", null, "A sensor app can export what it recorded: a time and x, y, z in each row. The activity is in a column named label, or in the file's name: walking.csv."),
    h("label", { for: "csv" }, "CSV files"), input, results);
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
