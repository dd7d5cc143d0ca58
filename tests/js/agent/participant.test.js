// A participant's own affairs: what it refuses, what it keeps, what it tells its owner.

import assert from "node:assert/strict";
import { test } from "node:test";

import { CONTRIBUTION } from "#web/phone/agent/uploads.js";
import { view } from "#web/phone/agent/state.js";
import {
  DocumentError, EnrolmentOver, Forbidden, NothingToContribute, NotAuthenticated, NotDrawn, NotReady, PlaceFreed, RewardOutOfRange,
  ServiceUnavailable, TaskFull, TaskNotRunning, TooFewParticipants, TooLate, UnknownParticipant, UploadRejected,
} from "#web/phone/protocol/errors.js";
import { FakePhone, FakePlatform, Fuse, MemoryTables, TASK, protocol, receiptOf } from "./fakes.js";

/** A phone whose first round is open. @param {import("./fakes.js").FakeOptions} [options] */
async function joined(options) {
  const phone = new FakePhone(new FakePlatform(options));
  phone.platform.autoFinish = false;
  const agent = await phone.invited();
  await agent.join();
  return { phone, person: agent.participant, step: () => agent.participant.step(phone.trainer), platform: phone.platform };
}

/** @param {unknown} value */
const asBytes = (value) => new TextEncoder().encode(JSON.stringify(value));

/** @param {FakePhone} phone */
const names = (phone) => phone.told.map(([what]) => what);

test("a task of fewer than five people is not joined unless its owner accepts it", async () => {
  const phone = new FakePhone(new FakePlatform({ min: 3 }));
  const agent = await phone.invited();
  await assert.rejects(agent.join(), TooFewParticipants);
  assert.equal(phone.platform.certified, null, "nothing has left the phone");
  await agent.accept(3);
  await agent.join();
  assert.notEqual(phone.platform.certified, null);
});

for (const [enrolment, error] of /** @type {const} */ ([["full", TaskFull], ["over", EnrolmentOver], ["ended", TaskNotRunning]])) {
  test(`a campaign whose enrolment is ${enrolment} says so before the invitation is used`, async () => {
    const phone = new FakePhone(new FakePlatform());
    phone.platform.enrolment = enrolment;
    const agent = await phone.invited();
    await agent.look();
    assert.notEqual((await agent.participant.entry()).closed, null);
    await assert.rejects(agent.join(), error);
    assert.equal(phone.platform.certified, null, "KGC was not asked");
    phone.platform.enrolment = "open";
    await agent.join();
    assert.equal((await agent.participant.entry()).closed, null);
  });
}

/** Whoever came by the list. @param {FakePhone} phone */
const fromList = (phone) => phone.open(undefined, { invitation: /** @type {any} */ ({ task: TASK, invitation: "", kgc: "", sp: "", kgcKey: new Uint8Array(), spKey: new Uint8Array(), expires: null, replaces: false }) });

test("a listed task is joined once its owner has said all the same, whatever a page forgets to ask", async () => {
  const phone = new FakePhone(new FakePlatform({ listed: true }));
  const agent = fromList(phone);
  await agent.look();
  await assert.rejects(agent.join(), TooFewParticipants);
  await agent.accept(5);
  await assert.rejects(agent.join(), TooFewParticipants);
  assert.deepEqual([phone.platform.places, phone.platform.certified], [[], null], "nothing has left the phone");
  await agent.accept(5, true);
  await agent.join();
  assert.equal(phone.platform.places.length, 1);
  assert.equal(await agent.participant.step(phone.trainer), true);
});

test("a phone asks for one place, however often it joins, and whatever answers are lost", async () => {
  const phone = new FakePhone(new FakePlatform({ listed: true }));
  await fromList(phone).look();
  await fromList(phone).accept(5, true);
  phone.platform.instead.enrolAtKgc = () => { throw new ServiceUnavailable("away"); };
  await assert.rejects(fromList(phone).join(), ServiceUnavailable);
  delete phone.platform.instead.enrolAtKgc;
  await fromList(phone).join();
  await fromList(phone).join();
  assert.equal(new Set(phone.platform.places).size, 1);
  assert.equal(phone.platform.places.length, 2, "joined, it asks no more");
});

