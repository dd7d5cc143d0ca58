// SP says one thing of an upload, and CSP has signed another: the phone goes by what is signed, tells its owner, and keeps both.

import assert from "node:assert/strict";
import { test } from "node:test";

import { view } from "#web/phone/agent/state.js";
import { NotReady, Replaced, RewardOutOfRange, TooLate } from "#web/phone/protocol/errors.js";
import { FakePhone, FakePlatform, ROUNDS_UNTIL, TASK, protocol, receiptOf, roundsClaimed, until } from "./fakes.js";

/** @param {unknown} value */
const asBytes = (value) => new TextEncoder().encode(JSON.stringify(value));

/** A phone whose first round is open. @param {import("./fakes.js").FakeOptions} [options] */
async function joined(options = { rounds: 8 }) {
  const phone = new FakePhone(new FakePlatform(options));
  phone.platform.autoFinish = false;
  const agent = await phone.invited();
  await agent.join();
  const { who } = await agent.participant.context.keys();
  const step = () => agent.participant.step(phone.trainer);
  /** CSP's record of every round. @param {Record<string, unknown>} signed */
  const signs = (signed) => { phone.platform.instead.average = (_task, number) => asBytes({ number, ...signed }); };
  return { phone, agent, person: agent.participant, step, platform: phone.platform, who, signs };
}

const REJECTS = { accepted: [] };

/** SP's answers to an upload that it has taken, and the code that is kept of each. @type {[string, (phone: FakePhone, who: string) => void][]} */
const DENIALS = [
  ["refused", ({ platform }) => { platform.instead.send = () => { throw new TooLate("the round has closed"); }; }],
  ["refused", ({ platform }) => { platform.instead.send = () => { throw new Replaced("another device is in your place"); }; }],
  ["unused", ({ platform }, who) => {
    platform.instead.send = (_task, round, _keys, upload) => receiptOf(round, who, new TextDecoder().decode(upload), true);
  }],
];

for (const [said, deny] of DENIALS) {
  test(`an upload that SP said was ${said} and that CSP's record rejects stops the phone`, async () => {
    const { phone, step, platform, who, signs } = await joined();
    deny(phone, who);
    signs(REJECTS);
    for (let number = 1; number < 8; number++) {
      await step();
      platform.finish(number);
      await step();
    }
    assert.deepEqual(phone.trainer.trained, [1]);
    assert.deepEqual(phone.events("words differ"), [{ round: 1, said, signed: "rejected" }]);
    assert.deepEqual(phone.events("upload rejected"), [{ round: 1, why: "broken_seal" }]);
    assert.equal(await phone.store.has(TASK, "stopped"), true);
  });

  test(`an upload that SP said was ${said} and that CSP's record accepts is paid for, once`, async () => {
    const { phone, person, step, platform, who, signs } = await joined({ rounds: 1 });
    deny(phone, who);
    signs({ accepted: [who], pays: 700 });
    platform.instead.reward = () => { throw new NotReady("there is none"); };
    await step();
    platform.finish(1);
    await step();
    assert.deepEqual(phone.events("words differ"), [{ round: 1, said, signed: "accepted" }]);
    assert.deepEqual([...(await person.kept.rewards())], [[1, 700n]]);
    platform.instead.claim = (_task, claim) => {
      assert.deepEqual(JSON.parse(new TextDecoder().decode(claim)), { rounds: [1], unused: [], counter: 0 });
      return { paid: new Map([[1, 700n]]), unused: new Map(), disputed: new Map() };
    };
    assert.equal(await person.claim(), 700n);
    assert.deepEqual((await view(phone.store, TASK))?.differences, [{ round: 1, said, signed: "accepted" }]);
  });
}

test("a record that does not name an upload without a receipt says nothing", async () => {
  const { phone, step, platform, signs } = await joined();
  platform.instead.send = () => { throw new TooLate("the round has closed"); };
  signs({ accepted: [], absent: true });
  for (let number = 1; number < 8; number++) {
    await step();
    platform.finish(number);
  }
  assert.equal(phone.trainer.trained.length, 7);
  assert.deepEqual([phone.events("words differ"), phone.events("stopped"), phone.events("upload rejected")], [[], [], []]);
});

