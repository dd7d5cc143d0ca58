// What a definition becomes in the words of an invitation.
import assert from "node:assert/strict";
import { test } from "node:test";

import { formatTime } from "#web/common/format.js";
import * as about from "#web/phone/app/about.js";
import { speakAs } from "../speak.js";

await speakAs();

const TRIAL = { enrol_until: null, start_at: null, start_with: null, every: null, closes: "everyone", goal: null, unused_pay: null };

/** @param {Record<string, unknown>} [settings] @param {Record<string, unknown>} [training] @param {Record<string, unknown>} [plan] */
function definition(settings = {}, training = {}, plan = {}) {
  return /** @type {import("#web/phone/app/types.js").DefinitionBody} */ ({
    purpose: "p", terms: "t", readers: "r", language: "en", texts: {}, consent: { version: "", text: "" }, requester: "00", arrays: [], rounds_until: 1_800_000_000, claims_until: 1_800_604_800,
    settings: { rounds: 5, window: 3600, late: 0, min_participants: 6, budget: "36.00", pay: "equal", ...settings },
    plan: { ...TRIAL, ...plan },
    who: { name: "", institution: "", contact: "", approval: "", logo: "" },
    training: { labels: ["a", "b"], channels: 6, window_samples: 100, hertz: 50, ...training },
  });
}

test("sensors follow from the channels, and others than a phone's are named", () => {
  assert.match(about.sensorsOf(definition({}, { channels: 3 })), /^The accelerometer: /);
  assert.match(about.sensorsOf(definition()), /accelerometer and the gyroscope/);
  assert.match(about.sensorsOf(definition({}, { channels: 9 })), /only files can be used/);
  assert.deepEqual([3, 6, 9].map((channels) => about.recordsWithSensors(definition({}, { channels }))), [true, true, false]);
});

test("a recording of the least seconds gives a window to train on and one to test on", () => {
  for (const training of [{}, { window_samples: 50 }, { window_samples: 200, held_out: 0.5 }, { hertz: 20, held_out: 0.1 }, { held_out: 0.9 }]) {
    const { window_samples: length = 100, hertz = 50, held_out: held = 0.3 } = /** @type {Record<string, any>} */ (training);
    const samples = about.leastSeconds(definition({}, training)) * hertz;
    assert.ok(samples * (1 - held) >= length, JSON.stringify(training));
    assert.ok(samples * held - length >= length, JSON.stringify(training));
  }
});

test("the plan is told in the order in which things happen", () => {
  const words = (/** @type {Record<string, unknown>} */ plan, settings = {}) => about.durationWords(definition(settings, {}, plan)).slice(0, -1);
  assert.deepEqual(words({}), ["The first round begins once 6 people have joined.", "There are 5 rounds.",
    `The last day of rounds is ${formatTime(1_800_000_000)}.`, "A round is open for 1 hr.", "With fewer than 6 contributions by then, it stays open once more as long.", "It closes early once everyone has sent."]);
  assert.equal(words({}, { late: 600 })[3], "A round is open for 1 hr. For 10 min more, late contributions are taken.");
  assert.equal(words({}, { rounds: 1 })[1], "There is one round.");
  const study = { enrol_until: "2026-12-01T12:00:00Z", start_with: 50, every: "day at 18:00 Europe/Berlin", closes: "deadline", goal: 40 };
  const [join, first, rounds, , open, , early] = words(study);
  assert.match(join, /^You can join until .*2026/);
  assert.equal(first, "The first round begins once 50 people have joined.");
  assert.equal(rounds, "There are 5 rounds. They begin at 18:00 Europe/Berlin, one a day at most.");
  assert.deepEqual([open, early], ["A round is open for 1 hr.", "It closes early with 40 contributions; later ones are not used."]);
});

test("who holds what names no payer and no claims where there are none", () => {
  assert.match(about.heldWords(1_800_604_800, true).join(" "), /^Claims end on 22 Jan 2027.*Whoever pays: /);
  assert.doesNotMatch(about.heldWords(1_800_604_800, false).join(" "), /Whoever pays/);
  assert.doesNotMatch(about.heldWords(null, false).join(" "), /Claims end|Whoever pays/);
});

test("pay is told by rule, with its deadline; or that there is none", () => {
  assert.deepEqual(about.paymentWords(definition({ budget: null })), ["Nothing is paid for this campaign."]);
  assert.deepEqual(about.paymentWords(definition({ pay: "none" })), ["Nothing is paid for this campaign."]);
  const [amount, share, deadline] = about.paymentWords(definition());
  assert.match(amount, /^€36\.00 for each round, /);
  assert.match(share, /gets the same/);
  assert.match(deadline, /once it has been counted, until 22 Jan 2027/);
  assert.match(deadline, /After that it goes back to the requester\.$/);
  assert.match(about.paymentWords(definition({ pay: "samples" }))[2], /after the last round, until 22 Jan 2027.*Only your phone knows/);
  assert.match(about.paymentWords({ ...definition(), payer: "00" })[2], /not claimed by then is paid where you said/);
  assert.match(about.paymentWords(definition({ pay: null }))[1], /gets the same/);
  assert.match(about.paymentWords(definition({ pay: "samples" }))[1], /how much you recorded\.$/);
  assert.match(about.paymentWords(definition({ pay: "distance" }))[1], /close your update is to the average/);
});

test("what one is asked to do fits a line", () => {
  assert.equal(about.effortWords(definition()), "2 activities, about 2 minutes");
  assert.equal(about.effortWords(definition({}, { labels: ["a"] })), "1 activity, about 1 minute");
});

test("a crowd below five is called small", () => {
  assert.equal(about.isSmallCrowd(definition({ min_participants: 4 })), true);
  assert.equal(about.isSmallCrowd(definition({ min_participants: 5 })), false);
  assert.equal(about.crowdWords(definition({ min_participants: 4 })).length, 2);
});

test("noise is told with its epsilon in words and without exponents, and with that of other campaigns", () => {
  const task = definition({ epsilon: 8, delta: null, sigma: 5000, max_norm: 1, decimals: 4 });
  assert.deepEqual(about.privacyWords(definition(), 3), []);
  const [promise, noise, sum] = about.privacyWords(task, 0);
  assert.match(promise, /can hardly tell whether your data is in them: epsilon 8, .* chance of 0\.00001 /);
  assert.match(noise, /about 0\.5 times as much/);
  assert.match(sum, /add up: this phone keeps the sum/);
  assert.match(about.privacyWords(task, 3.5)[2], /with your other ones this makes 11\.5/);
  assert.match(about.privacyWords(definition({ epsilon: 20, delta: 1e-6, sigma: 50, max_norm: 1, decimals: 4 }), 0)[0], /too little to hide/);
});