test("a place that was freed is taken again when the phone sends, or the round goes by", async () => {
  const { phone, platform, step } = await joined({ rounds: 3 });
  let refused = 0;
  platform.instead.send = (...given) => {
    if (!refused++) throw new PlaceFreed("freed");
    return platform._send(new Fuse(), given[1], given[2].who, given[3]);
  };
  platform.enrolled.clear();
  await step();
  assert.ok(names(phone).includes("uploaded"));
  platform.finish(1);
  platform.instead.send = () => { throw new PlaceFreed("freed"); };
  platform.instead.enrol = () => { throw new TaskFull("full"); };
  await step();
  await step();
  assert.ok(names(phone).includes("refused"));
});

test("the least number is checked again before each upload", async () => {
  const { person, phone, step } = await joined({ min: 5 });
  await person.accept(6);
  await assert.rejects(step(), TooFewParticipants);
  assert.deepEqual(phone.trainer.trained, []);
});

test("the papers of another task are refused", async () => {
  const phone = new FakePhone();
  const other = { ...protocol, openAppointment: async () => ({ task: "another", fingerprint: "", csp: "" }) };
  await phone.invited();
  await assert.rejects(phone.open(undefined, { protocol: other }).look(), DocumentError);
});

test("initial weights that are not the task's are not kept", async () => {
  const phone = new FakePhone();
  await phone.invited();
  const agent = phone.open(undefined, { protocol: { ...protocol, hex: () => "wrong" } });
  await agent.join();
  await assert.rejects(agent.participant.step(phone.trainer), DocumentError);
  assert.equal(await phone.store.has(TASK, "initial"), false);
});

test("a round with a receipt is neither trained for nor sent again", async () => {
  const { phone, step } = await joined();
  assert.equal(await step(), true);
  assert.equal(await step(), false);
  assert.deepEqual(phone.trainer.trained, [1]);
  assert.equal(phone.platform.calls.filter((call) => call === "send").length, 1);
});

test("a receipt for something else is refused, and kept as evidence", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.send = () => 'crowdfl receipt S {"round": 2, "digest": "other", "late": false}';
  await assert.rejects(step(), DocumentError);
  assert.equal(await phone.store.has(TASK, "rounds/1/receipt"), false);
  assert.equal(await phone.store.has(TASK, "rounds/1/wrong-receipt"), true);
});

test("an upload that comes too late is told, and the round is let go", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.send = () => { throw new TooLate("round 1 ended 3 s ago"); };
  assert.equal(await step(), true);
  assert.equal(await step(), false);
  assert.deepEqual(phone.events("refused"), [{ round: 1, why: "round 1 ended 3 s ago" }]);
  const shown = await view(phone.store, TASK);
  assert.deepEqual([shown?.rounds[0].mine, shown?.rounds[0].why], ["refused", "round 1 ended 3 s ago"]);
});

test("an upload that a round has no need of earns what the plan says, by its receipt, and is claimed with the rest", async () => {
  const { phone, person, step, platform } = await joined({ rounds: 2 });
  platform.instead.send = (_task, number, keys, upload) => receiptOf(number, keys.who, new TextDecoder().decode(upload), true);
  assert.equal(await step(), true);
  assert.equal(await step(), false);
  assert.deepEqual(phone.events("unused"), [{ round: 1 }]);
  delete platform.instead.send;
  platform.finish(1);
  await step();
  platform.finish(2);
  await step();
  const shown = await view(phone.store, TASK);
  assert.deepEqual(shown?.rounds.map(({ mine, reward, reason }) => [mine, reward, reason]), [["unused", 250_000n, null], ["arrived", 200n, "small"]]);
  assert.deepEqual(shown?.receipts.map(({ round }) => round), [1, 2]);
  assert.equal(await person.claim(), 250_200n);
  assert.deepEqual([...platform.claims], ['{"rounds":[2],"unused":[1],"counter":0}']);
  assert.deepEqual(phone.events("claimed"), [{ millionths: 250_200n }]);
  assert.deepEqual((await view(phone.store, TASK))?.rounds.map(({ pay }) => pay?.state), ["claimed", "claimed"], "the platform was not asked what became of it");
  await person.claims.askPay();
  assert.deepEqual((await view(phone.store, TASK))?.rounds.map(({ pay }) => pay), [{ state: "waiting", note: "" }, { state: "waiting", note: "" }]);
  platform.payState = "paid";
  await person.claims.askPay();
  assert.deepEqual((await view(phone.store, TASK))?.rounds.map(({ pay }) => pay?.state), ["paid", "paid"]);
});

