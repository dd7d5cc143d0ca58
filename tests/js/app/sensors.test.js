// What becomes of a sensor's numbers.
import assert from "node:assert/strict";
import { test } from "node:test";

import { levelOf, missingSensors, sensorNames, trimmed } from "#web/phone/app/sensors.js";

const definition = (/** @type {Record<string, unknown>} */ training) => /** @type {any} */ ({ training });

test("the first and last seconds of a recording are left out, by the sensor's own times", () => {
  const times = Float64Array.from({ length: 101 }, (_, at) => 50 + at / 10);
  const signal = Float64Array.from({ length: 202 }, (_, at) => at >> 1);
  const kept = trimmed({ times, signal, channels: 2 }, 2);
  assert.equal(kept.times[0], 0);
  assert.ok(Math.abs(kept.times[kept.times.length - 1] - 6) < 1e-9);
  assert.deepEqual([kept.signal[0], kept.signal[1], kept.signal.at(-1), kept.signal.length], [20, 20, 80, 2 * kept.times.length]);
  for (const count of [0, 1, 20, 39]) {
    const short = trimmed({ times: times.slice(0, count), signal: signal.slice(0, 2 * count), channels: 2 }, 2);
    assert.deepEqual([short.times.length, short.signal.length], [0, 0], `${count} samples`);
  }
});

test("loudness is a level below the loudest possible, and silence is finite", () => {
  const tone = Float32Array.from({ length: 480 }, (_, at) => Math.sin((2 * Math.PI * at) / 48));
  assert.ok(Math.abs(levelOf(tone) + 3.01) < 0.01);
  assert.ok(Math.abs(levelOf(tone.map((value) => value / 10)) + 23.01) < 0.01);
  assert.equal(levelOf(new Float32Array(480)), -100);
});

test("a task's sensors have names, and those that a browser lacks are known before joining", () => {
  assert.deepEqual(sensorNames(definition({ channels: 3 })), ["accelerometer"]);
  assert.deepEqual(sensorNames(definition({ sensors: ["speed", "loudness"] })), ["accelerometer", "gyroscope", "speed", "loudness"]);
  assert.deepEqual(missingSensors(definition({ channels: 3, sensors: ["loudness"] })), ["accelerometer", "loudness"]);
});
