// From recordings to windows, as crowdfl.learning.datasets.data: no window crosses a gap in time, and no sample
// is both trained on and tested on. Each part is resampled and cut into windows after the split.
import { DataMalformed, NothingToContribute } from "../protocol/errors.js";
import { askedFor } from "./recipe.js";

/** @typedef {import("./recipe.js").Recipe} Recipe */
/** @typedef {import("./features.js").Windows} Windows */

/**
 * One stretch with one label: acceleration in g and rotation in 2 rad/s, sample by sample.
 * @typedef {object} Recording
 * @property {string} id
 * @property {string} label
 * @property {Record<string, string>} [answers] To the task's questions, by their ids.
 * @property {Float64Array} times Seconds.
 * @property {Float64Array} signal
 * @property {number} channels Of motion, and of sensors beside it.
 */

/** @typedef {{ windows: Windows, labels: Int32Array }} Side Labels are places in the recipe's. */
/** @typedef {{ train: Side, heldOut: Side }} Split */
/** @typedef {{ times: Float64Array, signal: Float64Array }} Stretch */

const LONGEST_GAP = 10; // samples at the rate asked for; a longer gap is not filled in
const MOST_NUMBERS = 5e7; // in windows: half a day at 50 samples a second, cut as usual
const STILL = Math.fround(1e-6); // a channel that never moves is not divided by zero
const f32 = Math.fround;

