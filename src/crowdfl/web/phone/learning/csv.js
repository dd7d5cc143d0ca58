// A CSV file as a phone's sensor app exports it, as crowdfl.learning.datasets.csv_files reads it; docs/learning.md lists
// the headers, units and ways to write the time that are understood.
import { numberOf, rowsOf, secondsOfDate } from "./csv-text.js";
import { DataMalformed } from "../protocol/errors.js";
import { folded, stretchesOf } from "./recordings.js";

/** @typedef {import("./recordings.js").Recording} Recording */

/**
 * Samples in the file's order: seconds, channels in g and rad/s, a label each; and why rows were left out, how often.
 * @typedef {{ times: Float64Array, signal: Float64Array, labels: string[], answers?: Record<string, string>[], channels: number, motion?: number, dropped: Map<string, number> }} CsvTable
 */
/** @typedef {{ id: string, choices: readonly string[] }} Question Whose answers stand in a column of that name. */

/** The place of each field in a row, and the units that the header gives.
 * @typedef {{ time: number, channels: number[], label: number | null, timeUnit: string, units: string[], slow: { place: number, unit: number }[], asked: (Question & { place: number })[] }} Columns
 */

export const GRAVITY = 9.80665; // m/s^2 in a g
/** Sensors beside motion: what apps call their column, and the unit that everyone takes. @type {Record<string, { name: RegExp, unit: number }>} */
const SLOW = {
  speed: { name: /^(gps|location)?(speed|velocity|geschwindigkeit)$/, unit: 10 }, // m/s
  loudness: { name: /^(loudness|(sound|audio)?(level|db|dbfs)|schallpegel)$/, unit: 50 }, // dB
};
export const UNITS = [1, 1, 1, 2, 2, 2]; // everyone scales alike: g, and 2 rad/s

const [MISSING, NO_NUMBER] = ["missing_field", "not_a_number"]; // why a row was left out, as the catalogues call it

const TIMES = /^(?:unix|epoch|elapsed|logging|sensor)?(?:timestamp|time|seconds|zeit|ts|t)(?:elapsed)?$/;
const AXIS = /^(a|acc|gf|accel|acceleration|accelerometer|beschleunigung)?(?:axis|value)?([xyz])(?:axis|value)?$/;
const TURN = /^(g|w|gyr|gyro|gyroscope|gyroskop|drehrate|rotation|rotationrate)(?:axis|value)?([xyz])(?:axis|value)?$/;
const LABELS = ["label", "activity", "class", "exercise"];
const UNIT = /^(?:(.*?)[\s_]*[([]([^)\]]*)[)\]]\s*|(.*?)_(s|ms|us|ns))$/;
/** @type {ReadonlyMap<string, number>} */
const SECONDS = new Map([["s", 1], ["ms", 1e-3], ["us", 1e-6], ["µs", 1e-6], ["ns", 1e-9]]);
/** @type {readonly [string, number][]} */
const STEPS = [["s", 1], ["ms", 1e3], ["us", 1e6]]; // a step below this is in this unit

/**
 * @param {string} text
 * @param {string} fileName Its words up to the first number label the samples that have no label of their own. Of a path,
 *   the first folder's name does.
 * @param {readonly string[]} [sensors] Beside motion: their columns come last. @param {readonly Question[]} [questions]
 * @returns {CsvTable}
 */
export function readCsv(text, fileName, sensors = [], questions = []) {
  const plain = text.startsWith("\ufeff") ? text.slice(1) : text;
  const head = plain.split("\n", 1)[0];
  const delimiter = [";", "\t"].find((mark) => head.includes(mark)) ?? ",";
  const rows = rowsOf(plain, delimiter, fileName).filter((row) => row.some(Boolean));
  if (!rows.length) return { times: new Float64Array(), signal: new Float64Array(), labels: [], channels: 3 + sensors.length, dropped: new Map() };
  const hasHeader = !rows[0].some((cell) => numberOf(cell, delimiter) !== null);
  const named = [...sensors, ...questions.map(({ id }) => id)];
  if (named.length && !hasHeader) throw new DataMalformed(`${fileName} has no header: it must name the columns of ${named.join(", ")}`);
  const columns = hasHeader ? columnsOf(rows[0], fileName, sensors, questions) : usualColumns(rows[0], fileName);
  return tableOf(rows.slice(hasHeader ? 1 : 0), columns, delimiter, fileName);
}

/**
 * Stretches of one label, and of the same answers, without a gap, in g and 2 rad/s.
 * @param {CsvTable} table @param {number} hertz The rate that they will be resampled to. @param {() => string} [newId]
 * @returns {Recording[]}
 */
