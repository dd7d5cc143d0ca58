// The chain of models, as protocols/shares/chain.py: integers of 10^-L, the same on every device, and the base that names them.

import { bind, concat, hex, sha256, u32, utf8 } from "./bytes.js";
import { ChainBroken, FormatError, LengthMismatch, NotFinite, SlotOverflow } from "./errors.js";
import { HASH_BYTES, ROUND_BYTES } from "./limits.js";
import { littleEndian } from "./ring.js";
import { applyStep, momentCount, rint } from "./steps.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./settings.js").SharesTask} SharesTask */
/** @typedef {import("./steps.js").Integers} Integers */
/** @typedef {Float64Array<ArrayBuffer>} Floats */
/**
 * @typedef {object} Chain
 * @property {number} number The round that the model comes from; 0: the initial weights.
 * @property {Bytes} base
 * @property {Integers} weights
 * @property {Bytes} secret A hash of what readers alone know of the rounds so far.
 * @property {Floats[]} moments What a server step carries from round to round; empty in a task without one.
 */

const HEAD = ROUND_BYTES + 2 * HASH_BYTES;
const LARGEST = 2n ** 62n; // of a weight in units: two of them can still be added

/** @param {SharesTask} task @param {Float64Array} initial @returns {Promise<Chain>} */
export async function startChain(task, initial) {
  if (initial.length !== task.parameters) {
    throw new LengthMismatch(`${initial.length} weights where the model has ${task.parameters}`);
  }
  const base = await sha256(concat(utf8("crowdfl base 1"), utf8(task.task)));
  const moments = Array.from({ length: momentCount(task.step) }, () => new Float64Array(initial.length));
  return { number: 0, base, secret: new Uint8Array(HASH_BYTES), weights: inUnits(initial, task.unit), moments };
}

/** @param {Float64Array} initial @param {number} unit @returns {Integers} */
function inUnits(initial, unit) {
  const weights = new BigInt64Array(initial.length);
  initial.forEach((weight, i) => {
    if (!Number.isFinite(weight)) throw new NotFinite("an initial weight is NaN or infinite");
    const scaled = rint(weight * unit);
    weights[i] = inRange(Number.isFinite(scaled) ? BigInt(scaled) : LARGEST);
  });
  return weights;
}

/** @param {bigint} weight */
function inRange(weight) {
  if (weight < LARGEST && weight > -LARGEST) return weight;
  throw new SlotOverflow("a weight is too large to be counted in units of 10^-decimals: tell the requester");
}

/**
 * The next model: `change` is what the round's average is from this one.
 * @param {SharesTask} task @param {Chain} chain @param {number} number @param {Bytes} base @param {Bytes} secret
 * @param {Integers} change
 * @returns {Chain}
 */
export function after(task, chain, number, base, secret, change) {
  if (number <= chain.number) {
    throw new ChainBroken(`round ${number} was published after round ${chain.number}: averages are read in order`);
  }
  const average = moved(chain, change);
  if (!task.step) return { number, base, secret, weights: average, moments: [] };
  const step = applyStep(task.step, task.unit, change, chain.moments);
  return { number, base, secret, weights: moved(chain, step.change), moments: step.moments };
}

/** @param {Chain} chain @param {Integers} change @returns {Integers} */
function moved({ weights }, change) {
  return weights.map((weight, i) => inRange(weight + change[i]));
}

/**
 * The same on every device that has read the same rounds, and on no other. To others it says nothing of the model.
 * @param {Chain} chain
 */
export async function stateDigest(chain) {
  return hex(await sha256(concat(utf8("crowdfl state 1"), chainToBytes(chain))));
}

/**
 * The base after a round, from what CSP's record of it states.
 * @param {Bytes} base @param {Bytes} statement
 */
export async function nextBase(base, statement) {
  return sha256(concat(utf8("crowdfl next base 2"), base, await sha256(statement)));
}

/**
 * What readers alone know after a round: each server has the seed of its own mask and not of the other's.
 * @param {Bytes} secret @param {Bytes[]} masks
 */
export async function nextSecret(secret, masks) {
  return sha256(concat(utf8("crowdfl secret 2"), secret, ...masks));
}

/**
 * What everything of one round is bound to: the task, the round, the model that it starts from.
 * @param {SharesTask} task @param {number} round @param {Bytes} base
 * @returns {(label: string, ...parts: Uint8Array[]) => Bytes}
 */
export function placeOf(task, round, base) {
  if (round < 1) throw new ChainBroken("rounds count from 1 on");
  const place = [utf8(task.task), u32(round), base];
  return (label, ...parts) => bind(label, ...place, ...parts);
}

/**
 * @param {Integers} sums @param {bigint} total
 * @returns {Integers} sums / total, to the nearest integer, halves to the even one.
 */
export function roundedQuotient(sums, total) {
  return sums.map((sum) => nearest(sum, total));
}

/** @param {bigint} sum @param {bigint} total */
function nearest(sum, total) {
  let quotient = sum / total;
  let rest = sum - quotient * total;
  if (rest < 0n) {
    quotient -= 1n;
    rest += total;
  }
  return 2n * rest + (quotient & 1n) > total ? quotient + 1n : quotient;
}

/** @param {Chain} chain @returns {Bytes} */
export function chainToBytes(chain) {
  const head = [u32(chain.number), chain.base, chain.secret];
  return concat(...head, littleEndian(chain.weights), ...chain.moments.map(littleEndian));
}

/** @param {Bytes} bytes @param {Pick<SharesTask, "parameters" | "step">} task @returns {Chain} */
export function chainFromBytes(bytes, { parameters, step }) {
  const [width, count] = [8 * parameters, momentCount(step)];
  if (bytes.length !== HEAD + width * (1 + count)) {
    throw new FormatError(`${bytes.length} bytes are not the model of this task, which has ${parameters} weights`);
  }
  const part = (/** @type {number} */ place) => bytes.slice(HEAD + place * width, HEAD + (place + 1) * width).buffer;
  const moments = Array.from({ length: count }, (_, place) => new Float64Array(part(place + 1)));
  if (!moments.every((moment) => moment.every(Number.isFinite))) {
    throw new FormatError("the state that was kept with the model is damaged: ask for another invitation, and join again");
  }
  const number = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
  const [base, secret] = [bytes.slice(ROUND_BYTES, HEAD - HASH_BYTES), bytes.slice(HEAD - HASH_BYTES, HEAD)];
  return { number, base, secret, weights: new BigInt64Array(part(0)), moments };
}

/** @param {Chain} chain @param {number} unit */
export function chainWeights(chain, unit) {
  const weights = new Float64Array(chain.weights.length);
  for (let i = 0; i < weights.length; i += 1) weights[i] = Number(chain.weights[i]) / unit;
  return weights;
}
