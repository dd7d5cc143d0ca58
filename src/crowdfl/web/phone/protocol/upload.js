// An upload, as protocols/shares/round/upload.py: SP's shares of the update in the clear, and the seed of CSP's, sealed to CSP.

import { bind, sha256, u32, utf8 } from "./bytes.js";
import { lengthBound, requireRing } from "./bundle.js";
import { chainWeights, placeOf } from "./chain.js";
import { LengthMismatch, NotFinite, NothingToContribute, SlotOverflow } from "./errors.js";
import { expand } from "./expansion.js";
import { leavesOf, u64 } from "./leaves.js";
import { SALT_BYTES, SEED_BYTES } from "./limits.js";
import { encode } from "./messages.js";
import { elementBytes, fromLittleEndian, Integers64, minusElements, toLittleEndian } from "./ring.js";
import { sealTo } from "./seal.js";
import { sign } from "./signing.js";
import { rint } from "./steps.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./bundle.js").Bundle} Bundle */
/** @typedef {import("./chain.js").Chain} Chain */
/** @typedef {import("./keys.js").Keys} Keys */
/** @typedef {import("./settings.js").SharesTask} SharesTask */
/** @typedef {{ seed: Bytes, salt: Bytes, ephemeral?: CryptoKeyPair }} Drawn */
/**
 * @typedef {object} Update
 * @property {BigInt64Array<ArrayBuffer>} integers What is shared.
 * @property {number} clipped How many weights were clipped.
 * @property {number | null} scaled What the update was scaled down by, to keep to the task's norm bound.
 */

const KIND = 53;

/**
 * The upload of a trained model. Its seed and its salt serve one upload ever: the bytes are kept and sent again, never made
 * again. The salt is no part of the seed: CSP knows the seed and sees the hash, and must not test guesses.
 * @param {SharesTask} task @param {Bundle} bundle @param {Keys} keys @param {Chain} chain @param {Float64Array} weights
 * @param {number} samples @param {number} round @param {Drawn} [drawn] For vectors only: fresh bytes otherwise.
 * @returns {Promise<{ bytes: Bytes, clipped: number, scaled: number | null }>}
 */
export async function makeUpload(task, bundle, keys, chain, weights, samples, round, drawn = drawFresh()) {
  requireRing(task, bundle);
  const { integers, clipped, scaled } = encodeUpdate(task, chain, weights, samples);
  const place = placeOf(task, round, chain.base);
  const who = utf8(keys.who);
  const { seed, salt, ephemeral } = drawn;
  const length = task.parameters * elementBytes(bundle.ringBits);
  const theirs = await expand(seed, place("crowdfl share 1 update", who), length);
  const theirSamples = await expand(seed, place("crowdfl share 1 samples", who), task.countBytes);
  const shares = minusElements(integers, theirs, bundle.ringBits);
  const count = toLittleEndian(BigInt(samples) - fromLittleEndian(theirSamples), task.countBytes);
  const leaves = leavesOf(shares);
  const digest = await sha256(bind("crowdfl shares 1", salt, count, u64(shares.length), leaves));
  const sealed = await sealTo(bundle.cspSealing, seed, place("crowdfl share seed 1", who, digest), ephemeral);
  const signature = await sign(keys, place("crowdfl upload 1", who, digest, sealed));
  const fields = [task.task, u32(round), chain.base, keys.who, digest, sealed, signature, salt, count, leaves, shares];
  return { bytes: encode(KIND, fields), clipped, scaled };
}

/** @returns {Drawn} */
function drawFresh() {
  const fresh = (/** @type {number} */ length) => crypto.getRandomValues(new Uint8Array(length));
  return { seed: fresh(SEED_BYTES), salt: fresh(SALT_BYTES) };
}

/**
 * A trained model as integers: the change since the base, in units of 10^-L. Times the samples; or, where everyone counts
 * once, no longer than `max_norm` as integers, so that no honest one is rejected.
 * @param {SharesTask} task @param {Chain} chain @param {Float64Array} weights @param {number} samples @returns {Update}
 */
