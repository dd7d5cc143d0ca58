// From windows to a model's inputs, as crowdfl.learning.features: in single precision, added up in NumPy's order.

/**
 * @typedef {{ values: Float32Array, count: number, length: number, channels: number }} Windows (count, length, channels), row by row
 */

const FREQUENCIES = 6;
const FLOOR = Math.fround(0.02); // keeps the logarithm of stillness finite
const f32 = Math.fround;

/**
 * @param {"motion" | "flat"} name
 * @param {Windows} windows
 * @returns {Float32Array} A row of inputs per window.
 */
export function features(name, windows) {
  return name === "flat" ? windows.values : motion(windows);
}

/**
 * Nine numbers per channel: mean, the six lowest frequencies, deviation and jerkiness; all but the mean as logarithms.
 * @param {Windows} windows
 */
function motion({ values, count, length, channels }) {
  const waves = wavesOf(length);
  const row = channels * (3 + waves.length);
  const made = new Float32Array(count * row);
  const track = new Float32Array(length); // one channel of one window
  for (let window = 0; window < count; window++) {
    for (let channel = 0; channel < channels; channel++) {
      for (let at = 0; at < length; at++) track[at] = values[(window * length + at) * channels + channel];
      describe(track, waves, made.subarray(window * row, (window + 1) * row), channel, channels);
    }
  }
  return made;
}

/** The cosine and sine of each frequency. @param {number} length */
function wavesOf(length) {
  return Array.from({ length: Math.min(FREQUENCIES, length >> 1) }, (_, place) => {
    const angle = (/** @type {number} */ at) => (2 * Math.PI * (((place + 1) * at) % length)) / length;
    return [Math.cos, Math.sin].map((wave) => Float64Array.from({ length }, (_, at) => wave(angle(at))));
  });
}

/**
 * @param {Float32Array} track @param {readonly Float64Array[][]} waves
 * @param {Float32Array} row Takes the numbers of this channel, at every `channels`-th place.
 * @param {number} channel @param {number} channels
 */
function describe(track, waves, row, channel, channels) {
  const mean = meanOf(track, (at) => track[at]);
  const jerk = f32(5 * meanOf(track.subarray(1), (at) => Math.abs(f32(track[at + 1] - track[at]))));
  for (let at = 0; at < track.length; at++) track[at] -= mean;
  const deviation = f32(Math.sqrt(meanOf(track, (at) => f32(track[at] * track[at]))));
  row[channel] = 2 * mean;
  waves.forEach(([cosine, sine], place) => {
    row[(place + 1) * channels + channel] = logOf((strength(track, cosine, sine) * 2) / track.length) + 2;
  });
  row[(waves.length + 1) * channels + channel] = logOf(deviation) + 1;
  row[(waves.length + 2) * channels + channel] = logOf(jerk) + 1;
}

/** @param {Float32Array} track @param {(at: number) => number} value */
function meanOf(track, value) {
  let sum = 0;
  for (let at = 0; at < track.length; at++) sum = f32(sum + value(at));
  return f32(sum / track.length);
}

/** @param {Float32Array} track @param {Float64Array} cosine @param {Float64Array} sine */
function strength(track, cosine, sine) {
  let real = 0;
  let imaginary = 0;
  for (let at = 0; at < track.length; at++) {
    real += track[at] * cosine[at];
    imaginary += track[at] * sine[at];
  }
  return Math.hypot(real, imaginary);
}

/** @param {number} value */
const logOf = (value) => f32(Math.log(f32(f32(value) + FLOOR)));
