// What of a CSV file this task can use.

import { duration } from "../../web/common/format.js";
import { listOf, t, together } from "../../web/common/text.js";
import { readCsv, toRecordings } from "../learning/csv.js";
import { askedFor } from "../learning/recipe.js";
import { folded } from "../learning/recordings.js";

/** @typedef {import("../learning/recordings.js").Recording} Recording */
/** @typedef {import("../learning/recipe.js").Recipe} Recipe */
/** @typedef {import("../learning/csv.js").CsvTable} CsvTable */

/** A file that says too little: what to change about it, for people. */
export class NotUsable extends Error {
  name = "NotUsable";
}

/**
 * @param {string} name @param {string} text @param {Recipe} recipe
 * @returns {{ recordings: Recording[], words: string }} or NotUsable with what to change.
 */
export function importable(name, text, recipe) {
  const table = withChannels(readCsv(text, name, recipe.sensors, askedFor(recipe)), recipe.channels);
  const known = new Set(recipe.labels.map(folded));
  const all = toRecordings(table, recipe.hertz, () => `file ${crypto.randomUUID()}`);
  const recordings = all.filter(({ label, times }) => known.has(folded(label)) && times.length > 1);
  if (!table.times.length) throw new NotUsable([t("import.none"), ...leftOut(table.dropped)].join(". "));
  if (!recordings.length) {
    const found = listOf([...new Set(all.map(({ label }) => label))].sort());
    if (all.some(({ label }) => known.has(folded(label)))) throw new NotUsable(t("import.few", { found }));
    throw new NotUsable(t("import.unknown", { found, labels: listOf(recipe.labels) }));
  }
  return { recordings, words: summary(name, recordings, all.length - recordings.length, table.dropped) };
}

/** Rotation that the task does not ask for is left out. @param {CsvTable} table @param {number} wanted Channels of motion. @returns {CsvTable} */
function withChannels(table, wanted) {
  const { channels, motion = channels } = table;
  if (motion === wanted) return table;
  if (motion < wanted) throw new NotUsable(t("import.lacks", { lacking: t("sensor.gyroscope") }));
  const signal = table.signal.filter((_, place) => place % channels < wanted || place % channels >= motion);
  return { ...table, signal, channels: channels - motion + wanted, motion: wanted };
}

/** @param {string} name @param {readonly Recording[]} recordings @param {number} others @param {Map<string, number>} dropped */
function summary(name, recordings, others, dropped) {
  const seconds = recordings.reduce((sum, { times }) => sum + times[times.length - 1] - times[0], 0);
  const labels = listOf([...new Set(recordings.map(({ label }) => label))]);
  const words = [t("import.summary", { name, seconds: duration(seconds), labels })];
  if (others) words.push(t("import.others", { count: others }));
  return together(...words, ...leftOut(dropped));
}

/** @param {Map<string, number>} dropped */
const leftOut = (dropped) => [...dropped].map(([why, count]) => t("import.dropped", { count, why: t(`import.${why}`) }));