export function encodeUpdate(task, chain, weights, samples) {
  requireSamples(task, samples);
  if (weights.length !== task.parameters || chain.weights.length !== task.parameters) {
    throw new LengthMismatch(`${weights.length} weights where the model has ${task.parameters}`);
  }
  const change = changeSince(chain, weights, task.unit);
  const scaled = scaleOf(change, task.maxNorm);
  let clipped = 0;
  for (let i = 0; i < change.length; i += 1) {
    const entry = scaled === null ? change[i] : change[i] * scaled;
    if (Math.abs(entry) > task.clip) clipped += 1;
    change[i] = Math.min(Math.max(entry, -task.clip), task.clip) * task.unit;
  }
  const whole = task.hasCounts ? change.map(rint) : integersWithin(change, lengthBound(task));
  const integers = new Integers64(change.length);
  for (let i = 0; i < whole.length; i += 1) integers.setProduct(i, whole[i], task.hasCounts ? samples : 1);
  return { integers: integers.values, clipped, scaled };
}

/**
 * The nearest integers to an update in units; shrunk, if these are longer than `most`, until they are not. To the bit as Python
 * computes them.
 * @param {Float64Array} change @param {number} most
 */
export function integersWithin(change, most) {
  const bound = BigInt(most) * BigInt(most);
  let [factor, least, whole] = [1, 0.25 / most, change.map(rint)];
  for (let square = squareOf(whole); square > bound; square = squareOf(whole)) {
    factor *= Math.max(0, Math.min(most / Math.sqrt(Number(square)), 1 - least));
    least *= 2;
    whole = change.map((entry) => rint(entry * factor));
  }
  return whole;
}

/** The squared length, exactly. @param {Float64Array} whole Whole numbers. @returns {number | bigint} */
function squareOf(whole) {
  const square = whole.reduce((sum, entry) => sum + entry * entry, 0);
  return square < 2 ** 53 ? square : whole.reduce((sum, entry) => sum + BigInt(entry) ** 2n, 0n);
}

/** @param {Chain} chain @param {Float64Array} weights @param {number} unit */
function changeSince(chain, weights, unit) {
  const change = chainWeights(chain, unit);
  for (let i = 0; i < change.length; i += 1) change[i] = weights[i] - change[i];
  return change;
}

/** @param {SharesTask} task @param {number} samples */
function requireSamples(task, samples) {
  if (!Number.isInteger(samples)) throw new SlotOverflow("samples are counted in whole numbers");
  if (samples === 0) {
    throw new NothingToContribute("no samples, so there is nothing to upload: stay out of this round, come back with data");
  }
  if (samples < 1 || (task.hasCounts && samples > task.maxSamples)) {
    throw new SlotOverflow(`${samples} samples; this task takes 1 to ${task.maxSamples} of one participant`);
  }
}

/** @param {Float64Array} change @param {number | null} bound */
function scaleOf(change, bound) {
  const short = Math.sqrt(pairwiseSum(change.map((entry) => entry * entry)));
  const norm = Number.isFinite(short) ? short : longNorm(change);
  return bound === null || norm <= bound ? null : bound / norm;
}

/** @param {Float64Array} change A weight is not finite, or a square was too large. */
function longNorm(change) {
  if (!change.every(Number.isFinite)) throw new NotFinite("a weight is NaN or infinite");
  const largest = change.reduce((most, entry) => Math.max(most, Math.abs(entry)), 0);
  return largest * Math.sqrt(pairwiseSum(change.map((entry) => (entry / largest) ** 2)));
}

/**
 * In the order in which NumPy adds, so that the last digit is the same.
 * @param {Float64Array} values @returns {number}
 */
export function pairwiseSum(values) {
  if (values.length < 8) return values.reduce((sum, value) => sum + value, -0);
  if (values.length > 128) {
    const half = Math.floor(values.length / 2);
    const middle = half - (half % 8);
    return pairwiseSum(values.subarray(0, middle)) + pairwiseSum(values.subarray(middle));
  }
  const lanes = values.slice(0, 8);
  const even = values.length - (values.length % 8);
  for (let i = 8; i < even; i += 1) lanes[i % 8] += values[i];
  const [a, b, c, d, e, f, g, h] = lanes;
  return values.subarray(even).reduce((sum, value) => sum + value, a + b + (c + d) + (e + f + (g + h)));
}
