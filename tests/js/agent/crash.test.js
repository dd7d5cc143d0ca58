// A tab that is closed at any point, before or after any write and any request, leaves what the next one needs.

import assert from "node:assert/strict";
import { test } from "node:test";

import { FakePhone, FakePlatform, Fuse, TASK, TabClosed } from "./fakes.js";
import { view } from "#web/phone/agent/state.js";

/** @param {FakePhone} phone */
async function end(phone) {
  const shown = await view(phone.store, TASK);
  return JSON.stringify([shown?.phase, shown?.claim.state, shown?.claim.claimed.toString(),
    shown?.rounds.map((one) => [one.number, one.state, one.mine, one.reward?.toString(), one.accuracyAfter])]);
}

/** One tab after the other, each closed at its point; the last one runs to its end. @param {readonly number[]} closedAt */
async function play(closedAt) {
  const phone = new FakePhone(new FakePlatform({ rounds: 3 }));
  await phone.invited();
  let points = 0;
  for (const at of [...closedAt, Infinity]) {
    const fuse = new Fuse(at);
    points = 0;
    try {
      await phone.open(fuse).run();
      points = fuse.points;
    } catch (error) {
      if (!(error instanceof TabClosed)) throw error;
    }
  }
  return { phone, points };
}

/** @param {FakePhone} phone */
function requireOneBodyEach(phone) {
  const { platform } = phone;
  for (const [number, bodies] of platform.seen) {
    assert.equal(bodies.size, 1, `round ${number} was sent with ${bodies.size} bodies`);
    assert.deepEqual([...bodies], [platform.held.get(number)]);
  }
  const seeds = [...platform.held.values()].map((body) => JSON.parse(body).seed);
  assert.equal(new Set(seeds).size, seeds.length, "a seed served two rounds");
  assert.equal(new Set([...platform.held.values()].map((body) => JSON.parse(body).who)).size, 1, "the keys have changed");
  assert.equal(platform.claims.size, 1, "claims with other contents were sent");
}

test("a tab closed at any point leaves a state from which the next one comes to the same end", async () => {
  const whole = await play([]);
  const wanted = await end(whole.phone);
  assert.match(wanted, /"ended","claimed","600"/);
  assert.ok(whole.points > 80, `only ${whole.points} points`);
  for (let at = 1; at <= whole.points; at++) {
    const { phone } = await play([at]);
    assert.equal(await end(phone), wanted, `closed at point ${at}`);
    requireOneBodyEach(phone);
  }
});

test("tabs that are closed again and again come to the same end", async () => {
  const wanted = await end((await play([])).phone);
  for (let first = 3; first <= 60; first += 7) {
    for (let second = 1; second <= 60; second += 5) {
      const { phone } = await play([first, second, 9]);
      assert.equal(await end(phone), wanted, `closed at ${first}, ${second}, 9`);
      requireOneBodyEach(phone);
    }
  }
});

test("a round is not trained for again once its upload is durable", async () => {
  const { points } = await play([]);
  for (let at = 1; at <= points; at++) {
    const phone = new FakePhone(new FakePlatform({ rounds: 2 }));
    await phone.invited();
    await phone.open(new Fuse(at)).run().catch(() => {});
    const before = phone.trainer.trained.length;
    const durable = (await Promise.all([1, 2].map((number) => phone.store.has(TASK, `rounds/${number}/trained`))))
      .map((there, place) => (there ? place + 1 : 0)).filter(Boolean);
    await phone.open().run();
    const again = phone.trainer.trained.slice(before);
    assert.deepEqual(again, [1, 2].filter((number) => !durable.includes(number)), `closed at point ${at}`);
  }
});

test("a tab closed while its owner leaves has left when the next one looks", async () => {
  for (let at = 1; at < 12; at++) {
    const phone = new FakePhone(new FakePlatform({ rounds: 3 }));
    phone.platform.autoFinish = false;
    await (await phone.invited()).join();
    await phone.open(new Fuse(at)).leave().catch(() => {});
    if (!(await phone.store.has(TASK, "left"))) continue; // closed before anything was written: the owner sees that
    phone.platform.autoFinish = true;
    assert.equal(await phone.open().run(), "left");
    assert.ok(phone.platform.quits >= 1);
    assert.deepEqual(phone.trainer.trained, []);
  }
});
