// Nothing is trained for a round before the owner says what: a round is sent once.
import assert from "node:assert/strict";
import { test } from "node:test";

import { PhoneTrainer } from "#web/phone/app/trainer.js";
import { NothingToContribute } from "#web/phone/protocol/errors.js";
import { speakAs } from "../speak.js";

await speakAs();

/** A trainer with recordings by name, whose worker counts them. @param {string[]} ids @param {string[] | null} said */
function trainer(ids, said) {
  const kept = /** @type {Record<string, unknown>} */ ({ keys: { who: "me" }, contribution: said && { ids: said, at: 1 } });
  const store = { listRecordings: async () => ids.map((id) => ({ id })), get: async (/** @type {string} */ _task, /** @type {string} */ key) => kept[key] ?? undefined };
  const made = new PhoneTrainer(/** @type {any} */ (store), "task", () => {});
  made.known = { training: {}, shares: /** @type {any} */ ({ shape: [], maxSamples: 100 }) };
  made.worker = /** @type {any} */ ({
    prepare: async (/** @type {any} */ { recordings }) => ({ train: recordings.length }),
    train: async (/** @type {any} */ { recordings }) => ({ weights: new Float64Array(1), samples: recordings.length }),
  });
  return made;
}

const train = (/** @type {PhoneTrainer} */ one) => one.train(new Float64Array(1), {}, 1);

test("recordings alone are not sent", async () => {
  const one = trainer(["a", "b"], null);
  await assert.rejects(train(one), (wrong) => wrong instanceof NothingToContribute && /waits for your word/.test(wrong.message));
  assert.equal((await one.windows())?.train, 2, "the page may tell how much there would be");
});

test("what the owner said is trained on in every round, and nothing that came later", async () => {
  const one = trainer(["a", "b", "c", "d unfinished"], ["a", "c"]);
  assert.equal((await train(one)).samples, 2);
  assert.equal((await train(one)).samples, 2);
});

test("a recording that was deleted after the word is not missed", async () => {
  assert.equal((await train(trainer(["a"], ["a", "b"]))).samples, 1);
  await assert.rejects(train(trainer(["c"], ["a", "b"])), NothingToContribute);
});