test("a platform that owes for an unused upload and does not pay is found short", async () => {
  const { phone, person, step, platform } = await joined({ rounds: 1 });
  platform.instead.send = (_task, number, keys, upload) => receiptOf(number, keys.who, new TextDecoder().decode(upload), true);
  await step();
  platform.finish(1, "aborted");
  platform.instead.claim = () => ({ paid: new Map(), unused: new Map(), disputed: new Map() });
  assert.equal(await person.claim(), 0n);
  assert.deepEqual(phone.events("claimed"), [{ millionths: 0n, missing: new Map([[1, 250_000n]]) }]);
});

test("an unused upload is claimed once its round has CSP's word, and not while it may be used after all", async () => {
  const { person, step, platform } = await joined({ rounds: 2, early: true });
  platform.instead.send = (_task, number, keys, upload) => receiptOf(number, keys.who, new TextDecoder().decode(upload), true);
  await step();
  assert.equal(await person.isClaimDue(), false);
  await assert.rejects(person.claim(), NotReady);
  platform.finish(1);
  await step();
  assert.equal(await person.isClaimDue(), true);
  assert.equal(await person.claim(), 250_000n);
});

test("an upload whose answer was lost is sent again after its round, and gets the same receipt", async () => {
  const { phone, step, platform } = await joined({ rounds: 2 });
  const answer = (/** @type {any[]} */ ...[, number, keys, upload]) => receiptOf(number, keys.who, new TextDecoder().decode(upload), true);
  const sent = new Set();
  platform.instead.send = (...given) => {
    sent.add(answer(...given));
    throw new ServiceUnavailable("no answer");
  };
  await assert.rejects(step(), ServiceUnavailable);
  platform.finish(1);
  await assert.rejects(step(), ServiceUnavailable);
  platform.instead.send = (...given) => (sent.add(answer(...given)), answer(...given));
  await step();
  assert.equal(sent.size, 2, "one upload each of the rounds 1 and 2");
  assert.equal((await phone.store.get(TASK, "rounds/1/reward")).unused, [...sent][0]);
});

const CHANGES = {
  "more were drawn": (/** @type {any} */ platform) => Object.assign(platform.rounds[0], { drawn: 9 }),
  "SP was restored": (/** @type {any} */ platform) => Object.assign(platform, { epoch: "second" }),
};
for (const [name, changed] of Object.entries(CHANGES)) test(`who is not drawn waits, reads the average, and asks again when ${name}`, async () => {
  const { platform, phone, step } = await joined({ draws: true });
  platform.instead.isDrawn = () => false;
  await step();
  await step();
  assert.deepEqual(phone.trainer.trained, []);
  assert.equal(platform.calls.filter((name) => name === "isDrawn").length, 1);
  assert.equal(names(phone).filter((name) => name === "not drawn").length, 1);
  assert.equal((await view(phone.store, TASK))?.rounds[0].mine, "undrawn");
  Object.assign(platform.rounds[0], { drawn: 7 }); // others stayed away, and this one was not drawn in their place
  await step();
  await step();
  assert.equal(platform.calls.filter((name) => name === "isDrawn").length, 2);
  assert.equal(names(phone).filter((name) => name === "not drawn").length, 1);
  changed(platform);
  delete platform.instead.isDrawn;
  await step();
  assert.equal((await view(phone.store, TASK))?.rounds[0].mine, "arrived");
  platform.finish(1);
  platform.instead.isDrawn = () => false;
  await step();
  platform.finish(2);
  await step();
  const [first, second] = /** @type {any} */ (await view(phone.store, TASK)).rounds;
  assert.equal(first.mine, "arrived");
  assert.equal(second.mine, "undrawn");
  assert.equal(await phone.store.has(TASK, "rounds/2/average"), true);
  assert.deepEqual(phone.trainer.trained, [1]);
});