test("an upload that SP said to have deleted, and that was averaged, is paid for", async () => {
  const { phone, person, step, platform, who, signs } = await joined({ rounds: 2 });
  signs({ accepted: [who], pays: 700 });
  await step();
  platform.instead.quit = () => ({ deleted: [1], standing: [] });
  await phone.store.put(TASK, "withdrawing", true);
  await person.leave();
  assert.equal(await phone.store.get(TASK, "rounds/1/no-reward"), "withdrawn");
  assert.equal(await person.awaitsWords(), true);
  platform.finish(1);
  assert.equal(await step(), true);
  assert.equal(person.state, "left");
  assert.deepEqual(phone.events("words differ"), [{ round: 1, said: "deleted", signed: "accepted" }]);
  assert.deepEqual([...(await person.kept.rewards())], [[1, 700n]]);
  assert.deepEqual([await person.awaitsWords(), await step()], [false, false]);
});

test("a phone sends nothing before it holds CSP's word of every earlier round that it made an upload for", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.send = () => { throw new TooLate("the round has closed"); };
  await step();
  platform.finish(1, "aborted");
  platform.instead.end = () => { throw new NotReady("not here"); };
  await step();
  await step();
  assert.deepEqual(phone.trainer.trained, [1]);
  assert.equal(phone.events("record missing").length, 1);
  delete platform.instead.end;
  await step();
  assert.deepEqual(phone.trainer.trained, [1, 2]);
});

test("SP's word that nobody has looked at a round counts for nothing where CSP has signed that it was looked at", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.end = (_task, number) => asBytes({ number, shown: true, why: null });
  for (let number = 1; number < 6; number++) {
    await step();
    platform.finish(number, "aborted", true);
  }
  assert.deepEqual(phone.trainer.trained, [1, 2, 3]);
  assert.equal(phone.events("words differ").length, 3);
  assert.deepEqual(phone.events("words differ")[0], { round: 1, said: "nobody_looked", signed: "shown" });
  assert.match(phone.events("stopped")[0].why, /came to nothing/);
});

test("rounds count that CSP says to have shown nothing of, where SP has asked it, and has given a receipt", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.end = (_task, number) => asBytes({ number, shown: false, why: null });
  for (let number = 1; number < 6; number++) {
    await step();
    platform.finish(number, "aborted", false);
  }
  assert.deepEqual(phone.trainer.trained, [1, 2, 3]);
  assert.match(phone.events("stopped")[0].why, /came to nothing/);
});

test("whoever came too late for rounds that were given up goes on", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.send = () => { throw new TooLate("the round has closed"); };
  platform.instead.end = (_task, number) => asBytes({ number, shown: false, why: null });
  for (let number = 1; number < 6; number++) {
    await step();
    platform.finish(number, "aborted", false);
  }
  assert.deepEqual(phone.trainer.trained, [1, 2, 3, 4, 5]);
});

test("rounds that are opened backwards get no uploads ahead", async () => {
  const { phone, step, platform } = await joined();
  const [first] = platform.rounds;
  const backwards = [5, 4, 3, 2, 1].map((number) => ({ ...first, number }));
  platform.rounds.splice(0, platform.rounds.length, ...backwards);
  platform.instead.send = () => { throw new TooLate("the round has closed"); };
  for (let look = 0; look < 3; look++) await step();
  assert.deepEqual(phone.trainer.trained, [5]);
});

test("a record counts for a phone that has forgotten its upload", async () => {
  const { phone, step, platform, signs } = await joined();
  platform.instead.send = () => { throw new TooLate("the round has closed"); };
  await step();
  for (const name of await phone.store.keys(TASK, "rounds/1/")) await phone.store.delete(TASK, name);
  signs(REJECTS);
  platform.finish(1);
  await step();
  assert.deepEqual(phone.events("upload rejected"), [{ round: 1, why: "broken_seal" }]);
  assert.equal(await phone.store.has(TASK, "stopped"), true);
});

