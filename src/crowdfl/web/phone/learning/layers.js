// The layers of a network on blocks of rows, in single precision as torch keeps them; sums are made in double precision.
// Rows and columns are padded with zeros to multiples of four, so that the inner loop needs no rest.

const KEEP = 0.9; // Adam's, as torch has them
const KEEP_SQUARES = 0.999;
const SMALL = 1e-8;

/** @param {number} size */
export const padded = (size) => (size + 3) & ~3;

/**
 * out[i, j] = sum over k of a[i, k] b[j, k], where a[i, k] lies at i aRow + k aStep, and b likewise. Sixteen sums at a time:
 * each number that is read serves four products. `| 0` spares the engine a check for overflow.
 * @param {Float32Array} out @param {number} rows @param {number} columns
 * @param {Float32Array} a @param {number} aRow @param {number} aStep
 * @param {Float32Array} b @param {number} bRow @param {number} bStep @param {number} inner How many k there are.
 */
export function multiply(out, rows, columns, a, aRow, aStep, b, bRow, bStep, inner) {
  for (let i = 0; i < rows; i += 4) {
    for (let j = 0; j < columns; j += 4) {
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      let s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
      let i0 = i * aRow, i1 = i0 + aRow, i2 = i1 + aRow, i3 = i2 + aRow;
      let j0 = j * bRow, j1 = j0 + bRow, j2 = j1 + bRow, j3 = j2 + bRow;
      for (let k = 0; k < inner; k++) {
        const a0 = a[i0], a1 = a[i1], a2 = a[i2], a3 = a[i3];
        const b0 = b[j0], b1 = b[j1], b2 = b[j2], b3 = b[j3];
        s00 += a0 * b0; s01 += a0 * b1; s02 += a0 * b2; s03 += a0 * b3;
        s10 += a1 * b0; s11 += a1 * b1; s12 += a1 * b2; s13 += a1 * b3;
        s20 += a2 * b0; s21 += a2 * b1; s22 += a2 * b2; s23 += a2 * b3;
        s30 += a3 * b0; s31 += a3 * b1; s32 += a3 * b2; s33 += a3 * b3;
        i0 = (i0 + aStep) | 0; i1 = (i1 + aStep) | 0; i2 = (i2 + aStep) | 0; i3 = (i3 + aStep) | 0;
        j0 = (j0 + bStep) | 0; j1 = (j1 + bStep) | 0; j2 = (j2 + bStep) | 0; j3 = (j3 + bStep) | 0;
      }
      const o0 = i * columns + j, o1 = o0 + columns, o2 = o1 + columns, o3 = o2 + columns;
      out[o0] = s00; out[o0 + 1] = s01; out[o0 + 2] = s02; out[o0 + 3] = s03;
      out[o1] = s10; out[o1 + 1] = s11; out[o1 + 2] = s12; out[o1 + 3] = s13;
      out[o2] = s20; out[o2 + 1] = s21; out[o2 + 2] = s22; out[o2 + 3] = s23;
      out[o3] = s30; out[o3 + 1] = s31; out[o3 + 2] = s32; out[o3 + 3] = s33;
    }
  }
}

/** Parameters, and what Adam keeps of them. */
class Parameters {
  #means;
  #squares;
  /** @type {Float32Array | null} What FedProx draws them back to. */
  #start = null;

  /** @param {number} count */
  constructor(count) {
    this.values = new Float32Array(count);
    this.slopes = new Float32Array(count);
    this.#means = new Float32Array(count);
    this.#squares = new Float32Array(count);
  }

  forget() {
    this.#means.fill(0);
    this.#squares.fill(0);
    this.#start = null;
  }