test("an upload of somebody who was not drawn is told, and the round is let go", async () => {
  const { platform, phone, step } = await joined({ draws: true });
  platform.instead.send = () => { throw new NotDrawn("others were drawn"); };
  await step();
  await step();
  assert.equal(names(phone).filter((name) => name === "refused").length, 1);
});

test("an upload to a task that was cancelled is told", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.send = () => { throw new TaskNotRunning("the task was cancelled"); };
  await step();
  assert.equal(phone.events("refused").length, 1);
});

test("a refusal that may pass is not noted: the same bytes are sent again", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.send = () => { throw new ServiceUnavailable("away"); };
  await assert.rejects(step(), ServiceUnavailable);
  delete platform.instead.send;
  const made = await phone.store.get(TASK, "rounds/1/upload");
  await step();
  assert.equal(platform.held.get(1), new TextDecoder().decode(made));
  assert.deepEqual(phone.trainer.trained, [1]);
});

test("without samples no upload leaves the phone, and what its owner says next is tried in the same round", async () => {
  const { phone, step, platform } = await joined();
  phone.trainer.failure = new NothingToContribute("record at least a minute");
  assert.equal(await step(), true);
  assert.equal(await step(), false);
  assert.equal(phone.events("nothing to contribute").length, 1);
  assert.equal((await view(phone.store, TASK))?.rounds[0].mine, "nothing");
  phone.trainer.failure = null;
  assert.equal(await step(), false, "the recordings are the same");
  await phone.store.put(TASK, CONTRIBUTION, { ids: ["a"], at: 1 });
  assert.equal((await view(phone.store, TASK))?.rounds[0].mine, "none", "what was said since is still to be tried, perhaps without a network");
  platform.instead.send = () => { throw new ServiceUnavailable("away"); };
  await assert.rejects(step(), ServiceUnavailable);
  const [sending] = (await view(phone.store, TASK))?.rounds ?? [];
  assert.deepEqual([sending.mine, sending.why], ["sending", null], "that there was nothing to send is over");
  delete platform.instead.send;
  assert.equal(await step(), true);
  assert.ok(platform.held.has(1));
  assert.equal((await view(phone.store, TASK))?.rounds[0].mine, "arrived");
});

test("repro: what an owner says while the rest is found too little is tried in the same round", async () => {
  const { phone, step, platform } = await joined();
  const { trainer } = phone;
  const train = trainer.train.bind(trainer);
  trainer.train = async () => {
    await phone.store.put(TASK, CONTRIBUTION, { ids: ["b"], at: 2 });
    throw new NothingToContribute("too little is recorded");
  };
  await step();
  trainer.train = train;
  assert.equal(await step(), true);
  assert.ok(platform.held.has(1));
});

test("an owner's word to send is heard in the same round, and recordings alone are not", async () => {
  const { phone, step, platform } = await joined();
  phone.trainer.failure = new NothingToContribute("its owner has not said so");
  await step();
  assert.equal(await phone.store.has(TASK, "rounds/1/before"), false, "it would be about other recordings than what is trained on");
  phone.trainer.failure = null;
  assert.equal(await step(), false);
  await phone.store.addRecording(TASK, { id: "b", label: "w", times: new Float64Array(), signal: new Float64Array(), channels: 3 });
  assert.equal(await step(), false);
  await phone.store.put(TASK, CONTRIBUTION, { ids: ["b"], at: 1 });
  assert.equal(await step(), true);
  assert.ok(platform.held.has(1));
});

test("averages are read in order, with the accuracy before and after", async () => {
  const { phone, step, platform } = await joined({ rounds: 3 });
  for (const number of [1, 2]) {
    await step();
    platform.finish(number);
  }
  await step();
  platform.finish(3);
  await step();
  const shown = await view(phone.store, TASK);
  assert.deepEqual(shown?.rounds.map((one) => [one.accuracyBefore, one.accuracyAfter]), [[0, 0.1], [0.1, 0.2], [0.2, null]]);
  assert.deepEqual(phone.events("read").map(({ round }) => round), [1, 2]);
});

