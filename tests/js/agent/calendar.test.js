// The calendar file: times from the plan, lines as RFC 5545 wants them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { calendarOf, openings } from "#web/phone/agent/calendar.js";
import { TASK } from "./fakes.js";

const PLAN = { enrol_until: null, start_at: null, start_with: null, every: null, closes: "deadline", goal: null, unused_pay: null };
const body = (/** @type {object} */ plan, rounds = 3) => ({ plan: { ...PLAN, ...plan }, settings: { rounds, window: 7200 } });
const at = (/** @type {string} */ moment) => Date.parse(moment) / 1000;
const moments = (/** @type {any} */ given, /** @type {any} */ when) =>
  openings(given, when).map((one) => `${one.round} ${new Date(one.at * 1000).toISOString()}`);

test("rounds at a time of day follow the clocks of their place", () => {
  const daily = body({ every: "day at 18:00 Europe/Berlin" });
  assert.deepEqual(moments(daily, { now: at("2026-10-23T16:30:00Z") }),
    ["1 2026-10-24T16:00:00.000Z", "2 2026-10-25T17:00:00.000Z", "3 2026-10-26T17:00:00.000Z"]);
  assert.deepEqual(moments(body({ every: "day at 18:00" }, 1), { now: at("2026-10-23T18:00:00Z") }), ["1 2026-10-23T18:00:00.000Z"]);
  assert.deepEqual(moments(body({ every: "day at 08:00 Asia/Shanghai", start_at: "2026-12-01T00:30:00+01:00" }, 2), { now: at("2026-10-23T18:00:00Z") }),
    ["1 2026-12-01T00:00:00.000Z", "2 2026-12-02T00:00:00.000Z"]);
});

test("rounds at a pace count from the start, from what the platform says, and from those that were", () => {
  const paced = body({ every: 86_400, start_at: "2026-12-01T18:00:00+01:00" });
  assert.deepEqual(moments(paced, { now: at("2026-11-01T00:00:00Z") }),
    ["1 2026-12-01T17:00:00.000Z", "2 2026-12-02T17:00:00.000Z", "3 2026-12-03T17:00:00.000Z"]);
  assert.deepEqual(moments(paced, { now: at("2026-12-02T00:00:00Z"), next: at("2026-12-02T17:05:00Z"), done: 1 }),
    ["2 2026-12-02T17:05:00.000Z", "3 2026-12-03T17:05:00.000Z"]);
  assert.deepEqual(moments(body({ start_at: "2026-12-01T18:00:00+01:00" }), { now: 0 }), ["1 2026-12-01T17:00:00.000Z"]);
});

test("a plan without times makes no file", () => {
  for (const plan of [{}, { every: 3600 }, { start_at: "2020-01-01T00:00:00Z" }, { every: "day at 18:00 Mars/Base" }]) {
    assert.equal(calendarOf(body(plan), TASK, { now: at("2026-10-23T00:00:00Z"), texts: { title: "t", body: "b" } }), null);
  }
});

test("the file keeps to RFC 5545: lines, folds, escapes, and the same names when it is made again", () => {
  const texts = { title: "Round {round} of {rounds}; now, \\ here", body: `${"每天二十秒，".repeat(20)}\nEND:VEVENT\r\nthanks\u0007` };
  const options = { now: at("2026-10-23T00:00:00Z"), texts };
  const file = String(calendarOf(body({ every: "day at 18:00" }), TASK, options));
  assert.ok(file.endsWith("END:VCALENDAR\r\n") && !/[^\r]\n/.test(file));
  for (const line of file.split("\r\n")) assert.ok(new TextEncoder().encode(line).length <= 75, line);
  const lines = file.replaceAll("\r\n ", "").split("\r\n");
  assert.equal(lines.filter((line) => line === "END:VEVENT").length, 3);
  assert.ok(lines.includes("SUMMARY:Round 2 of 3\\; now\\, \\\\ here"));
  assert.ok(lines.some((line) => line === `DESCRIPTION:${"每天二十秒，".repeat(20)}\\nEND:VEVENT\\nthanks`));
  assert.ok(lines.includes("DTSTART:20261023T180000Z") && lines.includes("DTEND:20261023T200000Z"));
  assert.equal(calendarOf(body({ every: "day at 18:00" }), TASK, options), file);
  const later = String(calendarOf(body({ every: "day at 18:00" }), TASK, { ...options, done: 1 }));
  assert.deepEqual(later.match(/UID:.*/g), file.match(/UID:.*/g)?.slice(1));
});

test("a task that pays has an event to claim in time, also where no round is left", () => {
  const until = at("2026-12-20T00:00:00Z");
  const paid = { ...body({ every: null }), rounds_until: at("2026-11-20T00:00:00Z"), claims_until: until };
  const texts = { title: "t", body: "b", claim: { title: "claim, before", body: "say where" } };
  const file = String(calendarOf(paid, TASK, { now: at("2026-12-01T00:00:00Z"), done: 99, texts }));
  assert.match(file, /DTSTART:20261215T000000Z\r\nDTEND:20261220T000000Z\r\nSUMMARY:claim\\, before/);
  assert.equal(file.split("BEGIN:VEVENT").length, 2);
  assert.equal(calendarOf(paid, TASK, { now: until, done: 99, texts }), null, "too late");
});