  /** FedProx: the slopes of proximal / 2 |values - start|^2; the first values that it sees are the start. @param {number} proximal */
  drawBack(proximal) {
    const { values, slopes } = this;
    const start = (this.#start ??= values.slice());
    for (let at = 0; at < values.length; at++) slopes[at] += proximal * (values[at] - start[at]);
  }

  /** @param {number} pace The rate, and @param {number} spread the divisor, both corrected for this step. */
  step(pace, spread) {
    const { values, slopes } = this;
    const [means, squares, scale] = [this.#means, this.#squares, 1 / spread];
    for (let at = 0; at < values.length; at++) {
      const slope = slopes[at];
      const mean = means[at] + (1 - KEEP) * (slope - means[at]);
      const square = KEEP_SQUARES * squares[at] + (1 - KEEP_SQUARES) * slope * slope;
      values[at] -= (pace * mean) / (Math.sqrt(square) * scale + SMALL);
      means[at] = mean;
      squares[at] = square;
    }
  }
}

/**
 * Adam (Kingma and Ba, 2015), as torch computes it: the corrected rate and divisor of each step.
 * @param {number} rate @param {number} step
 */
export function adamFactors(rate, step) {
  return { pace: rate / (1 - KEEP ** step), spread: Math.sqrt(1 - KEEP_SQUARES ** step) };
}

/** Every output is a weighted sum of all inputs and a bias. */
export class Linear {
  #weight;
  #bias;

  /** @param {number} width @param {number} size */
  constructor(width, size) {
    this.width = width;
    this.size = size;
    this.columns = padded(width);
    this.rows = padded(size);
    this.#weight = new Parameters(this.rows * this.columns);
    this.#bias = new Parameters(this.rows);
  }

  get parameters() {
    return (this.width + 1) * this.size;
  }

  /** @param {Float64Array} flat The weights, row by row, and the biases. */
  load(flat) {
    for (let row = 0; row < this.size; row++) {
      this.#weight.values.set(flat.subarray(row * this.width, (row + 1) * this.width), row * this.columns);
    }
    this.#bias.values.set(flat.subarray(this.size * this.width));
  }

  /** @param {Float64Array} flat */
  save(flat) {
    for (let row = 0; row < this.size; row++) {
      const start = row * this.columns;
      flat.set(this.#weight.values.subarray(start, start + this.width), row * this.width);
    }
    flat.set(this.#bias.values.subarray(0, this.size), this.size * this.width);
  }

  /** @param {Float32Array} input @param {Float32Array} output @param {number} count Rows, a multiple of four. */
  forward(input, output, count) {
    const { columns, rows } = this;
    const bias = this.#bias.values;
    multiply(output, count, rows, input, columns, 1, this.#weight.values, columns, 1, columns);
    for (let sample = 0; sample < count; sample++) {
      for (let row = 0; row < rows; row++) output[sample * rows + row] += bias[row];
    }
  }

  /**
   * @param {Float32Array} input @param {Float32Array} _output
   * @param {Float32Array} slopes Of the loss by the outputs. @param {Float32Array | null} before Takes those by the inputs.
   * @param {number} count
   */
  backward(input, _output, slopes, before, count) {
    const { columns, rows } = this;
    multiply(this.#weight.slopes, rows, columns, slopes, 1, rows, input, 1, columns, count);
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let sample = 0; sample < count; sample++) sum += slopes[sample * rows + row];
      this.#bias.slopes[row] = sum;
    }
    if (before) multiply(before, count, columns, slopes, rows, 1, this.#weight.values, 1, columns, rows);
  }

  forget() {
    this.#weight.forget();
    this.#bias.forget();
  }

  /** @param {number} proximal */
  drawBack(proximal) {
    this.#weight.drawBack(proximal);
    this.#bias.drawBack(proximal);
  }

  /** @param {number} pace @param {number} spread */
  step(pace, spread) {
    this.#weight.step(pace, spread);
    this.#bias.step(pace, spread);
  }
}

/** A function of each number alone, whose slope follows from what it gave. */
export class Elementwise {
  #value;
  #slope;

  /** @param {number} size @param {"relu" | "tanh"} kind */
  constructor(size, kind) {
    this.rows = padded(size);
    this.#value = kind === "relu" ? (/** @type {number} */ x) => (x > 0 ? x : 0) : Math.tanh;
    this.#slope = kind === "relu" ? (/** @type {number} */ y) => (y > 0 ? 1 : 0) : (/** @type {number} */ y) => 1 - y * y;
  }

  /** @param {Float32Array} input @param {Float32Array} output @param {number} count */
  forward(input, output, count) {
    for (let at = 0; at < count * this.rows; at++) output[at] = this.#value(input[at]);
  }

  /**
   * @param {Float32Array} _input @param {Float32Array} output @param {Float32Array} slopes @param {Float32Array | null} before @param {number} count
   */
  backward(_input, output, slopes, before, count) {
    if (!before) return;
    for (let at = 0; at < count * this.rows; at++) before[at] = slopes[at] * this.#slope(output[at]);
  }
}
