// What Python makes: vectors/learning.json, by vectors/generate_learning.py.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

/** @type {any} */
export const VECTORS = JSON.parse(readFileSync(new URL("../../../vectors/learning.json", import.meta.url), "utf8"));

/** @param {ArrayLike<number>} found @param {ArrayLike<number>} wanted */
export function furthest(found, wanted) {
  assert.equal(found.length, wanted.length);
  let far = 0;
  for (let place = 0; place < wanted.length; place++) {
    const apart = Math.abs(found[place] - wanted[place]);
    far = Number.isNaN(apart) ? Infinity : Math.max(far, apart);
  }
  return far;
}

/** @param {ArrayLike<number>} found @param {ArrayLike<number>} wanted @param {number} tolerance */
export function assertNear(found, wanted, tolerance) {
  const far = furthest(found, wanted);
  assert.ok(far <= tolerance, `${far} apart, more than ${tolerance}`);
}
