import assert from "node:assert/strict";
import { test } from "node:test";

import { speak } from "#web/common/text.js";
import { bytes, duration, formatTime, formatSeconds, money, percent } from "#web/common/format.js";

test("money is exact, with two decimals or as many as it needs", () => {
  const said = new Map([[0, "0.00"], [1, "0.000001"], [1_250_000, "1.25"], [1_200_000, "1.20"], [36_000_000, "36.00"],
    [1_234_500, "1.2345"], [-500_000, "-0.50"], [-1, "-0.000001"]]);
  for (const [amount, text] of said) {
    assert.equal(money(amount), text);
    assert.equal(money(BigInt(amount)), text);
  }
  assert.equal(money(123_456_789_012_345_678_901n), "123456789012345.678901");
});

test("money that is not an integer is refused", () => {
  for (const amount of [1.5, NaN, Infinity, 2 ** 53]) assert.throws(() => money(amount), TypeError);
});

test("a moment is the same from seconds and from milliseconds", () => {
  assert.equal(formatTime(1_789_000_000), formatTime(1_789_000_000_000));
  assert.match(formatTime(1_789_000_000), /^\d{1,2} Sept? 2026, \d\d:\d\d$/);
  assert.match(formatSeconds(1_789_000_000), /^\d{1,2} Sept? 2026, \d\d:\d\d:40$/);
});

test("a number that is no moment is told as unknown", () => {
  for (const when of [1e308, -1e308, 9_999_999_999_999_999, NaN, Infinity]) assert.equal(formatTime(when), "–");
});

test("a duration names its two largest units", () => {
  const said = new Map([[0, "0 sec"], [0.25, "0.3 sec"], [9.96, "10 sec"], [59.4, "59 sec"], [60, "1 min"], [61, "1 min 1 sec"],
    [3599.6, "1 hr"], [7500, "2 hr 5 min"], [7529, "2 hr 5 min"], [86_400, "1 day"], [90_000, "1 day 1 hr"],
    [200_000, "2 days 8 hr"], [172_799, "2 days"], [-75, "-1 min 15 sec"]]);
  for (const [seconds, text] of said) assert.equal(duration(seconds), text);
});

test("bytes count in thousands", () => {
  const said = new Map([[0, "0 bytes"], [1, "1 byte"], [999, "999 bytes"], [1000, "1 kB"], [1536, "1.5 kB"], [262_144, "262 kB"],
    [999_499, "999 kB"], [999_500, "1 MB"], [1e6, "1 MB"], [2.5e9, "2.5 GB"], [5e15, "5,000 TB"]]);
  for (const [count, text] of said) assert.equal(bytes(count), text);
});

test("a share is a percentage with one decimal", () => {
  assert.equal(percent(0.875), "87.5%");
  assert.equal(percent(1), "100.0%");
});

test("what is not known is a dash, never NaN", () => {
  for (const shown of [formatTime, duration, bytes, percent]) {
    for (const value of [null, undefined, NaN, Infinity]) assert.equal(shown(value), "–");
  }
});

test("numbers and moments are written as their reader writes them", () => {
  speak("de");
  assert.equal(percent(0.875), "87,5\u00a0%");
  assert.match(duration(90_000), /^1 Tag 1 Std/);
  assert.match(formatTime(1_789_000_000), /^\d{2}\.\d{2}\.2026, \d\d:\d\d$/);
  speak("zh");
  assert.match(formatTime(1_789_000_000), /^2026年9月\d{1,2}日 \d\d:\d\d$/);
  speak("en");
});
