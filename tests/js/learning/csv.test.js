import assert from "node:assert/strict";
import { test } from "node:test";

import { labelOfName, readCsv, toRecordings } from "#web/phone/learning/csv.js";

import { assertNear, VECTORS } from "./vectors.js";

for (const { name, text, sensors, error, message, ...wanted } of VECTORS.csv) {
  test(`a file is ${error ? "refused" : "read"} as Python does: ${name}`, () => {
    if (error) {
      assert.throws(() => readCsv(text, name, sensors), { name: error, message });
      return;
    }
    const table = readCsv(text, name, sensors);
    assertNear(table.times, wanted.times, 1e-6);
    assertNear(table.signal, wanted.signal, 1e-6);
    assert.deepEqual(table.labels, wanted.labels);
    assert.equal(table.channels, wanted.channels);
    assert.deepEqual(Object.fromEntries(table.dropped), wanted.dropped);
    const made = toRecordings(table, 20, () => "one");
    assert.deepEqual(made.map(({ label, times }) => [label, times.length]), wanted.recordings);
  });
}

test("rotation is in 2 rad/s and acceleration in g", () => {
  const table = readCsv("time,x,y,z,gx,gy,gz\n0,0,1,0,2,4,6\n0.02,0,1,0,2,4,6\n", "turn.csv");
  const [{ signal, channels, label, times }] = toRecordings(table, 50);
  assert.deepEqual([...signal], [0, 1, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3]);
  assert.deepEqual([channels, label, [...times]], [6, "turn", [0, 0.02]]);
});

test("every recording has a name of its own", () => {
  const questions = [{ id: "pain", choices: ["No", "a little"] }];
  const asked = readCsv("time,x,y,z,label,Pain\n0,0,0,1,a,no\n1,0,0,1,a,no\n2,0,0,1,a,A little\n3,0,0,1,a,?\n", "any.csv", [], questions);
  assert.deepEqual(toRecordings(asked, 1).map(({ answers, times }) => [answers, times.length]), [[{ pain: "No" }, 2], [{ pain: "a little" }, 1], [{}, 1]]);
  assert.throws(() => readCsv("time,x,y,z\n0,0,0,1\n", "walking.csv", [], questions), { name: "DataMalformed", message: /'pain'/ });
  const table = readCsv("time,x,y,z,label\n0,0,0,1,a\n1,0,0,1,b\n", "any.csv");
  assert.equal(new Set(toRecordings(table, 50).map(({ id }) => id)).size, 2);
});

test("a name's words up to its first number are the label", () => {
  const names = ["Walking_2024-05-01_10-22", "going_upstairs_3", "sit", "run (2)", "2024", " Jog - "];
  assert.deepEqual(names.map(labelOfName), ["walking", "going_upstairs", "sit", "run", "", "jog"]);
});

test("a field beyond all use is refused", () => {
  assert.throws(() => readCsv(`time,x,y,z\n0,0,0,"${"1".repeat(200_000)}"\n`, "big.csv"), { name: "DataMalformed", message: /not CSV text/ });
});
