// What of a CSV file this task can use.

import { duration } from "../../web/common/format.js";
import { readCsv, toRecordings } from "../learning/csv.js";
import { folded } from "../learning/recordings.js";
import { DataMalformed } from "../protocol/errors.js";

/** @typedef {import("../learning/recordings.js").Recording} Recording */
/** @typedef {import("../learning/recipe.js").Recipe} Recipe */
/** @typedef {import("../learning/csv.js").CsvTable} CsvTable */

/**
 * @param {string} name @param {string} text @param {Recipe} recipe
 * @returns {{ recordings: Recording[], words: string }} or DataMalformed with what to change.
 */
export function importable(name, text, recipe) {
  const table = withChannels(name, readCsv(text, name), recipe.channels);
  const known = new Set(recipe.labels.map(folded));
  const all = toRecordings(table, recipe.hertz, () => `file ${crypto.randomUUID()}`);
  const recordings = all.filter(({ label, times }) => known.has(folded(label)) && times.length > 1);
  if (!table.times.length) throw new DataMalformed(`it holds no samples.${leftOut(table.dropped)} It needs a time, x, y and z in each row`);
  if (!recordings.length) {
    const found = [...new Set(all.map(({ label }) => label))].sort().join(", ");
    if (all.some(({ label }) => known.has(folded(label)))) throw new DataMalformed(`it holds too few samples of ${found}: export a longer recording`);
    throw new DataMalformed(`it holds ${found}; this campaign is about ${recipe.labels.join(", ")}. Name the file after one of these, or add a column named label`);
  }
  return { recordings, words: summary(name, recordings, all.length - recordings.length, table.dropped) };
}

/** Rotation that the task does not ask for is left out. @param {string} name @param {CsvTable} table @param {number} channels @returns {CsvTable} */
function withChannels(name, table, channels) {
  if (table.channels === channels) return table;
  if (table.channels < channels) {
    throw new DataMalformed(`it has ${table.channels} channels, this campaign needs ${channels}: export rotation (gyroscope) too`);
  }
  const signal = table.signal.filter((_, place) => place % table.channels < channels);
  return { ...table, signal, channels };
}

/** @param {string} name @param {readonly Recording[]} recordings @param {number} others @param {Map<string, number>} dropped */
function summary(name, recordings, others, dropped) {
  const seconds = recordings.reduce((sum, { times }) => sum + times[times.length - 1] - times[0], 0);
  const labels = [...new Set(recordings.map(({ label }) => label))].join(", ");
  const unknown = others ? ` ${others} stretches of other activities were left out.` : "";
  return `${name}: ${duration(seconds)} of ${labels}.${unknown}${leftOut(dropped)}`;
}

/** @param {Map<string, number>} dropped */
const leftOut = (dropped) => [...dropped].map(([why, count]) => ` ${count} rows were left out: ${why}.`).join("");