test("of a task with a server step the state after each round is told and kept", async () => {
  const { phone, step, platform } = await joined({ rounds: 3, step: "fedavgm" });
  await step();
  for (const number of [1, 2]) platform.finish(number);
  await step();
  assert.deepEqual(phone.events("read").map(({ state }) => state), ["state 1", "state 2"]);
  assert.deepEqual((await view(phone.store, TASK))?.rounds.map(({ digest }) => digest), ["state 1", "state 2", null]);
});

test("without a server step no state is told", async () => {
  const { phone, step, platform } = await joined({ rounds: 2 });
  await step();
  platform.finish(1);
  await step();
  assert.deepEqual(phone.events("read").map((told) => "state" in told), [false]);
  assert.deepEqual((await view(phone.store, TASK))?.rounds.map(({ digest }) => digest), [null, null]);
});

test("whoever was away for several rounds catches up and goes on from the newest model", async () => {
  const { phone, step, platform } = await joined({ rounds: 4 });
  for (const number of [1, 2]) platform.finish(number);
  await step();
  assert.deepEqual(phone.events("read").map(({ round }) => round), [1, 2]);
  assert.equal(JSON.parse(String(platform.held.get(3))).base, 2);
});

test("a missing average keeps the phone out of the next round, and is told once", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1);
  platform.instead.average = () => { throw new NotReady("gone"); };
  await step();
  await step();
  assert.equal(phone.events("average missing").length, 1);
  assert.deepEqual(phone.trainer.trained, [1]);
  delete platform.instead.average;
  await step();
  assert.deepEqual(phone.trainer.trained, [1, 2]);
});

test("an average is not asked for before the one that it follows from", async () => {
  const { step, platform } = await joined({ rounds: 4 });
  for (const number of [1, 2]) platform.finish(number);
  /** @type {number[]} */
  const asked = [];
  platform.instead.average = (_task, number) => {
    asked.push(number);
    throw new NotReady("gone");
  };
  await step();
  assert.deepEqual(asked, [1]);
});

test("a platform that is away is not trained past", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1);
  platform.instead.average = () => { throw new ServiceUnavailable("away"); };
  await assert.rejects(step(), ServiceUnavailable);
  assert.deepEqual(phone.trainer.trained, [1]);
});

test("an upload that both servers left out earns nothing, and its owner is told why", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1);
  platform.instead.average = () => new TextEncoder().encode(JSON.stringify({ number: 1, accepted: [] }));
  await step();
  assert.deepEqual(phone.events("upload rejected"), [{ round: 1, why: "broken_seal" }]);
  assert.equal(platform.calls.includes("reward"), false);
  assert.equal((await view(phone.store, TASK))?.rounds[0].leftOut, "broken_seal");
});

