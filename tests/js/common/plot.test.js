// What can be told without a page; tests/web/test_plot.py draws.
import assert from "node:assert/strict";
import { test } from "node:test";

import { percent } from "#web/common/format.js";
import { aligned, tableRows } from "#web/common/plot.js";

const series = [{ name: "before", values: [0.5, null, 0.75] }, { name: "after", values: [0.6, NaN] }];

test("the table says what the picture draws, row by row", () => {
  assert.deepEqual(tableRows([1, 2, 3], series, { yFormat: percent }),
    [["1", "50.0%", "60.0%"], ["2", "–", "–"], ["3", "75.0%", "–"]]);
});

test("what was not measured is a gap in the line", () => {
  assert.deepEqual(aligned([1, 2, 3], series), [[1, 2, 3], [0.5, null, 0.75], [0.6, null, null]]);
});

test("a number without a format keeps six digits", () => {
  assert.deepEqual(tableRows([1000], [{ name: "loss", values: [0.123456789] }]), [["1,000", "0.123457"]]);
});
