// What was learnt: accuracy by round, the model as a file, and how well it does. Computed by the program, on this machine.
import { h, table } from "../web/common/dom.js";
import { percent } from "../web/common/format.js";
import { actionButton, card, labelled, notice } from "../web/common/parts.js";
import { said } from "../web/common/said.js";
import { t, together } from "../web/common/text.js";
import { plot } from "../web/common/plot.js";
import { download, follow, post } from "./api.js";

/** @typedef {import("./api.js").Task} Task */
/** @typedef {import("./api.js").Standing} Standing */
/** @typedef {{ number: number, state: string | null, accuracy: number, loss: number, windows: number }} Score `state`: its digest, after a server step. */
/** @typedef {{ windows: number, precision: number, recall: number, f1: number }} ClassScore */
/** @typedef {{ accuracy: number, loss: number, windows: number, labels: string[], classes: Record<string, ClassScore>, confusion: number[][] }} Evaluation */

const DATA = "crowdfl-data";
const SHOWN = 16; // digits of a state, as the commands show them

/** @param {string} id */
function dataInput(id) {
  const input = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: 2, spellcheck: "false" }));
  input.value = sessionStorage.getItem(DATA) ?? "";
  input.addEventListener("change", () => sessionStorage.setItem(DATA, input.value));
  return { input, element: labelled(id, t("score.data"), input, t("score.dataHint")) };
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
    place.replaceChildren(...found.unread.map((/** @type {{ number: number, why: string }} */ { number, why }) => notice("warn", t("score.unread", { number, why: said(why) }))));
    result.replaceChildren(...curve(task, found.rounds));
    shown = known;
  };
  const button = actionButton(t("score.compute"), place, compute, { kind: "main" });
  const show = (/** @type {Standing} */ { status }) => {
    rounds = status.rounds.filter(({ state }) => state === "rewarded").length;
    if (shown >= 0 && rounds !== shown) button.click(); // what was computed before is kept
  };
  const note = t(task.profile === "shares" ? "score.every" : "score.last");
  return { element: card(t("score.title"), h("p", null, together(note, t("score.zero"))), element,
    h("div.row", null, button, h("span.soft", null, t("score.later"))), place, result), show };
}

/** @param {Task} task @param {readonly Score[]} scores */
function curve(task, scores) {
  const isStepped = task.step !== "none";
  const rows = scores.map(({ number, accuracy, loss, windows, state }) =>
    [number, percent(accuracy), loss.toFixed(3), windows, ...(isStepped ? [h("code", null, state ? state.slice(0, SHOWN) : "")] : [])]);
  return [
    plot(t("score.title"), scores.map(({ number }) => number), [{ name: t("score.accuracy"), values: scores.map(({ accuracy }) => accuracy) }],
      { xLabel: t("score.round"), yLabel: t("score.accuracy"), yRange: [0, 1], yFormat: percent }),
    table(t("score.scores", { count: task.rounds }), ["round", "accuracy", "loss", "windows", ...(isStepped ? ["state"] : [])].map((name) => t(`score.${name}`)), rows, { numbers: [0, 1, 2, 3] }),
    ...(isStepped ? [h("p.soft", null, t("score.stepped"))] : []),
  ];
}

/** @param {Task} task @param {AbortSignal} signal */
export function modelCard(task, signal) {
  const place = h("div", null);
  const result = h("div", null);
  const { input, element } = dataInput("model-data");
  const path = /** @type {HTMLInputElement} */ (h("input", { type: "text", spellcheck: "false", placeholder: "/home/me/model.safetensors" }));
  const fetchAs = (/** @type {string} */ form) => actionButton(t("model.download", { form }), place, async () => {
    place.replaceChildren(notice("good", t("model.fetching")));
    await download(`tasks/${task.task}/model.${form}`, `model-${task.task.slice(0, 8)}.${form}`);
    await download(`tasks/${task.task}/model.json`, `model-${task.task.slice(0, 8)}.${form}.json`);
    place.replaceChildren(notice("good", t("model.downloaded")));
  });
  const save = actionButton(t("model.write"), place, async () => {
    const { model } = await post(`tasks/${task.task}/model`, { path: path.value }, signal);
    place.replaceChildren(notice("good", t("model.written", { place: model })));
  });
  const evaluate = actionButton(t("model.evaluate"), place, async () => {
    const job = await post(`tasks/${task.task}/evaluation`, { data: lines(input) }, signal);
    result.replaceChildren(...tables(await follow(job, place, signal)));
  }, { kind: "main" });
  return card(t("model.title"), h("p", null, t(task.step === "none" ? "model.average" : "model.stepped")),
    h("div.row", null, fetchAs("safetensors"), fetchAs("npz")),
    h("div.inline", null, labelled("model-path", t("model.file"), path), h("div", null, save)),
    element, h("div.row", null, evaluate), place, result);
}

/** @param {Evaluation} evaluation */
function tables({ accuracy, loss, windows, labels, classes, confusion }) {
  const shares = (/** @type {ClassScore} */ score) => [score.precision, score.recall, score.f1].map((share) => share.toFixed(3));
  const each = Object.entries(classes).map(([name, score]) => [name, score.windows, ...shares(score)]);
  const matrix = confusion.map((row, place) => [labels[place], ...row]);
  const numbers = labels.map((_, place) => place + 1);
  return [
    h("p.headline", null, t("model.score", { accuracy: percent(accuracy), loss: loss.toFixed(3), count: windows })),
    table(t("model.each"), ["class", "windows", "precision", "recall", "f1"].map((name) => t(`model.${name}`)), each, { numbers: [1, 2, 3, 4] }),
    table(t("model.confusion"), [t("model.true"), ...labels], matrix, { numbers }),
  ];
}