test("a phone that kept its bounds and is rejected all the same stops, says so, and does not come back", async () => {
  const { phone, person, step, platform } = await joined();
  await step();
  platform.finish(1);
  platform.instead.average = () => new TextEncoder().encode(JSON.stringify({ number: 1, accepted: [] }));
  await step();
  assert.match(phone.events("stopped")[0].why, /kept the task's bounds and was rejected all the same \(broken_seal\)/);
  assert.match(String((await view(phone.store, TASK))?.stopped), /round 1/);
  await step();
  assert.deepEqual(phone.trainer.trained, [1]);
  assert.equal(platform.calls.includes("quit"), true);
  await assert.rejects(person.join("an invitation"), UploadRejected);
});

test("a phone of a task with a reference stays, whatever was left out or came to nothing", async () => {
  const { phone, step, platform } = await joined({ rounds: 6, settings: { reference: true } });
  await step();
  platform.finish(1);
  platform.instead.average = () => new TextEncoder().encode(JSON.stringify({ number: 1, accepted: [] }));
  for (const number of [2, 3, 4]) {
    await step();
    platform.finish(number, "aborted", false);
  }
  await step();
  assert.equal(phone.events("upload rejected").length, 1);
  assert.deepEqual(phone.events("stopped"), []);
  assert.deepEqual(phone.trainer.trained, [1, 2, 3, 4, 5]);
});

test("a phone stops after three rounds that came to nothing; those that the servers never looked at do not count", async () => {
  const { phone, step, platform } = await joined({ rounds: 6 });
  for (const number of [1, 2, 3, 4]) {
    await step();
    assert.deepEqual(phone.events("stopped"), []);
    platform.finish(number, "aborted", number === 2);
  }
  await step();
  assert.match(phone.events("stopped")[0].why, /3 rounds that you uploaded to came to nothing/);
  assert.deepEqual(phone.trainer.trained, [1, 2, 3, 4]);
});

test("a rejection that no average confirms is not believed", async () => {
  for (const shown of [true, false]) {
    const { phone, step, platform } = await joined();
    await step();
    platform.finish(1);
    if (!shown) platform.instead.average = () => { throw new NotReady("the requester's"); };
    platform.instead.reward = () => { throw new UploadRejected("out of bounds"); };
    await step();
    await step();
    assert.equal(phone.events("reward missing").length, 1);
    assert.equal(await phone.store.has(TASK, "rounds/1/no-reward"), false);
  }
});

test("a reward out of range is refused for good", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1);
  const openReward = async () => { throw new RewardOutOfRange("more than the budget"); };
  await phone.open(undefined, { protocol: { ...protocol, openReward } }).participant.step(phone.trainer);
  assert.equal(phone.events("reward refused").length, 1);
  assert.equal(await phone.store.get(TASK, "rounds/1/no-reward"), "out_of_range");
});

test("a reward is not given up because the platform says that it is out of range, or that nobody knows this phone", async () => {
  for (const said of [new RewardOutOfRange("too much"), new UnknownParticipant("who?")]) {
    const { phone, step, platform } = await joined();
    await step();
    platform.finish(1);
    platform.instead.reward = () => { throw said; };
    await step();
    assert.equal(await phone.store.has(TASK, "rounds/1/no-reward"), false, said.name);
    delete platform.instead.reward;
    await step();
    assert.deepEqual(phone.events("rewarded"), [{ round: 1, millionths: 100n }]);
  }
});

test("a bonus is not given up because the platform says that there is none: CSP's signed word alone does", async () => {
  for (const signed of [true, false]) {
    const { phone, step, platform } = await joined({ rounds: 1, settings: { bonus: "50" } });
    await step();
    platform.finish(1);
    const none = new UploadRejected("no bonus for you");
    platform.instead.reward = (_task, number) => {
      if (number === 0) throw none;
      return asBytes({ number, amount: 100 });
    };
    await step();
    assert.equal(await phone.store.has(TASK, "rounds/0/no-reward"), false);
    platform.instead.reward = (_task, number) => asBytes({ number, amount: 50 });
    const openReward = async () => { throw none; };
    await phone.open(undefined, signed ? {} : { protocol: { ...protocol, openReward } }).participant.step(phone.trainer);
    assert.deepEqual(await phone.store.get(TASK, "rounds/0/no-reward"), signed ? undefined : "no_bonus");
    assert.equal(await phone.store.has(TASK, "rounds/0/reward"), signed);
  }
});

test("a missing reward keeps nobody from the next round, and a refused signature is not overlooked", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1);
  platform.instead.reward = () => { throw new NotReady("gone"); };
  await step();
  assert.deepEqual([phone.trainer.trained, phone.events("reward missing").length], [[1, 2], 1]);
  platform.instead.reward = () => { throw new NotAuthenticated("who?"); };
  await assert.rejects(step(), NotAuthenticated);
  delete platform.instead.reward;
  await step();
  assert.deepEqual(phone.events("rewarded"), [{ round: 1, millionths: 100n }]);
});

test("a round that is given up is explained once", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1, "aborted");
  await step();
  await step();
  assert.deepEqual(phone.events("given up"), [{ round: 1 }]);
  assert.deepEqual((await view(phone.store, TASK))?.rounds[0].reason, "void");
});

