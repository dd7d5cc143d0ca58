// An SP may say anything about where a task stands; only what can be is acted on, and kept.

import assert from "node:assert/strict";
import { test } from "node:test";

import { requireStatus } from "#web/phone/agent/status.js";
import { ServiceUnavailable } from "#web/phone/protocol/errors.js";
import { FakePhone, FakePlatform, TASK } from "./fakes.js";

/** @param {unknown} entry */
const withRound = (entry) => /** @type {any} */ ({ state: "running", rounds: [entry] });
const ROUND = { number: 1, state: "open", last_call: 10, uploads: 0 };

test("what an honest platform says is taken as it is", () => {
  const honest = { state: "finished", ended: { why: "cancelled", by: "sp", reason: "" }, claims_extended: "crowdfl claims-extension", rounds: [ROUND, { ...ROUND, number: 3, uploads: undefined }] };
  assert.equal(requireStatus(honest, 3), honest);
});

test("a round that the task cannot have is refused", () => {
  const numbers = [0, -1, 4, 1.5, 1e308, "1", "1/reward", "../../x", null, undefined, {}, [1], NaN];
  const wrong = [...numbers.map((number) => ({ ...ROUND, number })), null, "open", { ...ROUND, last_call: 1e308 }, { ...ROUND, last_call: "x" },
    { ...ROUND, state: 5 }, { ...ROUND, state: "x".repeat(5000) }, { ...ROUND, uploads: "many" }];
  for (const entry of wrong) assert.throws(() => requireStatus(withRound(entry), 3), ServiceUnavailable, JSON.stringify(entry));
  assert.throws(() => requireStatus({ state: "running", rounds: [ROUND, ROUND] }, 3), ServiceUnavailable);
});

test("a last day of claims or a reason that cannot be is refused", () => {
  for (const more of [{ claims_extended: 5 }, { claims_extended: "x".repeat(2001) }, { ended: {} }, { ended: { why: "cancelled", by: "somebody", reason: "" } }, { ended: { why: "cancelled by", by: "sp", reason: "" } },
    { ended: { why: "cancelled", by: "sp", reason: "x".repeat(1e6) } }, { ended: "x".repeat(1e6) },
    { next_round: 1e308 }, { next_round: "soon" }, { enrolment: {} }, { come_back: -1 }, { come_back: "soon" }]) {
    assert.throws(() => requireStatus(/** @type {any} */ ({ state: "finished", rounds: [], ...more }), 3), ServiceUnavailable, JSON.stringify(more).slice(0, 60));
  }
});

test("no invented round is trained for, sent or kept", async () => {
  const phone = new FakePhone(new FakePlatform({ rounds: 2 }));
  phone.platform.autoFinish = false;
  const agent = await phone.invited();
  await agent.join();
  phone.platform.rounds = [{ ...ROUND, number: 1 }, { ...ROUND, number: 3 }];
  await assert.rejects(agent.participant.step(phone.trainer), ServiceUnavailable);
  phone.platform.rounds = /** @type {any} */ ([{ ...ROUND, number: "1/reward" }]);
  await assert.rejects(agent.participant.step(phone.trainer), ServiceUnavailable);
  assert.deepEqual(phone.trainer.trained, []);
  assert.deepEqual(await phone.store.keys(TASK, "rounds/"), []);
});
