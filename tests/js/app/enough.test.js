// A round is sent once: a phone waits for all activities, or for its owner's word.
import assert from "node:assert/strict";
import { test } from "node:test";

import { notRecorded, waitingWords } from "#web/phone/app/enough.js";
import { PhoneTrainer } from "#web/phone/app/trainer.js";
import { NothingToContribute } from "#web/phone/protocol/errors.js";

/** @param {Record<string, number>} counts */
const labels = (counts) => Object.entries(counts).map(([label, train]) => ({ label, train }));

test("an activity is missing only beside others that were recorded", () => {
  assert.deepEqual(notRecorded(labels({ sitting: 12, walking: 0, stairs: 0 })), ["walking", "stairs"]);
  assert.deepEqual(notRecorded(labels({ sitting: 12, walking: 1 })), []);
  assert.deepEqual(notRecorded(labels({ sitting: 0, walking: 0 })), [], "then there is nothing at all, which is told otherwise");
  assert.match(waitingWords(["walking", "stairs"]), /recorded walking, stairs too/);
});

/** A trainer with recordings by name, whose worker counts them. @param {string[]} ids @param {string[]} [said] Keys of the store. */
function trainer(ids, said = []) {
  const store = { listRecordings: async () => ids.map((id) => ({ id, label: id.split(" ")[0] })), has: async (/** @type {string} */ _task, /** @type {string} */ key) => said.includes(key), get: async () => ({ who: "me" }) };
  const made = new PhoneTrainer(/** @type {any} */ (store), "task", () => {});
  made.known = { training: {}, shares: /** @type {any} */ ({ shape: [], maxSamples: 100 }) };
  const count = (/** @type {any} */ { recordings }, /** @type {string} */ label) => recordings.filter((/** @type {any} */ one) => one.label === label).length;
  made.worker = /** @type {any} */ ({
    prepare: async (/** @type {any} */ data) => ({ labels: ["sitting", "walking"].map((label) => ({ label, train: count(data, label) })) }),
    train: async (/** @type {any} */ { recordings }) => ({ weights: new Float64Array(1), samples: recordings.length }),
  });
  return made;
}

const train = (/** @type {PhoneTrainer} */ one) => one.train(new Float64Array(1), {}, 1);

test("nothing is trained with the first activity alone", async () => {
  await assert.rejects(train(trainer(["sitting 1"])), (wrong) => wrong instanceof NothingToContribute && /recorded walking too/.test(wrong.message));
  assert.equal((await train(trainer(["sitting 1", "walking 1"]))).samples, 2);
});

test("an owner who cannot record an activity takes part without it", async () => {
  assert.equal((await train(trainer(["sitting 1"], ["enough"]))).samples, 1);
});

test("a recording that is still being made is left out", async () => {
  const one = trainer(["sitting 1", "walking 1", "walking 2 unfinished"]);
  one.underWay.add("walking 2 unfinished");
  assert.equal((await train(one)).samples, 2);
  one.underWay.add("walking 1");
  await assert.rejects(train(one), NothingToContribute);
});