test("whoever is rejected in a round that was given up stops", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1, "aborted", true);
  platform.instead.end = (_task, number) => asBytes({ number, shown: true, why: "out_of_bounds" });
  await step();
  await step();
  assert.deepEqual(phone.trainer.trained, [1]);
  assert.deepEqual(phone.events("upload rejected"), [{ round: 1, why: "out_of_bounds" }]);
});

test("a sum that was opened although SP says that the round was given up is told, and stops the phone", async () => {
  const { phone, step, platform, who } = await joined();
  await step();
  platform.finish(1, "aborted");
  platform.instead.end = (_task, number) => asBytes({ number, shown: true, why: null, record: { number, accepted: [who] } });
  await step();
  await step();
  assert.deepEqual(phone.events("words differ"), [{ round: 1, said: "no_average", signed: "accepted" }]);
  assert.match(phone.events("stopped")[0].why, /runs round 1 again/);
});

/** Both words of a round, as they are exported. @param {import("#web/phone/agent/participant.js").Participant} person */
const twoWords = async (person) => JSON.parse((await person.evidence())?.text ?? "").rounds[0].csp;

test("a record of a round whose end is here stops a phone, which keeps both", async () => {
  const { phone, person, step, platform } = await joined({ rounds: 2 });
  await step();
  platform.finish(1);
  await step();
  Object.assign(platform.round(2), { state: "aborted", unused: true });
  await step();
  platform.finish(2);
  platform.instead.reward = (_task, number) => asBytes({ number, amount: 200, record: { number, accepted: [] } });
  await step();
  assert.match(phone.events("stopped")[0].why, /CSP has signed two records of round 2/);
  assert.equal(await phone.store.has(TASK, "rounds/2/record"), false);
  const { code, end, second_record: second } = await twoWords(person);
  assert.deepEqual([code, JSON.parse(atob(end)).shown, JSON.parse(atob(second)).number], ["two_records", false, 2]);
  assert.equal(await step(), false, "it does not go round and round");
  assert.equal(await person.claim(), 100n, "what was earned is claimed");
});

for (const state of ["running", "finished"]) test(`an end of a round whose record is here stops a phone of a task that is ${state}, which keeps both and reads on`, async () => {
  const { phone, agent, person, step, platform } = await joined();
  await step();
  platform.finish(1);
  await step();
  await agent.leave();
  Object.assign(platform.round(1), { state: "aborted", unused: true });
  platform.finish(2);
  platform.state = state;
  await step();
  assert.match(phone.events("stopped")[0].why, /CSP has signed two records of round 1/);
  assert.deepEqual([await phone.store.has(TASK, "rounds/1/end"), await phone.store.has(TASK, "rounds/1/given-up")], [false, false]);
  const { code, record, second_record: second } = await twoWords(person);
  assert.deepEqual([code, JSON.parse(atob(record)).accepted.length, JSON.parse(atob(second)).shown], ["two_records", 1, false]);
  assert.equal(await phone.store.has(TASK, "rounds/2/record"), true, "two words of one round hide no other");
  assert.equal(await step(), false);
});

test("what CSP has opened of a round that SP has given up is paid for", async () => {
  const { agent, person, step, platform, who } = await joined();
  await step();
  await agent.leave();
  platform.finish(1, "aborted");
  platform.instead.end = (_task, number) => asBytes({ number, shown: true, why: null, record: { number, accepted: [who], pays: 700 } });
  await step();
  assert.deepEqual([...(await person.kept.rewards())], [[1, 700n]]);
  assert.deepEqual([await person.kept.hasAny(1, "given-up"), await step()], [false, false]);
});

