// What noise costs, as Python computes it; and tasks with too little of it.
import assert from "node:assert/strict";
import { test } from "node:test";

import { epsilonOf, isEnough, logDelta, privacyOf, spent } from "#web/phone/protocol/accounting.js";
import { sharesTask } from "#web/phone/protocol/settings.js";
import { definitionOf, vectors } from "./support.js";

const NOISE = { weighting: "equal", decimals: 3, max_norm: 5, rounds: 3, epsilon: 8, delta: null, noise: "any", sigma: 5546 };

test("the same figures as Python's", () => {
  for (const { rho, delta, epsilon, log_delta: log } of vectors("accounting").ours) {
    assert.ok(Math.abs(epsilonOf(rho, delta) - epsilon) <= 1e-9 * Math.max(1, epsilon));
    assert.ok(Math.abs(logDelta(rho, epsilon) - log) <= 1e-6);
  }
});

test("a task whose noise is enough is taken, and one with less is refused", () => {
  const taken = definitionOf({ task: "0".repeat(64), settings: { profile: "shares", ...NOISE }, parameters: 10 });
  assert.equal(sharesTask(taken).rounds, 3);
  for (const change of [{ sigma: 5530 }, { rounds: 4 }, { sigma: null }, { epsilon: null }, { weighting: "samples" }, { pay: "samples" }, { decimals: 6 }]) {
    const given = definitionOf({ task: "0".repeat(64), settings: { profile: "shares", ...NOISE, ...change }, parameters: 10 });
    assert.throws(() => sharesTask(given), /noise|epsilon|pay/, JSON.stringify(change));
  }
});

test("what opened rounds have spent grows to epsilon", () => {
  const privacy = /** @type {NonNullable<ReturnType<typeof privacyOf>>} */ (privacyOf(NOISE));
  const after = [0, 1, 2, 3].map((opened) => spent(privacy, opened));
  assert.deepEqual(after, after.toSorted((a, b) => a - b));
  assert.equal(after[0], 0);
  assert.ok(after[3] <= 8 && after[3] > 7.99);
  assert.ok(isEnough(privacy, 3) && !isEnough(privacy, 4));
});
