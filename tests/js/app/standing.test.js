// What a campaign's page says of each state a campaign can be in: it must be true, and say what to do.
import assert from "node:assert/strict";
import { before, test } from "node:test";

import { standingOf } from "#web/phone/app/standing.js";
import { speakAs } from "../speak.js";

before(() => speakAs());

const IDLE = { kind: "idle", round: null, done: 0, of: 0, why: null };
const DEFINITION = { settings: { rounds: 5, min_participants: 6, budget: null }, rounds_until: 1.9e9, plan: { start_with: 20 } };

const PAID = {
  definition: { ...DEFINITION, settings: { ...DEFINITION.settings, budget: "36.00" } }, claim: { state: "later", until: 2e9 }, payTo: { asked: true, to: null },
};

/** @param {object} changes @param {boolean} [reached] */
const standing = (changes, reached = true) => standingOf(/** @type {any} */ ({
  phase: "joined", state: "running", now: IDLE, rounds: [], definition: DEFINITION, enrolled: null, next: null, recordings: 3, contributed: 3,
  claim: { state: "later" }, payTo: { asked: false, to: null }, ...changes,
}), reached);

/** @param {string} mine @param {string} [state] @param {number} [number] */
const round = (mine, state = "open", number = 2) => ({ number, state, mine, until: null });

for (const [name, words, changes, act] of /** @type {[string, RegExp, object, (string | null)?][]} */ ([
  ["the first round is waited for with a count and a time", /^The first round begins on 14 Nov 2026.*12 people of at least 20/s, { next: 1_794_636_000, enrolled: 12 }],
  ["without a time, the count is said", /^Waiting for the first round\. 20 people have joined: enough/, { enrolled: 20 }],
  ["whoever has recorded nothing is asked to, before a round", /Record now/, { recordings: 0, contributed: null, enrolled: 20 }, "record"],
  ["and in one", /^Round 2 of 5 is open: record to take part/, { rounds: [round("none")], recordings: 0, contributed: null }, "record"],
  ["what was recorded waits for a word", /Nothing has been sent/, { contributed: null }, "record"],
  ["too little data asks for more", /record to take part/, { rounds: [round("nothing")] }, "record"],
  ["what is sent is said, whatever was noted before", /^Your contribution to round 2 of 5 is being sent/, { rounds: [round("sending")] }],
  ["what happens now comes before the round", /learns from your recordings for round 2/, { rounds: [round("none")], now: { ...IDLE, kind: "training", round: 2 } }],
  ["an open round takes part by itself", /takes part by itself/, { rounds: [round("none")] }],
  ["a contribution that arrived leaves nothing to do", /has arrived\. There is nothing to do now/, { rounds: [round("arrived")] }],
  ["while it is added up", /has arrived\. All contributions are being added up/, { rounds: [round("arrived", "closed")] }],
  ["a late one", /arrived after the round had closed/, { rounds: [round("late", "closed")] }],
  ["a refused one", /was not taken/, { rounds: [round("refused", "closed")] }],
  ["undrawn", /Others were drawn.*may be drawn later/, { rounds: [round("undrawn")] }],
  ["a round that closed without this phone", /closed without a contribution/, { rounds: [round("nothing", "closed")] }],
  ["between two rounds", /^The next round begins on/, { rounds: [round("arrived", "rewarded")], next: 1_794_636_000 }],
  ["between two without a plan", /^The next round begins soon/, { rounds: [round("arrived", "rewarded")] }],
  ["after the last round", /^The last round is over. Say now.*where to be paid.*Open this page again after.*before/, { rounds: [round("arrived", "rewarded", 5)], ...PAID }],
  ["in the last round", /has arrived. .*Open this page again after.*before/, { rounds: [round("arrived", "open", 5)], ...PAID, payTo: { asked: true, to: "x" } }],
  ["in the last round of one that pays nothing", /has arrived. .*You may close this page. Thank you/, { rounds: [round("arrived", "open", 5)] }],
  ["the end with pay", /ended.*get paid/, { phase: "ended", claim: { state: "due" } }, "earnings"],
  ["the end with a claim that says where to", /ended.*what became of it/, { phase: "ended", claim: { state: "claimed" }, payTo: { asked: true, to: "x" } }, "earnings"],
  ["the end with a claim that does not", /ended.*get paid/, { phase: "ended", claim: { state: "claimed" }, payTo: { asked: true, to: null } }, "earnings"],
  ["the end when it is too late", /ended.*what became of it/, { phase: "ended", claim: { state: "expired" } }, "earnings"],
  ["the end without", /ended\. Thank you/, { phase: "ended", claim: { state: "none" } }],
  ["left", /^You have left/, { phase: "left" }],
  ["paused", /paused/, { state: "paused", rounds: [round("sending")] }],
  ["another tab", /Another tab/, { now: { ...IDLE, kind: "elsewhere" } }],
  ["withdrawn", /^You have withdrawn.*stays there/, { phase: "left", withdrawn: { deleted: [], standing: [1] } }],
  ["replaced", /^Another phone has taken/, { phase: "left", stopped: "replaced", replaced: true }],
  ["stopped for good", /no further part/, { stopped: "two records", phase: "left" }],
])) {
  test(name, () => {
    const found = standing(changes);
    assert.match(`${found.text} ${found.more}`, words);
    assert.equal(found.act, act ?? null);
  });
}

test("without a connection nothing is said to be sent", () => {
  const sending = { rounds: [round("sending")], now: { ...IDLE, kind: "sending", round: 2, done: 5, of: 9 } };
  assert.match(standing(sending).text, /is being sent/);
  assert.match(standing(sending, false).text, /is sent when the connection is back/);
  const said = standing({ rounds: [round("none")] }, false); // before it was trained
  assert.match(said.text, /is kept, and is sent when the connection is back/);
  assert.equal(said.act, null);
});