export function toRecordings({ times, signal, labels, answers, channels, motion = channels }, hertz, newId = () => crypto.randomUUID()) {
  const scaled = signal.map((value, place) => value / (place % channels < motion ? UNITS[place % channels] : 1));
  const said = labels.map((label, at) => JSON.stringify([label, answers?.[at]]));
  const changes = (/** @type {number} */ at) => said[at] !== said[at - 1];
  return stretchesOf({ times, signal: scaled, channels }, hertz, changes)
    .map(({ start, ...stretch }) => ({ id: newId(), label: labels[start], ...(answers ? { answers: answers[start] } : {}), ...stretch, channels }));
}

/** `Walking_2024-05-01.csv` and `walking (3)` mean `walking`. @param {string} name */
export function labelOfName(name) {
  return name.split(/[\s_.()-]*\d/, 1)[0].replace(/^[ _\-.()]+|[ _\-.()]+$/g, "").toLowerCase();
}

/** @param {string} fileName */
function labelOfFile(fileName) {
  const ending = /[^./]\.([^./]*)$/.exec(fileName);
  const suffix = ending && ending[1] ? `.${ending[1]}` : "";
  const [first] = fileName.split("/").filter(Boolean);
  return labelOfName(suffix && first?.endsWith(suffix) ? first.slice(0, -suffix.length) : first ?? "");
}

/** @param {readonly string[]} row @param {string} file @returns {Columns} */
function usualColumns(row, file) {
  if (row.length !== 4 && row.length !== 5) {
    throw new DataMalformed(`${file} has no header and ${row.length} columns: give it \`timestamp,x,y,z,label\``);
  }
  return { time: 0, channels: [1, 2, 3], label: row.length === 5 ? 4 : null, timeUnit: "", units: [], slow: [], asked: [] };
}

/** @param {readonly string[]} head @param {string} file @param {readonly string[]} sensors @param {readonly Question[]} questions @returns {Columns} */
function columnsOf(head, file, sensors, questions) {
  const titles = head.map(nameAndUnit);
  const time = titles.findIndex(({ name }) => TIMES.test(name));
  const [axes, turns] = [AXIS, TURN].map((pattern) => tripleOf(pattern, titles.map(({ name }) => name)));
  if (time < 0 || !axes) {
    throw new DataMalformed(`${file}: the header is ${head.join(", ")}; it needs a time, x, y and z, as a sensor's recording has`);
  }
  const channels = [...axes, ...(turns ?? [])];
  const label = titles.findIndex(({ name }) => LABELS.includes(name));
  return {
    time, channels, label: label < 0 ? null : label, timeUnit: titles[time].unit, units: channels.map((place) => titles[place].unit),
    slow: sensors.map((sensor) => slowColumn(sensor, titles, head, file)),
    asked: questions.map((question) => ({ ...question, place: placeOf(question.id, head.findIndex((title) => title.trim().toLowerCase() === question.id), head, file) })),
  };
}

/** @param {string} sensor @param {readonly { name: string, unit: string }[]} titles @param {readonly string[]} head @param {string} file */
function slowColumn(sensor, titles, head, file) {
  const place = placeOf(sensor, titles.findIndex(({ name }) => SLOW[sensor].name.test(name)), head, file);
  return { place, unit: SLOW[sensor].unit * (titles[place].unit.startsWith("km") ? 3.6 : 1) };
}

/** @param {string} wanted @param {number} place @param {readonly string[]} head @param {string} file */
function placeOf(wanted, place, head, file) {
  if (place < 0) throw new DataMalformed(`${file}: no column is called '${wanted}', which the task records beside motion; there are ${head.join(", ")}`);
  return place;
}

/** `Acceleration x (m/s^2)` is accelerationx in m/s^2. @param {string} title */
function nameAndUnit(title) {
  const match = UNIT.exec(title.trim());
  const [name, unit] = match ? [match[1] || match[3] || "", match[2] || match[4] || ""] : [title, ""];
  return { name: name.toLowerCase().replace(/lineare?/g, "").replace(/[^a-z]/g, ""), unit: unit.trim().toLowerCase() };
}

/** The places of x, y and z. @param {RegExp} pattern @param {readonly string[]} names */
function tripleOf(pattern, names) {
  const places = ["x", "y", "z"].map((axis) => names.findIndex((name) => pattern.exec(name)?.[2] === axis));
  return places.includes(-1) ? null : places;
}