test("repro: a round whose upload is gone is not trained for again, whatever SP says of it later", async () => {
  const { phone, step, platform, who } = await joined();
  platform.instead.send = (_task, round, _keys, upload) => receiptOf(round, who, new TextDecoder().decode(upload), true);
  platform.instead.reward = platform.instead.end = () => { throw new NotReady("not yet"); };
  await step();
  platform.finish(1, "aborted");
  await step();
  assert.equal(await phone.store.has(TASK, "rounds/1/upload"), false, "it is not sent again");
  platform.instead.average = () => asBytes({ number: 1, accepted: [who] });
  platform.rounds = [{ number: 1, state: "rewarded", last_call: 10, uploads: 1 }];
  await step();
  delete platform.instead.send;
  Object.assign(platform, { state: "finished", rounds: [{ number: 1, state: "open", last_call: 10, uploads: 0 }] });
  await step();
  assert.deepEqual([phone.trainer.trained, platform.seen.size], [[1], 0]);
});

test("an upload that CSP's record has accepted is paid for, though SP says after that to have deleted it", async () => {
  const { phone, agent, person, step, platform } = await joined();
  platform.instead.reward = () => { throw new NotReady("not yet"); };
  await step();
  platform.finish(1);
  await step();
  platform.instead.quit = () => ({ deleted: [1, 2], standing: [] });
  await agent.withdraw();
  assert.deepEqual(phone.events("words differ"), [{ round: 1, said: "deleted", signed: "accepted" }]);
  assert.deepEqual([await person.kept.of(1, "no-reward"), await person.kept.of(2, "no-reward")], [undefined, "withdrawn"]);
  assert.deepEqual((await view(phone.store, TASK))?.differences, [{ round: 1, said: "deleted", signed: "accepted" }]);
  delete platform.instead.reward;
  await step();
  assert.deepEqual([...(await person.kept.rewards())], [[1, 100n]]);
});

test("why CSP's record leaves an upload out stays known, though SP says after that to have deleted it", async () => {
  const { phone, agent, person, step, platform, signs } = await joined();
  signs(REJECTS);
  await step();
  platform.finish(1);
  await step();
  platform.instead.quit = () => ({ deleted: [1], standing: [] });
  await agent.withdraw();
  assert.equal(await person.kept.of(1, "no-reward"), "broken_seal");
  assert.deepEqual(phone.events("words differ"), [{ round: 1, said: "deleted", signed: "rejected" }]);
  assert.equal(phone.events("upload rejected").length, 1);
});

/** A phone that holds the receipts of a task's two rounds, and CSP's word of the first alone. */
async function uploadedTwice() {
  const found = await joined({ rounds: 2 });
  const { step, platform } = found;
  await step();
  platform.finish(1);
  await step();
  platform.finish(2);
  return found;
}

test("a round that SP leaves out of a task that has ended is waited for, told, and kept as a difference", async () => {
  const { phone, agent, platform } = await uploadedTwice();
  platform.rounds = platform.rounds.slice(0, 1);
  const [begun, running] = [phone.time, agent.run()];
  await until(() => phone.events("words differ").length);
  assert.ok(phone.time - begun >= 75, "half of the time to claim");
  assert.equal(await running, "ended");
  assert.ok(phone.time >= ROUNDS_UNTIL + 150, "and until its last day");
  assert.deepEqual(roundsClaimed(platform), [[1]]);
  assert.deepEqual(phone.events("words differ"), [{ round: 2, said: "taken", signed: "nothing" }]);
  const { rounds: [{ round, sp }] } = JSON.parse((await agent.evidence())?.text ?? "");
  assert.deepEqual([round, sp.code, sp.receipt], [2, "taken", await phone.store.get(TASK, "rounds/2/receipt")]);
});

test("a round that SP has left out for a while is claimed when it is there", async () => {
  const { phone, agent, platform } = await uploadedTwice();
  const [shown, running] = [platform.rounds, agent.run()];
  platform.rounds = shown.slice(0, 1);
  await until(() => phone.slept.length > 3);
  platform.rounds = shown;
  assert.equal(await running, "ended");
  assert.deepEqual(roundsClaimed(platform), [[1], [1, 2]]);
  assert.deepEqual(phone.events("words differ"), []);
});

