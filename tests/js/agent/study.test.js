// Consent, withdrawal, and another phone in this one's place.
import assert from "node:assert/strict";
import { test } from "node:test";

import { SECRET } from "#web/phone/agent/export.js";
import { view } from "#web/phone/agent/state.js";
import { ConsentMissing, Replaced, ServiceUnavailable, TaskNotRunning, UploadRejected, Withdrawn } from "#web/phone/protocol/errors.js";
import { FakePhone, FakePlatform, TASK } from "./fakes.js";

/** @param {import("./fakes.js").FakeOptions} [options] */
async function joined(options) {
  const phone = new FakePhone(new FakePlatform(options));
  const agent = await phone.invited();
  await agent.look();
  await agent.agree();
  await agent.join();
  phone.platform.autoFinish = false;
  return { phone, agent, platform: phone.platform };
}

test("nobody joins without agreeing, and what was agreed to is kept with its receipt", async () => {
  const phone = new FakePhone(new FakePlatform({ consent: "2" }));
  const agent = await phone.invited();
  await agent.look();
  await assert.rejects(agent.join(), ConsentMissing);
  assert.equal(phone.platform.certified, null, "KGC was not asked");
  assert.equal(await agent.consentCopy(), null);
  await agent.agree({ language: "de" });
  await agent.join();
  const { consent } = /** @type {any} */ (await view(phone.store, TASK));
  assert.deepEqual([consent.version, consent.language], ["2", "de"]);
  assert.match(String(phone.platform.consented), /^crowdfl consent/);
  const copy = /** @type {{name: string, text: string}} */ (await agent.consentCopy());
  assert.equal(copy.name, "consent-01234567.json");
  assert.deepEqual(JSON.parse(copy.text), [phone.platform.consented, `receipt of ${phone.platform.consented}`]);
});

test("a clock that is wrong is told before joining, and the consent has the platform's time", async () => {
  const phone = new FakePhone(new FakePlatform({ consent: "2" }));
  const agent = await phone.invited();
  await agent.look();
  const now = agent.participant.context.now();
  for (const [off, told] of [[0, 0], [200, 0], [90_000, -90_000], [-90_000, 90_000]]) {
    phone.platform.now = now + off;
    assert.ok(Math.abs((await agent.entry()).ahead - told) < 60, `${off}`);
  }
  phone.platform.now = 1_700_000_000;
  await agent.agree();
  await agent.join();
  assert.equal((await view(phone.store, TASK))?.consent?.at, 1_700_000_000);
});

test("what a phone holds is written out whole, but for what is secret; and nothing stays once all is deleted", async () => {
  const { phone, agent } = await joined({ consent: "2" });
  await phone.store.addRecording(TASK, { id: "a", label: "w", times: new Float64Array([0, 0.5]), signal: new Float64Array([1, 2]), channels: 1 });
  await agent.participant.step(phone.trainer);
  await phone.store.charge("by a name", 2);
  const { name, text } = await agent.heldFile();
  assert.equal(name, "my-data-01234567.json");
  const found = JSON.parse(text);
  assert.deepEqual(found["left out, as it is secret"], ["bundle", "invitation", "keys"]);
  const names = (await phone.store.keys(TASK)).filter((one) => !SECRET.includes(one)).sort();
  assert.deepEqual(Object.keys(found.held), names);
  for (const wanted of ["certificate", "consent", "consent-receipt", "definition", "rounds/1/receipt"]) assert.ok(names.includes(wanted), wanted);
  assert.deepEqual(found.recordings[0].signal, [1, 2]);
  assert.ok(!text.includes("come"), "the invitation is a secret");
  await phone.store.forget(TASK);
  await phone.store.forgetDevice();
  assert.deepEqual([await phone.store.tasks(), [...(await phone.store.charges())]], [[], []]);
});