/**
 * @param {readonly string[][]} rows @param {Columns} columns @param {string} delimiter @param {string} file @returns {CsvTable}
 */
function tableOf(rows, columns, delimiter, file) {
  const found = rows.map((row) => sampleOf(row, columns, delimiter));
  const samples = found.filter((one) => typeof one !== "string");
  const usual = labelOfFile(file);
  const labels = samples.map(({ label }) => label || usual);
  if (!labels.every(Boolean)) {
    throw new DataMalformed(`${file}: there is no label: add a column \`label\`, or name the file after the activity`);
  }
  const dates = samples.filter(({ isDate }) => isDate).length;
  if (dates && dates < samples.length) {
    throw new DataMalformed(`${file}: some times are numbers and some are dates: export it again with one of them`);
  }
  const times = Float64Array.from(samples, ({ time }) => time);
  const motion = columns.channels.length;
  const channels = motion + columns.slow.length;
  const signal = toUnits(Float64Array.from(samples.flatMap(({ values }) => values)), motion, columns.units);
  return {
    times: dates ? times : toSeconds(times, columns.timeUnit),
    signal: beside(signal, motion, samples.map(({ slow }) => slow)),
    labels,
    ...(columns.asked.length ? { answers: samples.map(({ answers }) => answers) } : {}),
    channels,
    ...(columns.slow.length ? { motion } : {}),
    dropped: counted(found.filter((one) => typeof one === "string")),
  };
}

/**
 * A row's sample, or why it is left out.
 * @param {readonly string[]} row @param {Columns} columns @param {string} delimiter
 */
function sampleOf(row, { time, channels, label, slow, asked }, delimiter) {
  const numbers = [];
  for (const { place, unit } of [...channels.map((one) => ({ place: one, unit: 1 })), ...slow]) {
    if (place >= row.length) return MISSING;
    const value = numberOf(row[place], delimiter);
    if (value === null) return NO_NUMBER;
    numbers.push(value / unit);
  }
  if (Math.max(time, label ?? 0, ...asked.map(({ place }) => place)) >= row.length) return MISSING;
  const number = numberOf(row[time], delimiter);
  const moment = number ?? secondsOfDate(row[time]);
  if (moment === null) return NO_NUMBER;
  const [values, beside] = [numbers.slice(0, channels.length), numbers.slice(channels.length)];
  const answers = Object.fromEntries(asked.map(({ id, place, choices }) => [id, choices.find((choice) => folded(choice) === folded(row[place].trim()))]).filter(([, choice]) => choice));
  return { values, slow: beside, answers, time: moment, isDate: number === null, label: label === null ? "" : row[label].trim().toLowerCase() };
}

/** Motion, and what was recorded beside it. @param {Float64Array} signal @param {number} motion @param {readonly number[][]} others */
function beside(signal, motion, others) {
  return Float64Array.from(others.flatMap((numbers, at) => [...signal.subarray(at * motion, (at + 1) * motion), ...numbers]));
}

/** @param {readonly string[]} reasons */
function counted(reasons) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return counts;
}

/** Without a unit, the one that gives 1 to 1000 samples a second. @param {Float64Array} times @param {string} unit */
function toSeconds(times, unit) {
  const steps = times.subarray(1).map((time, place) => time - times[place]).filter((step) => step > 0);
  const typical = steps.length ? medianOf(steps) : 0;
  const known = SECONDS.has(unit) ? unit : STEPS.find(([, longest]) => typical < longest)?.[0] ?? "ns";
  const factor = /** @type {number} */ (SECONDS.get(known));
  return times.map((time) => time * factor);
}

/**
 * In g and rad/s. Without a unit, acceleration far above 1 is read as m/s^2: gravity is always there.
 * @param {Float64Array} signal @param {number} channels @param {readonly string[]} units
 */
function toUnits(signal, channels, units) {
  const lengths = Float64Array.from({ length: signal.length / channels }, (_, at) =>
    Math.hypot(...signal.subarray(at * channels, at * channels + 3)));
  const given = units[0] ?? "";
  const isMetric = given.startsWith("m/s") || (given !== "g" && lengths.length > 0 && medianOf(lengths) > 4);
  const isDegrees = channels > 3 && /^(deg|°)/.test(units[3] ?? "");
  return signal.map((value, place) => {
    if (place % channels < 3) return isMetric ? value / GRAVITY : value;
    return isDegrees ? (value * Math.PI) / 180 : value;
  });
}

/** @param {Float64Array} values */
function medianOf(values) {
  const sorted = values.toSorted();
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
