import assert from "node:assert/strict";
import { test } from "node:test";

import { explainedRows } from "#web/requester/create.js";

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