test("a receipt of another consent is not kept", async () => {
  const phone = new FakePhone(new FakePlatform({ consent: "2" }));
  phone.platform.instead.enrol = () => "receipt of another";
  const agent = await phone.invited();
  await agent.agree(); // before the page has looked: who has read the first screen may be as fast
  await assert.rejects(agent.join(), { name: "DocumentError" });
  assert.equal(await phone.store.has(TASK, "consent-receipt"), false);
});

test("a platform that was restored gets the consent again", async () => {
  const { phone, platform } = await joined({ consent: "2" });
  const agent = phone.open();
  await agent.participant.step(phone.trainer);
  Object.assign(platform, { consented: null, epoch: "second" });
  await agent.participant.step(phone.trainer);
  assert.notEqual(platform.consented, null);
});

test("whoever withdraws hears what is gone and what stands, is owed nothing for it, and does not come back", async () => {
  const { phone, agent, platform } = await joined();
  await agent.participant.step(phone.trainer);
  platform.finish(1);
  await agent.participant.step(phone.trainer); // reads round 1, sends to round 2
  assert.equal(await phone.store.has(TASK, "rounds/2/upload"), true);
  await phone.store.addRecording(TASK, { id: "a", label: "w", times: new Float64Array(), signal: new Float64Array(), channels: 3 });
  assert.deepEqual(await agent.withdraw(), { told: true, deleted: [2], standing: [1] });
  assert.deepEqual([await phone.store.has(TASK, "rounds/2/upload"), await phone.store.listRecordings(TASK)], [false, []]);
  assert.deepEqual((await agent.unclaimed()).owed, []);
  assert.deepEqual((await view(phone.store, TASK))?.withdrawn?.standing, [1]);
  await assert.rejects(agent.join(), Withdrawn);
  Object.assign(platform, { state: "finished" }).round(2).state = "rewarded";
  assert.equal(await phone.open().run(), "ended");
  assert.deepEqual([platform.quits, platform.paid], [1, 1]);
});

test("a withdrawal that did not arrive is told by the next run", async () => {
  const { phone, agent, platform } = await joined();
  await agent.participant.step(phone.trainer);
  platform.instead.quit = () => { throw new ServiceUnavailable("away"); };
  assert.deepEqual(await agent.withdraw(), { told: false, deleted: null, standing: null });
  delete platform.instead.quit;
  const quit = phone.open();
  await quit.participant.step(phone.trainer);
  platform.finish(1); // nobody leaves before CSP's record of what was made is read
  assert.equal(await quit.run(), "left");
  assert.deepEqual((await view(phone.store, TASK))?.withdrawn?.deleted, [1]);
});

test("a phone whose place was taken stops, says so, and claims what it earned", async () => {
  const { phone, platform } = await joined({ rounds: 2 });
  const agent = phone.open();
  await agent.participant.step(phone.trainer);
  platform.finish(1);
  platform.instead.send = platform.instead.enrol = () => { throw new Replaced("another device has taken this place"); };
  await agent.participant.step(phone.trainer);
  const found = /** @type {any} */ (await view(phone.store, TASK));
  assert.deepEqual([found.replaced, found.phase], [true, "left"]);
  assert.equal(phone.events("replaced").length, 1);
  await assert.rejects(phone.open().join(), UploadRejected);
  assert.equal(platform.quits, 0);
  platform.finish(2);
  assert.equal(await phone.open().run(), "ended");
  assert.equal(platform.paid, 1);
});

test("a phone that takes another's place joins a campaign that is full, and none that has ended", async () => {
  const phone = new FakePhone(new FakePlatform());
  phone.platform.enrolment = "full";
  const agent = await phone.invited();
  await agent.look();
  assert.equal((await agent.participant.entry(true)).closed, null);
  await agent.participant.join("come, it replaces one");
  assert.notEqual(phone.platform.certified, null);
  const late = new FakePhone(new FakePlatform());
  late.platform.enrolment = "ended";
  const other = await late.invited();
  await other.look();
  await assert.rejects(other.participant.join("come, it replaces one"), TaskNotRunning);
});
