// What a campaign with noise costs a person: its whole epsilon at the first upload, whatever becomes of the rounds.

import assert from "node:assert/strict";
import { test } from "node:test";

import { view } from "#web/phone/agent/state.js";
import { epsilonOf } from "#web/phone/protocol/accounting.js";
import { FakePhone, FakePlatform, Fuse, TASK, TabClosed } from "./fakes.js";

const NOISE = { epsilon: 8, delta: null, sigma: 20_000, max_norm: 1, decimals: 4 };
const after = (/** @type {number} */ opened) => epsilonOf((opened * 1e8) / (2 * 4e8), 1e-5);

/** A phone whose first round is open. @param {import("./fakes.js").FakeOptions} [options] */
async function joined(options = {}) {
  const phone = new FakePhone(new FakePlatform({ settings: NOISE, ...options }));
  phone.platform.autoFinish = false;
  const agent = await phone.invited();
  await agent.join();
  const noise = async () => (await view(phone.store, TASK))?.noise;
  return { phone, platform: phone.platform, noise, step: () => agent.participant.step(phone.trainer) };
}

for (const step of [undefined, "fedavgm"]) {
  test(`a campaign is charged whole at the first upload, and opened rounds spend of it; server step: ${step}`, async () => {
    const { platform, noise, step: look } = await joined({ step });
    assert.deepEqual(await noise(), { epsilon: 8, charged: false, spent: 0, others: 0 });
    await look();
    assert.deepEqual(await noise(), { epsilon: 8, charged: true, spent: 0, others: 0 });
    platform.finish(1);
    await look();
    platform.finish(2);
    await look();
    assert.deepEqual(await noise(), { epsilon: 8, charged: true, spent: after(2), others: 0 });
  });
}

test("who comes later is charged as much, and has spent less", async () => {
  const { platform, noise, step } = await joined();
  platform.finish(1);
  await step();
  platform.finish(2);
  await step();
  assert.deepEqual(await noise(), { epsilon: 8, charged: true, spent: after(1), others: 0 });
});

test("a void round and a cancelled campaign stay charged, and have spent nothing", async () => {
  const { platform, noise, step } = await joined();
  await step();
  platform.finish(1, "aborted");
  platform.state = "cancelled";
  await step();
  assert.deepEqual(await noise(), { epsilon: 8, charged: true, spent: 0, others: 0 });
});

test("a campaign without noise is charged nothing, and shows none", async () => {
  const { phone, noise, step } = await joined({ settings: {} });
  await step();
  assert.equal(await noise(), null);
  assert.equal((await phone.store.charges()).size, 0);
});

test("what was charged stays when the campaign is forgotten, and counts for the next one, without its name", async () => {
  const { phone, step, noise } = await joined();
  await step();
  await phone.store.charge("of another one", 2.5);
  assert.equal((await noise())?.others, 2.5);
  await phone.store.forget(TASK);
  assert.deepEqual([...(await phone.store.charges()).values()].sort(), [2.5, 8]);
  assert.ok(!(await phone.store.keys("")).join().includes(TASK));
  assert.deepEqual(await phone.store.tasks(), []);
});

test("a tab that closes while it uploads charges once, and before the upload is kept", async () => {
  for (let at = 1; ; at += 1) {
    const phone = new FakePhone(new FakePlatform({ settings: NOISE }));
    phone.platform.autoFinish = false;
    const agent = await phone.invited();
    await agent.join();
    const ended = await phone.open(new Fuse(at)).participant.step(phone.trainer).then(() => true, (/** @type {unknown} */ why) => {
      assert.ok(why instanceof TabClosed, String(why));
      return false;
    });
    if (await phone.store.has(TASK, "rounds/1/upload")) assert.equal((await phone.store.charges()).size, 1);
    await phone.open().participant.step(phone.trainer);
    assert.deepEqual([...(await phone.store.charges()).values()], [8]);
    if (ended) return;
  }
});
