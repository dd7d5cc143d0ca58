// @ts-check
import assert from "node:assert/strict";
import { test } from "node:test";

import { costOfRounds, explainedRows, unpaid } from "#web/requester/words.js";

test("the lines of an explanation become terms, and a line without one goes on", () => {
  const text = "one upload     1000 samples\nsum of uploads 5 participants: 7, in a ring of 64 bits\n               more of it\n";
  assert.deepEqual(explainedRows(text), [
    ["one upload", "1000 samples"],
    ["sum of uploads", "5 participants: 7, in a ring of 64 bits more of it"],
  ]);
});

test("an explanation that has no terms stays whole", () => {
  assert.deepEqual(explainedRows("996 ciphertexts an upload, as printed: it leaks"), [["", "996 ciphertexts an upload, as printed: it leaks"]]);
  assert.deepEqual(explainedRows(""), []);
});

test("what all rounds cost is exact, and said only of what can be read", () => {
  assert.equal(costOfRounds("36.00", "3"), "108.00");
  assert.equal(costOfRounds("0.000001", "1000000"), "1.00");
  assert.equal(costOfRounds(" 999999999.999999 ", "1000"), "999999999999.999");
  for (const [budget, rounds] of [["", "3"], ["x", "3"], ["1.2.3", "3"], ["1", "three"], ["-1", "3"], ["1.1234567", "3"]]) {
    assert.equal(costOfRounds(budget, rounds), "");
  }
});

test("what is still to be paid counts what waits for confirmation, and is never below zero", () => {
  const task = { budget: 36_000_000, rounds: 2 };
  assert.equal(unpaid(task, { paid_in: 0, pending: 0 }), 72_000_000);
  assert.equal(unpaid(task, { paid_in: 36_000_000, pending: 1 }), 35_999_999);
  assert.equal(unpaid(task, { paid_in: 72_000_000, pending: 36_000_000 }), 0);
});
