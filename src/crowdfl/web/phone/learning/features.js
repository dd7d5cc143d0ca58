// From windows to a model's inputs, as crowdfl.learning.features: "motion" in single precision, added up in NumPy's order; the rest
// in doubles.

/** @typedef {"motion" | "flat" | "spectral"} FeatureName */
/**
 * @typedef {{ values: Float32Array, count: number, length: number, channels: number }} Windows (count, length, channels), row by row
 */

const FREQUENCIES = 6; // of "motion"
const SPECTRUM = 30; // of "spectral"
const FLOOR = 0.02; // keeps the logarithm of stillness finite
const STILL = 1e-6; // a number that never changes is not divided by zero
const f32 = Math.fround;

/** @param {FeatureName} name @param {number} length @param {number} channels */
export function featuresPerWindow(name, length, channels) {
  if (name === "flat") return channels * length;
  return channels * (name === "spectral" ? 2 + frequencies(SPECTRUM, length) : 3 + frequencies(FREQUENCIES, length));
}

/** @param {number} most @param {number} length */
const frequencies = (most, length) => Math.min(most, length >> 1);

/** @param {FeatureName} name @param {Windows} windows @returns {Float32Array} A row of inputs per window. */
export function features(name, windows) {
  if (name === "flat") return windows.values;
  const { length } = windows;
  const row = featuresPerWindow(name, length, windows.channels);
  if (name === "motion") return describedBy(windows, row, motionOf(wavesOf(frequencies(FREQUENCIES, length), length)));
  return describedBy(windows, row, spectrumOf(wavesOf(frequencies(SPECTRUM, length), length), hann(length)));
}

/** Some channels of all windows. @param {Windows} windows @param {number} from @param {number} to @returns {Windows} */
export function channelsOf({ values, count, length, channels }, from, to) {
  const kept = values.filter((_, at) => at % channels >= from && at % channels < to);
  return { values: kept, count, length, channels: to - from };
}

/**
 * Of what was recorded beside motion: mean and deviation of each sensor, then the answers, which do not change.
 * @param {Windows} windows @param {number} sensors @returns {Float32Array}
 */
export function beside({ values, count, length, channels }, sensors) {
  const row = channels + sensors;
  const made = new Float32Array(count * row);
  for (let window = 0; window < count; window++) {
    const at = (/** @type {number} */ sample, /** @type {number} */ channel) => values[(window * length + sample) * channels + channel];
    for (let channel = 0; channel < channels; channel++) {
      const track = Float64Array.from({ length }, (_, sample) => at(sample, channel));
      const mean = track.reduce((sum, value) => sum + value, 0) / length;
      const squares = track.reduce((sum, value) => sum + (value - mean) ** 2, 0);
      made[window * row + (channel < sensors ? channel : channel + sensors)] = channel < sensors ? mean : at(0, channel);
      if (channel < sensors) made[window * row + sensors + channel] = Math.sqrt(squares / length);
    }
  }
  return made;
}

/** Rows side by side. @param {Float32Array} left @param {Float32Array} right @param {number} count Rows. */
export function joined(left, right, count) {
  const [wide, more] = [left.length / count, right.length / count];
  return Float32Array.from({ length: left.length + right.length }, (_, at) => {
    const [row, place] = [Math.floor(at / (wide + more)), at % (wide + more)];
    return place < wide ? left[row * wide + place] : right[row * more + place - wide];
  });
}

/**
 * Every number less its mean over a person's training windows, and divided by its deviation there.
 * @param {Float32Array} inputs @param {Float32Array} own Those of the training windows. @param {number} width Numbers per window.
 */
export function scaled(inputs, own, width) {
  const mean = columnMeans(own, width, (value) => value);
  const squares = columnMeans(own, width, (value, column) => (value - mean[column]) ** 2);
  const scale = squares.map((square) => Math.max(Math.sqrt(square), STILL));
  return inputs.map((value, at) => (value - mean[at % width]) / scale[at % width]);
}

/** @param {Float32Array} rows @param {number} width @param {(value: number, column: number) => number} each */
function columnMeans(rows, width, each) {
  const sums = new Float64Array(width);
  for (let at = 0; at < rows.length; at++) sums[at % width] += each(rows[at], at % width);
  return sums.map((sum) => sum / (rows.length / width));
}

/** @typedef {(track: Float32Array, row: Float32Array, channel: number, channels: number) => void} Describe What takes one channel of
 * one window, and puts its numbers at every `channels`-th place of a row. */

/** @param {Windows} windows @param {number} row Numbers per window. @param {Describe} describe */
function describedBy({ values, count, length, channels }, row, describe) {
  const made = new Float32Array(count * row);
  const track = new Float32Array(length);
  for (let window = 0; window < count; window++) {
    for (let channel = 0; channel < channels; channel++) {
      for (let at = 0; at < length; at++) track[at] = values[(window * length + at) * channels + channel];
      describe(track, made.subarray(window * row, (window + 1) * row), channel, channels);
    }
  }
  return made;
}

/** The cosine and sine of the lowest frequencies, without that of standing still. @param {number} count @param {number} length */
function wavesOf(count, length) {
  return Array.from({ length: count }, (_, place) => {
    const angle = (/** @type {number} */ at) => (2 * Math.PI * (((place + 1) * at) % length)) / length;
    return [Math.cos, Math.sin].map((wave) => Float64Array.from({ length }, (_, at) => wave(angle(at))));
  });
}

/**
 * Nine numbers: mean, the six lowest frequencies, deviation and jerkiness; all but the mean as logarithms.
 * @param {readonly Float64Array[][]} waves @returns {Describe}
 */
const motionOf = (waves) => (track, row, channel, channels) => {
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
};

/** @param {Float32Array} track @param {(at: number) => number} value */
function meanOf(track, value) {
  let sum = 0;
  for (let at = 0; at < track.length; at++) sum = f32(sum + value(at));
  return f32(sum / track.length);
}

/** @param {number} value */
const logOf = (value) => f32(Math.log(f32(f32(value) + f32(FLOOR))));

/**
 * The logarithms of the strengths of up to 30 frequencies, mean and deviation.
 * @param {readonly Float64Array[][]} waves @param {Float64Array} fading @returns {Describe}
 */
const spectrumOf = (waves, fading) => {
  const moving = new Float64Array(fading.length);
  return (track, row, channel, channels) => {
    const mean = track.reduce((sum, value) => sum + value, 0) / track.length;
    const squares = track.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    for (let at = 0; at < track.length; at++) moving[at] = (track[at] - mean) * fading[at];
    waves.forEach(([cosine, sine], place) => {
      row[place * channels + channel] = Math.log((2 / track.length) * strength(moving, cosine, sine) + FLOOR);
    });
    row[waves.length * channels + channel] = mean;
    row[(waves.length + 1) * channels + channel] = Math.sqrt(squares / track.length);
  };
};

/** Hann's window, which takes the jump between a window's ends out of its spectrum. @param {number} length */
const hann = (length) => Float64Array.from({ length }, (_, at) => (length === 1 ? 1 : 0.5 - 0.5 * Math.cos((2 * Math.PI * at) / (length - 1))));

/** @param {Float32Array | Float64Array} track @param {Float64Array} cosine @param {Float64Array} sine */
function strength(track, cosine, sine) {
  let real = 0;
  let imaginary = 0;
  for (let at = 0; at < track.length; at++) {
    real += track[at] * cosine[at];
    imaginary += track[at] * sine[at];
  }
  return Math.hypot(real, imaginary);
}