test("an upload that SP refused, and whose round it leaves out, is waited for and paid by CSP's record", async () => {
  const { phone, agent, platform, who, signs } = await joined({ rounds: 1 });
  platform.instead.send = () => { throw new TooLate("the round has closed"); };
  signs({ accepted: [who], pays: 700 });
  await agent.participant.step(phone.trainer);
  platform.finish(1);
  const [shown, running] = [platform.rounds, agent.run()];
  platform.rounds = [];
  await until(() => phone.slept.length > 3);
  platform.rounds = shown;
  assert.equal(await running, "ended");
  assert.deepEqual(roundsClaimed(platform), [[1]]);
});

test("a reward that CSP's record opens, of a round that SP leaves out, is waited for, told, and claimed once it is opened", async () => {
  const { phone, person, step, platform } = await joined({ rounds: 2 });
  platform.instead.reward = () => { throw new NotReady("not yet"); };
  await step();
  platform.finish(1);
  await step();
  const { rounds } = platform;
  Object.assign(platform, { state: "finished", rounds: [] });
  await assert.rejects(person.claim(), NotReady);
  assert.deepEqual([phone.events("words differ"), await person.awaitsClaim()], [[{ round: 1, said: "no_average", signed: "accepted" }], true]);
  delete platform.instead.reward;
  Object.assign(platform, { rounds: rounds.slice(0, 1) });
  await person.step(phone.trainer);
  platform.rounds = []; // what CSP has signed is claimed, whatever SP lists
  assert.equal(await person.claim(), 100n);
});

test("a reward that CSP has signed, and that is out of range, is not waited for with its record", async () => {
  const { phone, platform } = await joined({ rounds: 1 });
  platform.instead.average = () => { throw new NotReady("not yet"); };
  const openReward = async () => { throw new RewardOutOfRange("more than the budget"); };
  const { participant } = phone.open(undefined, { protocol: { ...protocol, openReward } });
  await participant.step(phone.trainer);
  platform.finish(1);
  await participant.step(phone.trainer);
  assert.equal(await participant.awaitsClaim(), false);
});

test("that a round of a task that has ended was given up is not believed before CSP's word is here", async () => {
  const { phone, agent, person, platform } = await uploadedTwice();
  Object.assign(platform.round(2), { state: "aborted", unused: true });
  platform.instead.end = () => { throw new NotReady("not here"); };
  const running = agent.run();
  await until(() => phone.slept.length > 3);
  assert.deepEqual([await person.kept.hasAny(2, "given-up"), (await agent.unclaimed()).owed, phone.events("record missing").length], [false, [2], 1]);
  delete platform.instead.end;
  assert.equal(await running, "ended");
  assert.deepEqual([await person.kept.hasAny(2, "end"), phone.events("given up").length, roundsClaimed(platform)], [true, 1, [[1]]]);
  assert.deepEqual(phone.events("words differ"), []);
});

test("what CSP has signed takes the place of nothing", async () => {
  const { phone, person, step, platform } = await uploadedTwice();
  const { rounds } = platform;
  platform.rounds = rounds.slice(0, 1);
  await step();
  phone.time += 100;
  await step();
  assert.deepEqual(await person.kept.of(2, "differs"), { said: "taken", signed: "nothing" });
  platform.rounds = rounds;
  platform.instead.average = (_task, number) => asBytes({ number, accepted: [], absent: true });
  await step();
  assert.deepEqual((await view(phone.store, TASK))?.differences, [{ round: 2, said: "taken", signed: "absent" }]);
});

test("what each said is exported, with whom to send it to", async () => {
  const { phone, person, step, platform, signs } = await joined();
  assert.equal(await person.evidence(), null);
  platform.instead.send = () => { throw new TooLate("the round has closed"); };
  signs(REJECTS);
  await step();
  platform.finish(1);
  await step();
  const copy = await person.evidence();
  const { task, send_to: to, rounds: [round] } = JSON.parse(copy?.text ?? "");
  assert.deepEqual([copy?.name, task, to], ["evidence-01234567.json", TASK, { contact: "", payer: "ab" }]);
  assert.deepEqual([round.round, round.sp, round.csp.code], [1, { code: "refused", answer: "the round has closed" }, "rejected"]);
  assert.deepEqual(JSON.parse(atob(round.csp.record)), { number: 1, accepted: [] });
  assert.equal(phone.events("words differ").length, 1);
});