/** As Python rounds: a half goes to the even neighbour. @param {number} value */
export function roundToEven(value) {
  const rounded = Math.round(value);
  return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

/** @param {string} label */
export const folded = (label) => label.toLowerCase().replaceAll("ß", "ss").replaceAll("ς", "σ");

/**
 * @param {readonly Recording[]} recordings In the order that decides the order of the windows. @param {Recipe} recipe
 * @returns {Split} or NothingToContribute when no window is left to train on.
 */
export function splitRecordings(recordings, recipe) {
  const places = new Map(recipe.labels.map((label, place) => [folded(label), place]));
  const mine = recordings.filter(({ label }) => places.has(folded(label)));
  requireAny(recordings, mine, recipe);
  const [train, heldOut] = [/** @type {Cut[]} */ ([]), /** @type {Cut[]} */ ([])];
  for (const recording of mine) {
    const label = /** @type {number} */ (places.get(folded(recording.label)));
    const wide = withAnswers(recording, recipe);
    for (const stretch of stretchesOf(wide, recipe.hertz)) {
      const [early, late] = partsOf(stretch, wide.channels, recipe);
      train.push({ signal: early, label });
      heldOut.push({ signal: late, label });
    }
  }
  const split = { train: sideOf(train, recipe), heldOut: sideOf(heldOut, recipe) };
  if (!split.train.labels.length) {
    throw new NothingToContribute(`no window of ${recipe.windowSamples} samples to train on: record longer stretches`);
  }
  return recipe.standardise ? standardised(split, recipe.channels) : split;
}

/** With a channel for each choice of a question: 1 throughout where it was the answer. @param {Recording} recording @param {Recipe} recipe */
function withAnswers({ times, signal, channels, answers = {} }, recipe) {
  const chosen = askedFor(recipe).flatMap(({ id, choices }) => choices.map((choice) => Number(answers[id] === choice)));
  if (!chosen.length || signal.length !== times.length * channels) return { times, signal, channels };
  const width = channels + chosen.length;
  const wide = new Float64Array(times.length * width);
  times.forEach((_, at) => {
    wide.set(signal.subarray(at * channels, (at + 1) * channels), at * width);
    wide.set(chosen, at * width + channels);
  });
  return { times, signal: wide, channels: width };
}

/** @param {readonly Recording[]} all @param {readonly Recording[]} mine @param {Recipe} recipe */
function requireAny(all, mine, { labels, channels: motion, sensors }) {
  const channels = motion + sensors.length;
  if (!all.length) throw new NothingToContribute("there are no recordings: record something first");
  if (!mine.length) {
    const found = [...new Set(all.map(({ label }) => label))].sort().join(", ");
    throw new NothingToContribute(`none of the labels ${found} is among the task's: ${labels.join(", ")}`);
  }
  const other = mine.find((recording) => recording.channels !== channels);
  if (other) {
    throw new DataMalformed(`a recording of '${other.label}' has ${other.channels} channels, the task's have ${channels}: `
      + "delete it, or import it again with these columns");
  }
}

/**
 * A recording, broken where time jumps. A sample at the time of the one before is left out.
 * @param {{ times: Float64Array, signal: Float64Array, channels: number }} recording @param {number} hertz
 * @param {(at: number) => boolean} [breaks] Whether something else begins at this sample.
 * @returns {(Stretch & { start: number })[]} `start` is the place of the first sample.
 */
export function stretchesOf({ times, signal, channels }, hertz, breaks = () => false) {
  requireSound(times, signal, channels);
  const kept = Array.from(times.keys()).filter((at) => at === 0 || times[at] !== times[at - 1]);
  const starts = kept.filter((at, place) => {
    const step = times[at] - times[kept[place - 1]];
    return place === 0 || step < 0 || step > LONGEST_GAP / hertz || breaks(at);
  });
  let next = 0;
  return starts.map((start, place) => {
    const first = next;
    while (next < kept.length && kept[next] < (starts[place + 1] ?? Infinity)) next++;
    return { ...samplesAt(kept.slice(first, next), times, signal, channels), start };
  });
}

/** @param {readonly number[]} places @param {Float64Array} times @param {Float64Array} signal @param {number} channels */
function samplesAt(places, times, signal, channels) {
  const chosen = new Float64Array(places.length * channels);
  places.forEach((at, place) => chosen.set(signal.subarray(at * channels, (at + 1) * channels), place * channels));
  return { times: Float64Array.from(places, (at) => times[at]), signal: chosen };
}

/** @param {Float64Array} times @param {Float64Array} signal @param {number} channels */
function requireSound(times, signal, channels) {
  if (!(channels >= 1) || signal.length !== times.length * channels) {
    throw new DataMalformed(`a recording has ${times.length} times and ${signal.length} numbers in ${channels} channels`);
  }
  if (![times, signal].every((numbers) => numbers.every(Number.isFinite))) {
    throw new DataMalformed("a recording holds NaN or infinity: delete it");
  }
}

/**
 * The samples before the cut and those after the gap, evenly spaced.
 * @param {Stretch} stretch @param {number} channels @param {Recipe} recipe
 */
function partsOf({ times, signal }, channels, { heldOut, gap, hertz }) {
  const end = times.length - roundToEven(times.length * heldOut);
  const after = times[Math.max(end - 1, 0)] + gap / hertz;
  const found = times.findIndex((time) => time > after);
  const start = Math.max(found < 0 ? times.length : found, end);
  return [
    resampled(times.subarray(0, end), signal.subarray(0, end * channels), channels, hertz),
    resampled(times.subarray(start), signal.subarray(start * channels), channels, hertz),
  ];
}

/**
 * `hertz` samples a second from the first one on, by linear interpolation.
 * @param {Float64Array} times Seconds, rising. @param {Float64Array} signal @param {number} channels @param {number} hertz
 */
export function resampled(times, signal, channels, hertz) {
  if (!times.length) return signal;
  const duration = times[times.length - 1] - times[0];
  const samples = Math.trunc(duration * hertz + 1e-6) + 1; // a grid point that rounding pushed behind the last sample still counts
  if (samples > 100 * times.length) {
    throw new DataMalformed(`${times.length} samples in ${duration} s are too few to resample to ${hertz} Hz`);
  }
  const smooth = smoothed(signal, channels, roundToEven(times.length / samples));
  return interpolated(times, smooth, channels, Float64Array.from({ length: samples }, (_, at) => times[0] + at / hertz));
}

/**
 * A running mean, so that frequencies above the new rate are damped.
 * @param {Float64Array} signal @param {number} channels @param {number} width
 */
function smoothed(signal, channels, width) {
  if (width < 2) return signal;
  const count = signal.length / channels;
  const [before, behind] = [width >> 1, (width - 1) >> 1];
  const sums = new Float64Array((count + 1) * channels); // of all samples before this one
  for (let at = 0; at < signal.length; at++) sums[at + channels] = sums[at] + signal[at];
  return signal.map((_, place) => {
    const [at, channel] = [Math.floor(place / channels), place % channels];
    const [from, to] = [Math.max(at - before, 0), Math.min(at + behind + 1, count)];
    return (sums[to * channels + channel] - sums[from * channels + channel]) / (to - from);
  });
}

/** @param {Float64Array} times @param {Float64Array} signal @param {number} channels @param {Float64Array} grid */
function interpolated(times, signal, channels, grid) {
  const made = new Float64Array(grid.length * channels);
  let left = 0;
  grid.forEach((time, place) => {
    while (left < times.length - 1 && times[left + 1] <= time) left++;
    const right = Math.min(left + 1, times.length - 1);
    const share = right === left ? 0 : (time - times[left]) / (times[right] - times[left]);
    for (let channel = 0; channel < channels; channel++) {
      const [low, high] = [signal[left * channels + channel], signal[right * channels + channel]];
      made[place * channels + channel] = low + share * (high - low);
    }
  });
  return made;
}

/** @typedef {{ signal: Float64Array, label: number }} Cut */

/** All whole windows of these signals. @param {readonly Cut[]} cuts @param {Recipe} recipe @returns {Side} */
function sideOf(cuts, recipe) {
  const { windowSamples: length, step } = recipe;
  const channels = recipe.channels + recipe.sensors.length + askedFor(recipe).reduce((sum, { choices }) => sum + choices.length, 0);
  const counts = cuts.map(({ signal }) => Math.max(0, Math.floor((signal.length / channels - length) / step) + 1));
  const count = counts.reduce((sum, some) => sum + some, 0);
  if (count * length * channels > MOST_NUMBERS) {
    throw new DataMalformed(`your recordings make ${count} windows of ${length} samples, more than this phone can hold: delete some`);
  }
  const [values, labels] = [new Float32Array(count * length * channels), new Int32Array(count)];
  let place = 0;
  cuts.forEach(({ signal, label }, index) => {
    for (let window = 0; window < counts[index]; window++, place++) {
      const start = window * step * channels;
      values.set(signal.subarray(start, start + length * channels), place * length * channels);
      labels[place] = label;
    }
  });
  if (!values.every(Number.isFinite)) throw new DataMalformed("a recording holds numbers that are far too large: delete it");
  return { windows: { values, count, length, channels }, labels };
}

/**
 * Every channel of motion with mean 0 and deviation 1 over the training windows, in single precision as NumPy.
 * @param {Split} split @param {number} motion @returns {Split}
 */
function standardised({ train, heldOut }, motion) {
  const { values, channels } = train.windows;
  const mean = channelMeans(values, channels);
  const squares = values.map((value, place) => f32(f32(value - mean[place % channels]) ** 2));
  const scale = channelMeans(squares, channels).map((square) => Math.max(f32(Math.sqrt(square)), STILL));
  mean.fill(0, motion);
  scale.fill(1, motion);
  const scaled = (/** @type {Side} */ { windows, labels }) => ({
    windows: { ...windows, values: windows.values.map((value, at) => f32(value - mean[at % channels]) / scale[at % channels]) },
    labels,
  });
  return { train: scaled(train), heldOut: scaled(heldOut) };
}

/** @param {Float32Array} values @param {number} channels */
function channelMeans(values, channels) {
  const sums = new (channels === 1 ? Float64Array : Float32Array)(channels); // NumPy adds one channel pairwise, several in order
  values.forEach((value, place) => { sums[place % channels] += value; });
  return Float32Array.from(sums, (sum) => sum / (values.length / channels));
}