test("after SP was restored it enrols again, and sends again what SP has lost", async () => {
  const { phone, step, platform } = await joined();
  await step();
  const first = await phone.store.get(TASK, "rounds/1/receipt");
  await step();
  Object.assign(platform, { epoch: "second" });
  platform.enrolled.clear();
  platform.held.clear();
  await step();
  assert.deepEqual(names(phone).filter((what) => ["restored", "sending again"].includes(what)), ["restored", "sending again"]);
  assert.equal(await phone.store.get(TASK, "rounds/1/lost-receipt"), first);
  assert.equal(platform.seen.get(1)?.size, 1);
  assert.deepEqual(phone.trainer.trained, [1]);
});

test("a phone that was off meanwhile asks once whether its upload is still there", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.held.clear();
  const later = phone.open().participant;
  await later.step(phone.trainer);
  await later.step(phone.trainer);
  assert.equal(platform.calls.filter((call) => call === "uploaded").length, 1);
  assert.equal(phone.events("sending again").length, 1);
  assert.ok(platform.held.has(1));
});

test("an upload that SP has dropped is sent again", async () => {
  const { phone, step, platform } = await joined();
  await step();
  await step();
  platform.held.clear();
  platform.dropped = 1;
  await step();
  assert.equal(phone.events("sending again").length, 1);
});

test("a platform that was restored while the phone trained is told who it is", async () => {
  const { phone, step, platform } = await joined();
  phone.platform.rounds = [];
  await step();
  phone.platform.rounds = [{ number: 1, state: "open", last_call: 1, uploads: 0 }];
  phone.trainer.train = async (/** @type {any} */ weights) => {
    platform.enrolled.clear();
    platform.epoch = "second";
    return { weights, samples: 1 };
  };
  await step();
  assert.ok(platform.held.has(1));
});

test("an upload under way when its owner leaves is not noted as refused", async () => {
  const { phone, step, platform } = await joined();
  platform.instead.send = async () => {
    await phone.store.put(TASK, "left", 1);
    throw new Forbidden("you have left");
  };
  assert.equal(await step(), false);
  assert.equal(await phone.store.has(TASK, "rounds/1/refused"), false);
});

test("someone who has left takes no part, and can join again with the same name", async () => {
  const { phone, person, step, platform } = await joined();
  const { who } = await person.context.keys();
  await person.leave();
  assert.equal(await step(), false);
  assert.equal(person.state, "left");
  assert.deepEqual([phone.trainer.trained, platform.quits], [[], 1]);
  assert.equal(await person.join("come"), who);
  await step();
  assert.ok(platform.held.has(1));
});

for (const key of ["left", "withdrawing", "replaced", "stopped"]) {
  test(`whoever is ${key} neither trains nor uploads, whatever SP says of the task`, async () => {
    const { phone, step, platform } = await joined();
    await phone.store.put(TASK, key, 1);
    platform.state = "cancelled"; // and a round is open
    await step();
    assert.deepEqual([phone.trainer.trained, platform.calls.includes("send")], [[], false]);
  });
}

test("what was made is not sent by somebody who has left since, in another tab too", async () => {
  const { phone, step, platform } = await joined();
  const train = phone.trainer.train.bind(phone.trainer);
  phone.trainer.train = async (...given) => {
    await phone.store.put(TASK, "left", 1);
    return train(...given);
  };
  await step();
  platform.state = "cancelled";
  await step();
  assert.deepEqual([phone.trainer.trained, platform.calls.includes("send")], [[1], false]);
});

test("the bytes of an upload go when its round is over, and never make room for others", async () => {
  const { phone, step, platform } = await joined();
  await step();
  platform.finish(1);
  await step();
  assert.equal(await phone.store.has(TASK, "rounds/1/upload"), false);
  platform.round(1).state = "open"; // a platform that was set back: CSP's record of this round is here
  await step();
  assert.match(phone.events("stopped")[0].why, /runs round 1 again/);
  assert.equal(platform.seen.get(1)?.size, 1);
  assert.deepEqual(phone.trainer.trained, [1, 2]);
});

