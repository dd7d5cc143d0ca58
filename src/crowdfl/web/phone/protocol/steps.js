// Server steps, as protocols/shares/server_optimizers.py: what a reader makes of a round's average. Every operation is one of IEEE doubles, in
// the order that it has there, so that all devices come to the same bits.

import { SlotOverflow } from "./errors.js";

/** @typedef {BigInt64Array<ArrayBuffer>} Integers */
/** @typedef {import("./settings.js").ServerStep} ServerStep */
/** @typedef {Float64Array<ArrayBuffer>} Floats */

const TINY = 2 ** -256; // less is 0: some programs' doubles have no subnormal numbers
const LARGEST = 2 ** 62; // units

/** How many arrays of doubles a reader carries from round to round. @param {ServerStep | null} step */
export function momentCount(step) {
  return step === null ? 0 : step.kind === "fedavgm" ? 1 : 2;
}

/**
 * What is added to the model, in units, from what the average would add; and the moments after it.
 * @param {ServerStep} step @param {number} unit @param {Integers} change @param {readonly Floats[]} moments
 * @returns {{ change: Integers, moments: Floats[] }}
 */
export function applyStep(step, unit, change, moments) {
  const added = new BigInt64Array(change.length);
  const after = moments.map((moment) => new Float64Array(moment.length));
  const move = step.kind === "fedavgm" ? momentum : adaptive;
  for (let i = 0; i < change.length; i += 1) {
    added[i] = whole(move(step, Number(change[i]) / unit, moments, after, i) * unit);
  }
  return { change: added, moments: after };
}

/**
 * @param {ServerStep} step @param {number} g @param {readonly Floats[]} before @param {readonly Floats[]} after
 * @param {number} i
 */
function momentum({ rate, momentum: keep }, g, [m], [next], i) {
  next[i] = plain(keep * m[i] + g);
  return rate * next[i];
}

/**
 * @param {ServerStep} step @param {number} g @param {readonly Floats[]} before @param {readonly Floats[]} after
 * @param {number} i
 */
function adaptive({ kind, rate, momentum: keep, squares, floor }, g, [m, v], [mean, square], i) {
  mean[i] = plain(keep * m[i] + (1 - keep) * g);
  square[i] = plain(spread(kind, squares, v[i], g * g));
  return (rate * mean[i]) / (Math.sqrt(square[i]) + floor);
}

/** @param {ServerStep["kind"]} kind @param {number} squares @param {number} v @param {number} square */
function spread(kind, squares, v, square) {
  if (kind === "fedadagrad") return v + square;
  const fresh = kind === "fedadam" ? square : v - Math.sign(v - square) * square;
  return squares * v + (1 - squares) * fresh;
}

/** @param {number} value */
function plain(value) {
  return Math.abs(value) < TINY ? 0 : value;
}

/** @param {number} step */
function whole(step) {
  if (Math.abs(step) < LARGEST) return BigInt(rint(step));
  throw new SlotOverflow("the server step takes a weight out of range: this task's `server_rate` is too large; tell the requester");
}

/** The nearest integer, halves to the even one: NumPy's rint. @param {number} value */
export function rint(value) {
  const up = Math.round(value);
  return up - value === 0.5 && up % 2 !== 0 ? up - 1 : up;
}
