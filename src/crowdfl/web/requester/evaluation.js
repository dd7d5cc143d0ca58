// What was learnt: accuracy by round, the model as a file, and how well it does. Computed by the program, on this machine.
import { h, table } from "../web/common/dom.js";
import { percent } from "../web/common/format.js";
import { actionButton, card, labelled, notice } from "../web/common/parts.js";
import { plot } from "../web/common/plot.js";
import { download, follow, post } from "./api.js";

/** @typedef {import("./task.js").Task} Task */
/** @typedef {import("./task.js").Standing} Standing */
/** @typedef {{ number: number, state: string | null, accuracy: number, loss: number, windows: number }} Score `state`: its digest, after a server step. */
/** @typedef {{ windows: number, precision: number, recall: number, f1: number }} ClassScore */
/** @typedef {{ accuracy: number, loss: number, windows: number, labels: string[], classes: Record<string, ClassScore>, confusion: number[][] }} Evaluation */

const DATA = "crowdfl-data";
const SHOWN = 16; // digits of a state, as the commands show them
const HINT = "One a line: watch:0, csv:FOLDER or npz:FILE#7, on this machine. What each holds out is tested on. It never leaves this machine.";

/** @param {string} id */
function dataInput(id) {
  const input = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 2, spellcheck: "false" }));
  input.value = sessionStorage.getItem(DATA) ?? "";
  input.addEventListener("change", () => sessionStorage.setItem(DATA, input.value));
  return { input, element: labelled(id, "Data to test on", input, HINT) };
}

/** @param {HTMLTextAreaElement} input */
const lines = (input) => input.value.split("\n").map((line) => line.trim()).filter(Boolean);

/** @param {Task} task @param {AbortSignal} signal */
export function accuracyCard(task, signal) {
  const { input, element } = dataInput("accuracy-data");
  const place = h("div", null);
  const result = h("div", null);
  let rounds = -1;
  let shown = -1;
  const compute = async () => {
    const known = rounds;
    const job = await post(`tasks/${task.task}/accuracy`, { data: lines(input) }, signal);
    const found = await follow(job, place, signal);
    place.replaceChildren(...found.unread.map((/** @type {{ number: number, why: string }} */ { number, why }) => notice("warn", `Round ${number} cannot be read: ${why}`)));
    result.replaceChildren(...curve(task, found.rounds));
    shown = known;
  };
  const button = actionButton("Compute", place, compute, { kind: "main" });
  const show = (/** @type {Standing} */ { status }) => {
    rounds = status.rounds.filter(({ state }) => state === "rewarded").length;
    if (shown >= 0 && rounds !== shown) button.click(); // what was computed before is kept
  };
  const note = task.profile === "shares" ? "You can read every average." : "In this profile you can read the last average only.";
  return { element: card("Accuracy by round", h("p", null, `${note} Round 0 is the initial model.`), element,
    h("div.row", null, button, h("span.soft", null, "Later rounds are added by themselves.")), place, result), show };
}

/** @param {Task} task @param {readonly Score[]} scores */
function curve(task, scores) {
  const isStepped = task.step !== "none";
  const rows = scores.map(({ number, accuracy, loss, windows, state }) =>
    [number, percent(accuracy), loss.toFixed(3), windows, ...(isStepped ? [h("code", null, state ? state.slice(0, SHOWN) : "")] : [])]);
  return [
    plot("Accuracy by round", scores.map(({ number }) => number), [{ name: "accuracy", values: scores.map(({ accuracy }) => accuracy) }],
      { xLabel: "round", yLabel: "accuracy", yRange: [0, 1], yFormat: percent }),
    table(`Scores, of ${task.rounds} rounds`, ["round", "accuracy", "loss", "windows", ...(isStepped ? ["state"] : [])], rows, { numbers: [0, 1, 2, 3] }),
    ...(isStepped ? [h("p.soft", null, "Every reader makes the next model from a round's average by the task's server step. Participants see the same digits of its state after each round that they may read.")] : []),
  ];
}

/** @param {Task} task @param {AbortSignal} signal */
export function modelCard(task, signal) {
  const place = h("div", null);
  const result = h("div", null);
  const { input, element } = dataInput("model-data");
  const path = /** @type {HTMLInputElement} */ (h("input", { type: "text", spellcheck: "false", placeholder: "/home/me/model.safetensors" }));
  const fetchAs = (/** @type {string} */ form) => actionButton(`Download .${form}`, place, async () => {
    place.replaceChildren(notice("good", "Fetching and opening the model …"));
    await download(`tasks/${task.task}/model.${form}`, `model-${task.task.slice(0, 8)}.${form}`);
    await download(`tasks/${task.task}/model.json`, `model-${task.task.slice(0, 8)}.${form}.json`);
    place.replaceChildren(notice("good", "Both files are downloaded: the arrays, and what is needed to use them."));
  });
  const save = actionButton("Write it there", place, async () => {
    const { model } = await post(`tasks/${task.task}/model`, { path: path.value }, signal);
    place.replaceChildren(notice("good", `Written to ${model}, with its description beside it.`));
  });
  const evaluate = actionButton("Evaluate the model", place, async () => {
    const job = await post(`tasks/${task.task}/evaluation`, { data: lines(input) }, signal);
    result.replaceChildren(...tables(await follow(job, place, signal)));
  }, { kind: "main" });
  return card("The model", h("p", null, task.step === "none" ? "The newest average that you may read." : "What the task's server step makes of the newest average that you may read."),
    h("div.row", null, fetchAs("safetensors"), fetchAs("npz")),
    h("div.inline", null, labelled("model-path", "Or a file on this machine", path), h("div", null, save)),
    element, h("div.row", null, evaluate), place, result);
}

/** @param {Evaluation} evaluation */
function tables({ accuracy, loss, windows, labels, classes, confusion }) {
  const shares = (/** @type {ClassScore} */ score) => [score.precision, score.recall, score.f1].map((share) => share.toFixed(3));
  const each = Object.entries(classes).map(([name, score]) => [name, score.windows, ...shares(score)]);
  const matrix = confusion.map((row, place) => [labels[place], ...row]);
  const numbers = labels.map((_, place) => place + 1);
  return [
    h("p.headline", null, `Accuracy ${percent(accuracy)}, loss ${loss.toFixed(3)}, on ${windows} windows.`),
    table("Each class", ["class", "windows", "precision", "recall", "F1"], each, { numbers: [1, 2, 3, 4] }),
    table("Confusion matrix: rows are the true classes, columns what the model says", ["true class", ...labels], matrix, { numbers }),
  ];
}
