// Which of a CSV file's samples a task takes.
import assert from "node:assert/strict";
import { test } from "node:test";

import { importable, NotUsable } from "#web/phone/app/imports.js";
import { parseRecipe } from "#web/phone/learning/recipe.js";
import { speakAs } from "../speak.js";

await speakAs();

const recipe = (channels = 3) => parseRecipe({ learner: "softmax", labels: ["Walking", "sitting"], channels });

/** @param {string} head @param {(at: number) => string} row @param {number} [count] */
const csv = (head, row, count = 100) => [head, ...Array.from({ length: count }, (_, at) => `${(at / 50).toFixed(2)},${row(at)}`)].join("\n");

test("labels of the task are taken, whatever their case; others are counted and left out", () => {
  const text = csv("time,x,y,z,label", (at) => `0,0,1,${at < 50 ? "walking" : "jogging"}`);
  const { recordings, words } = importable("mine.csv", text, recipe());
  assert.deepEqual(recordings.map(({ label, channels, times }) => [label, channels, times.length]), [["walking", 3, 50]]);
  assert.match(words, /^mine\.csv: 1 sec of walking\. 1 stretch of another activity was left out\.$/);
  assert.ok(recordings.every(({ id }) => Number.isNaN(Date.parse(id.split(" ")[0]))), "a file has no time of day");
});

test("a file without a label is named after its activity", () => {
  const { recordings } = importable("sitting_2026-01-01.csv", csv("time,x,y,z", () => "0,0,1"), recipe());
  assert.deepEqual(recordings.map(({ label }) => label), ["sitting"]);
});

test("rotation that nobody asked for is left out", () => {
  const { recordings } = importable("sitting.csv", csv("time,ax,ay,az,gx,gy,gz", () => "0,0,1,5,6,7"), recipe());
  assert.equal(recordings[0].channels, 3);
  assert.deepEqual([...recordings[0].signal.slice(0, 6)], [0, 0, 1, 0, 0, 1]);
});

test("what is missing is said, with what to do", () => {
  assert.throws(() => importable("sitting.csv", csv("time,x,y,z", () => "0,0,1"), recipe(6)),
    (wrong) => wrong instanceof NotUsable && /no column for gyroscope, which this campaign needs/.test(wrong.message));
  assert.throws(() => importable("jogging.csv", csv("time,x,y,z", () => "0,0,1"), recipe()), /it holds jogging; this campaign is about Walking and sitting/);
  assert.throws(() => importable("sitting.csv", "", recipe()), /it holds no samples/);
  assert.throws(() => importable("sitting.csv", csv("time,x,y,z", () => "a,b,c"), recipe()), /It needs a time, x, y and z in each row\. 100 rows were left out: not a number/);
  assert.throws(() => importable("sitting.csv", csv("time,x,y,z", () => "0,0,1", 1), recipe()), /too few samples of sitting/);
});