test("the record of the last round is kept, and a platform that runs that round again is refused", async () => {
  const { phone, step, platform } = await joined({ rounds: 1 });
  await step();
  platform.finish(1);
  assert.equal(await step(), true);
  assert.equal(await phone.store.has(TASK, "rounds/1/record"), true);
  assert.deepEqual(phone.events("read"), []);
  assert.equal(await step(), false);
  assert.equal(platform.calls.filter((call) => call === "average").length, 1);
  platform.state = "running";
  platform.round(1).state = "open";
  await step();
  assert.match(phone.events("stopped")[0].why, /runs round 1 again/);
});

/** @type {[string, () => Uint8Array, string][]} */
const SHOWN = [
  ["nothing", () => { throw new NotReady("not yet"); }, "record missing"],
  ["a failure", () => { throw new ServiceUnavailable("away"); }, "record missing"],
  ["the record of another round", () => asBytes({ number: 7, accepted: [] }), "record missing"],
  ["a record of another model", () => asBytes({ number: 1, accepted: [], base: "another" }), "stopped"],
];
for (const [what, average, told] of SHOWN) {
  test(`a platform that shows ${what} for the last round does not hold up the claim`, async () => {
    const { phone, person, step, platform } = await joined({ rounds: 1 });
    await step();
    platform.finish(1);
    platform.instead.average = average;
    await step();
    await step();
    assert.equal(phone.events(told).length, 1);
    assert.equal(await person.claim(), 100n);
    delete platform.instead.average;
    await step();
    assert.equal(await phone.store.has(TASK, "rounds/1/record"), true);
  });
}

test("whom the record of the last round leaves out waits for no reward", async () => {
  const { phone, person, step, platform } = await joined({ rounds: 1 });
  await step();
  platform.finish(1);
  platform.instead.average = () => asBytes({ number: 1, accepted: [] });
  platform.instead.reward = () => { throw new NotReady("not yet"); };
  await step();
  assert.equal(await person.awaitsClaim(), false);
  assert.deepEqual(phone.events("upload rejected"), [{ round: 1, why: "broken_seal" }]);
});

test("two records of one round stop a phone, which keeps both", async () => {
  const { phone, person, step, platform } = await joined();
  await step();
  platform.finish(1);
  platform.instead.reward = () => asBytes({ number: 1, amount: 1, record: "another" });
  await step();
  assert.match(phone.events("stopped")[0].why, /CSP has signed two records of round 1/);
  assert.equal(await phone.store.has(TASK, "rounds/1/reward"), false);
  const [{ round, csp }] = JSON.parse((await person.evidence())?.text ?? "").rounds;
  assert.deepEqual([round, csp.code, atob(csp.second_record)], [1, "two_records", JSON.stringify("another")]);
  assert.ok(csp.record);
});

test("a figure that cannot be had holds up nothing", async () => {
  const { phone, step, platform } = await joined();
  phone.trainer.evaluate = async () => { throw new Error("no data"); };
  await step();
  assert.ok(platform.held.has(1));
  assert.equal(phone.events("not evaluated").length, 1);
});

test("a look with nothing to do costs the same after ten rounds and after two hundred", async () => {
  const tables = new MemoryTables();
  let asked = 0;
  for (const name of /** @type {const} */ (["get", "has", "keys", "write"])) {
    const act = /** @type {(...given: any[]) => any} */ (tables[name]).bind(tables);
    Object.assign(tables, { [name]: (/** @type {any[]} */ ...given) => ((asked += 1), act(...given)) });
  }
  const phone = new FakePhone(new FakePlatform({ rounds: 201 }), tables);
  phone.platform.autoFinish = false;
  const agent = await phone.invited();
  await agent.join();
  const step = () => agent.participant.step(phone.trainer);
  const found = [];
  for (let number = 1; number <= 200; number += 1) {
    while (await step());
    phone.platform.finish(number);
    if (number !== 10 && number !== 200) continue;
    while (await step());
    const [before, calls] = [asked, phone.platform.calls.length];
    assert.equal(await step(), false);
    assert.equal(await agent.participant.awaitsWords(), true, "of the round that is open");
    found.push([asked - before, phone.platform.calls.length - calls]);
  }
  assert.deepEqual(found[0], found[1]);
  assert.ok(found[0][0] < 60, `${found[0][0]} questions to the store`);
});
