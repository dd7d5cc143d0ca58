// How an agent waits, shares a browser with other tabs, claims, leaves and forgets.

import assert from "node:assert/strict";
import { test } from "node:test";

import { view } from "#web/phone/agent/state.js";
import {
  ClaimRefused, Conflict, MasksDoNotFit, NotAuthenticated, NotReady, ServiceUnavailable, TaskFull, TaskNotRunning, TooLate,
} from "#web/phone/protocol/errors.js";
import { FakeLocks, FakePhone, FakePlatform, ROUNDS_UNTIL, TASK, roundsClaimed, until } from "./fakes.js";

/** @param {import("./fakes.js").FakeOptions} [options] */
async function invited(options) {
  const phone = new FakePhone(new FakePlatform(options));
  return { phone, platform: phone.platform, agent: await phone.invited() };
}

test("an agent takes part from joining to being paid, and a later tab has nothing to do", async () => {
  const { phone, agent, platform } = await invited({ rounds: 3 });
  assert.equal(await agent.run(), "ended");
  assert.deepEqual(phone.events("claimed"), [{ millionths: 600n }]);
  const shown = await view(phone.store, TASK);
  assert.deepEqual([shown?.phase, shown?.total, shown?.claim.state, shown?.claim.claimed], ["ended", 600n, "claimed", 600n]);
  assert.equal(shown?.receipts.length, 3);
  const calls = platform.calls.length;
  assert.equal(await phone.open().run(), "ended");
  assert.equal(platform.calls.length, calls + 1, "where the money stands is asked, and nothing else");
});

test("before joining an error is told at once, afterwards the platform is waited for", async () => {
  const { phone, agent, platform } = await invited();
  let left = 0;
  platform.instead.papers = () => {
    if (left-- > 0) throw new ServiceUnavailable("away");
    return { definition: platform.definition(), appointment: "" };
  };
  left = 1;
  await assert.rejects(agent.run(), ServiceUnavailable);
  left = 0;
  await agent.join();
  left = 3;
  assert.equal(await phone.open().run(), "ended");
  assert.equal(phone.events("waiting").length, 3);
});

test("a refusal by name ends it", async () => {
  const { agent, platform } = await invited();
  platform.instead.enrolAtKgc = () => { throw new TaskFull("every place is taken"); };
  await assert.rejects(agent.run(), TaskFull);
});

test("a platform that does not know the participant is asked again for a while", async () => {
  const { phone, agent, platform } = await invited();
  await agent.join();
  platform.instead.status = () => { throw new NotAuthenticated("who?"); };
  await assert.rejects(agent.run(), NotAuthenticated);
  assert.equal(phone.events("waiting").length, 9);
});

test("whoever cannot train takes no place", async () => {
  const { phone, platform } = await invited();
  const trainer = Object.assign(phone.trainer, { prepare: () => { throw new Error("no such learner"); } });
  await assert.rejects(phone.open(undefined, { trainer }).run(), /no such learner/);
  assert.equal(platform.certified, null);
});

test("it polls less often while nothing happens, and at once when it is woken", async () => {
  const { phone, platform } = await invited();
  Object.assign(platform, { rounds: [], autoFinish: false });
  /** @type {AbortSignal | undefined} */
  let waking;
  const sleep = async (/** @type {number} */ seconds, /** @type {AbortSignal | undefined} */ signal) => {
    phone.slept.push(seconds);
    if (phone.slept.length < 6) return;
    waking = signal;
    await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  };
  const agent = phone.open(undefined, { sleep });
  const running = agent.run();
  await until(() => waking);
  assert.deepEqual(phone.slept.map((one) => Math.round(one * 100) / 100), [1, 1.5, 2.25, 3, 3, 3]); // a window of 30 s
  platform.rounds = [{ number: 1, state: "open", last_call: 1, uploads: 0 }];
  agent.wake();
  await until(() => platform.held.has(1));
  await agent.stop();
  assert.equal(await running, "stopped");
});

test("it looks again when the platform says, within an hour, and by itself if the platform does not", async () => {
  for (const [told, waits] of [[40, 40], [1e9, 3600], [undefined, 1]]) {
    const { phone, platform } = await invited();
    Object.assign(platform, { rounds: [], autoFinish: false, comeBack: told });
    const stopper = new AbortController();
    const sleep = async (/** @type {number} */ seconds, /** @type {AbortSignal | undefined} */ signal) => {
      phone.slept.push(seconds);
      stopper.abort();
      signal?.throwIfAborted();
    };
    await phone.open(undefined, { sleep }).run(stopper.signal);
    assert.deepEqual(phone.slept, [waits]);
  }
});

test("a stopped run ends in the middle of a wait, and the next one goes on", async () => {
  const { phone, platform } = await invited();
  platform.rounds = [];
  const stopper = new AbortController();
  const agent = phone.open(undefined, { sleep: async (_seconds, signal) => {
    stopper.abort();
    signal?.throwIfAborted();
  } });
  assert.equal(await agent.run(stopper.signal), "stopped");
  platform.rounds = [{ number: 1, state: "open", last_call: 1, uploads: 0 }];
  assert.equal(await phone.open().run(), "ended");
});

test("a run that is stopped while it trains uploads nothing", async () => {
  const { phone, platform } = await invited();
  const agent = phone.open();
  phone.trainer.train = async (/** @type {any} */ weights) => {
    agent.stop();
    return { weights, samples: 1 };
  };
  assert.equal(await agent.run(), "stopped");
  assert.equal(platform.seen.size, 0);
});

test("whoever stops an agent does not wait for its training, or for a figure", async () => {
  for (const work of /** @type {const} */ (["train", "evaluate"])) {
    const { phone, platform } = await invited();
    const agent = phone.open();
    let began = false;
    Object.assign(phone.trainer, { [work]: () => {
      began = true;
      return new Promise(() => {});
    } });
    const running = agent.run();
    await until(() => began);
    assert.equal(await agent.leave(), true);
    assert.equal(await running, "stopped");
    assert.equal(platform.seen.size, 0);
    assert.deepEqual(phone.events("not evaluated"), []);
  }
});

test("of two tabs one runs, and the other takes over when it is closed", async () => {
  const { phone, platform } = await invited();
  const locks = /** @type {any} */ (new FakeLocks());
  platform.rounds = [];
  const hold = (/** @type {number} */ _seconds, /** @type {AbortSignal | undefined} */ signal) =>
    new Promise((/** @type {(value: void) => void} */ _, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  const first = phone.open(undefined, { locks, sleep: hold });
  const running = first.run();
  await until(() => platform.calls.includes("status"));
  const second = phone.open(undefined, { locks });
  const waiting = second.run();
  await until(() => phone.events("elsewhere").length);
  await assert.rejects(phone.open(undefined, { locks }).claim(), Conflict);
  assert.deepEqual(phone.trainer.trained, []);
  platform.rounds = [{ number: 1, state: "open", last_call: 1, uploads: 0 }];
  await first.stop();
  assert.deepEqual([await running, await waiting], ["stopped", "ended"]);
  assert.deepEqual(phone.trainer.trained, [1, 2, 3]);
});

test("two runs of one agent are one", async () => {
  const { phone, agent } = await invited();
  assert.deepEqual(await Promise.all([agent.run(), agent.run()]), ["ended", "ended"]);
  assert.deepEqual(phone.trainer.trained, [1, 2, 3]);
});

test("the same claim is sent again when its answer was lost, and comes to the same", async () => {
  for (const early of [true, false]) {
    const { phone, agent, platform } = await invited({ early, rounds: 1 });
    let lost = 2;
    const pay = platform._claim.bind(platform);
    platform.instead.claim = (_task, /** @type {Uint8Array} */ claim) => {
      const paid = pay(claim);
      if (lost-- > 0) throw new ServiceUnavailable("no answer");
      return paid;
    };
    assert.equal(await agent.run(), "ended");
    assert.deepEqual(roundsClaimed(platform), [[1]]);
    assert.deepEqual(phone.events("claimed"), [{ millionths: 100n }]);
  }
});

test("equal parts are claimed round by round while the task runs, by claims that each name all before", async () => {
  const { phone, agent, platform } = await invited({ early: true });
  platform.autoFinish = false;
  const running = agent.run();
  for (const number of [1, 2]) {
    await until(() => platform.held.has(number));
    platform.finish(number);
    await until(() => phone.events("claimed").length === number);
    const shown = await view(phone.store, TASK);
    assert.deepEqual([shown?.claim.state, shown?.claim.claimed, shown?.rounds[number - 1].pay?.state], ["claimed", number === 1 ? 100n : 300n, "waiting"]);
  }
  await until(() => platform.held.has(3));
  platform.finish(3);
  assert.equal(await running, "ended");
  assert.deepEqual(roundsClaimed(platform), [[1], [1, 2], [1, 2, 3]]);
  assert.deepEqual(phone.events("claimed").map(({ millionths }) => millionths), [100n, 300n, 600n]);
});

test("what shows servers more is claimed after the last round only", async () => {
  const { phone, agent, platform } = await invited({ early: false });
  platform.autoFinish = false;
  await agent.join();
  await agent.participant.step(phone.trainer);
  platform.finish(1);
  await agent.participant.step(phone.trainer);
  assert.equal((await view(phone.store, TASK))?.claim.state, "later");
  await assert.rejects(agent.claim(), /after its last round/);
  platform.state = "cancelled";
  await assert.rejects(agent.claim(), NotReady, "round 2 is under way");
  platform.finish(2, "aborted");
  Object.assign(platform, { rounds: platform.rounds.slice(0, 2) });
  assert.equal(await agent.run(), "ended");
  assert.deepEqual(roundsClaimed(platform), [[1]]);
});

test("a claim that nobody answers while the task runs keeps no round waiting", async () => {
  const { phone, agent, platform } = await invited({ early: true });
  platform.instead.claim = () => { throw new ServiceUnavailable("the second server is away"); };
  const running = agent.run();
  await until(() => platform.held.has(3));
  delete platform.instead.claim;
  assert.equal(await running, "ended");
  assert.ok(phone.events("waiting").length > 0);
  assert.deepEqual(roundsClaimed(platform), [[1, 2, 3]]);
});

test("a platform that was restored is sent the claim again", async () => {
  const { phone, agent, platform } = await invited({ early: true, rounds: 2 });
  platform.autoFinish = false;
  const running = agent.run();
  await until(() => platform.held.has(1));
  platform.finish(1);
  await until(() => platform.held.has(2) && platform.paid);
  Object.assign(platform, { epoch: "second", paid: 0 });
  await until(() => platform.paid);
  assert.equal(phone.events("claimed").length, 1);
  platform.finish(2);
  await running;
});

test("a refused claim is told and not repeated; its owner can try again", async () => {
  const { phone, agent, platform } = await invited();
  platform.instead.claim = () => { throw new ClaimRefused("no"); };
  assert.equal(await agent.run(), "ended");
  assert.deepEqual(phone.events("not paid"), [{ why: "no" }]);
  assert.equal(platform.calls.filter((call) => call === "claim").length, 1);
  assert.equal((await view(phone.store, TASK))?.claim.state, "refused");
  assert.equal((await phone.store.keys(TASK, "refused-claims/")).length, 1);
  await assert.rejects(phone.open().claim(), ClaimRefused);
  delete platform.instead.claim;
  assert.equal(await phone.open().claim(), 600n);
  const claim = (await view(phone.store, TASK))?.claim;
  assert.deepEqual([claim?.state, claim?.why], ["claimed", null]);
});

test("that the time to claim is over is believed on the signed day, and asked about again before", async () => {
  const { phone, agent, platform } = await invited();
  platform.instead.claim = () => { throw new TooLate("over"); };
  const running = agent.run();
  await until(async () => (await view(phone.store, TASK))?.claim.state === "refused");
  assert.equal(await running, "ended");
  assert.ok(phone.time >= ROUNDS_UNTIL + 150);
  assert.deepEqual(phone.events("not paid").length, 1);
  phone.time += 3600;
  await assert.rejects(phone.open().claim(), TooLate);
  assert.equal((await view(phone.store, TASK))?.claim.state, "expired");
});

test("a platform that closes its books before the signed day is not believed", async () => {
  const { phone, agent, platform } = await invited({ claimsUntil: ROUNDS_UNTIL + 10_000, settings: { window: 1500 } });
  const { status } = platform._acts(/** @type {any} */ ({}));
  platform.instead.status = () => ({ ...status(), state: platform.state === "running" || phone.time > ROUNDS_UNTIL + 3000 ? platform.state : "settled" });
  assert.equal(await agent.run(), "ended");
  assert.deepEqual(phone.events("not paid").length, 1);
  assert.deepEqual(phone.events("claimed"), [{ millionths: 600n }]);
});

test("a later last day of claims counts if CSP has signed it", async () => {
  for (const [text, refused] of /** @type {const} */ ([["until 1000400", false], ["never", true]])) {
    const { phone, agent, platform } = await invited({ rounds: 1 });
    platform.extended = text;
    platform.instead.reward = () => { throw new NotReady("gone"); };
    assert.equal(await agent.run(), "ended");
    const until = refused ? 1_000_300 : 1_000_400;
    assert.ok(phone.time >= until && phone.time < until + 50, `${phone.time}`);
    assert.equal((await view(phone.store, TASK))?.claim.until, until);
    assert.equal(phone.events("extension refused").length, refused ? 1 : 0);
  }
});

test("nothing is claimed without a budget, or by someone who earned nothing", async () => {
  const free = await invited({ payment: 0n });
  assert.equal(await free.agent.run(), "ended");
  const late = await invited();
  late.platform.instead.send = (_task, number) => {
    late.platform.finish(number);
    throw new TooLate("over");
  };
  assert.equal(await late.agent.run(), "ended");
  for (const { platform, phone } of [free, late]) {
    assert.equal(platform.calls.includes("claim"), false);
    assert.equal((await view(phone.store, TASK))?.claim.state, "none");
  }
});

test("a missing reward holds up no other, and is claimed when it comes", async () => {
  const { phone, agent, platform } = await invited();
  const reward = platform._acts(/** @type {any} */ ({})).reward;
  platform.instead.reward = (task, number, keys) => {
    if (number === 2 && phone.slept.length < 30) throw new NotReady("the file is lost");
    return reward(task, number, keys);
  };
  assert.equal(await agent.run(), "ended");
  assert.deepEqual(roundsClaimed(platform), [[1, 3], [1, 2, 3]]);
  assert.deepEqual(phone.events("claimed").map(({ millionths }) => millionths), [400n, 600n]);
});

test("a reward that never comes is waited for until the last day of claims", async () => {
  const { phone, agent, platform } = await invited({ rounds: 1 });
  platform.instead.reward = () => { throw new NotReady("gone"); };
  assert.equal(await agent.run(), "ended");
  assert.ok(phone.time >= ROUNDS_UNTIL + 150);
  assert.deepEqual(roundsClaimed(platform), []);
});

test("masks that CSP has lost cost the newest round only, and the refused claim is kept", async () => {
  const { phone, agent, platform } = await invited();
  const pay = platform._claim.bind(platform);
  platform.instead.claim = (_task, /** @type {Uint8Array} */ claim) => {
    if (JSON.parse(new TextDecoder().decode(claim)).rounds.includes(3)) throw new MasksDoNotFit("round 3 is unknown");
    return pay(claim);
  };
  assert.equal(await agent.run(), "ended");
  assert.deepEqual(phone.events("claimed"), [{ millionths: 300n }]);
  assert.deepEqual(phone.events("not paid"), [{ why: "round 3 is unknown" }]);
  assert.equal((await phone.store.keys(TASK, "refused-claims/")).length, 1);
  const claim = (await view(phone.store, TASK))?.claim;
  assert.deepEqual([claim?.state, claim?.claimed, claim?.amount], ["refused", 300n, 300n]);
});

test("a claim that SP says came too early is sent again", async () => {
  const { phone, agent, platform } = await invited();
  const pay = platform._claim.bind(platform);
  platform.instead.claim = (_task, /** @type {Uint8Array} */ claim) => {
    if (phone.slept.length < 10) throw new NotReady("round 3 is under way");
    return pay(claim);
  };
  assert.equal(await agent.run(), "ended");
  assert.deepEqual(phone.events("claimed").length, 1);
});

/** @param {[number, bigint][]} paid @param {[number, bigint][]} [unused] @param {[number, bigint][]} [disputed] */
const answered = (paid, unused = [], disputed = []) => ({ paid: new Map(paid), unused: new Map(unused), disputed: new Map(disputed) });

test("an SP that books less than CSP has signed is found short", async () => {
  const { agent, platform, phone } = await invited();
  platform.instead.claim = () => answered([[1, 100n], [2, 150n]]);
  await agent.run();
  assert.deepEqual(phone.events("claimed"), [{ millionths: 250n, missing: new Map([[2, 50n], [3, 300n]]) }]);
  const claim = (await view(phone.store, TASK))?.claim;
  assert.deepEqual([claim?.state, claim?.claimed, claim?.short], ["claimed", 250n, [2, 3]]);
});

test("what is disputed is shown, is not booked, and is asked about again until it is decided", async () => {
  const { agent, platform, phone } = await invited({ rounds: 2, claimsUntil: ROUNDS_UNTIL + 10_000, settings: { window: 1500 } });
  platform.instead.claim = () => (phone.time < ROUNDS_UNTIL + 5000 ? answered([[1, 100n]], [], [[2, 200n]]) : answered([[1, 100n]], [[2, 200n]]));
  const running = agent.run();
  await until(() => phone.events("claimed").length);
  const claim = (await view(phone.store, TASK))?.claim;
  assert.deepEqual([claim?.state, claim?.claimed, claim?.disputed, claim?.short], ["claimed", 100n, [2], []]);
  assert.equal(await running, "ended");
  assert.deepEqual(phone.events("claimed"), [{ millionths: 100n, disputed: [2] }, { millionths: 300n }]);
  assert.ok(platform.calls.filter((call) => call === "claim").length <= 4, "once an hour");
});

test("where to be paid is sent while the task runs, and named in the next claim, also when that is all that is new", async () => {
  const { phone, agent, platform } = await invited({ early: true, rounds: 2 });
  await agent.join();
  await agent.payTo("email", "ann@example.org");
  assert.deepEqual(platform.places, ['[1,"email","ann@example.org"]']);
  assert.equal(await agent.run(), "ended");
  const counters = () => [...platform.claims].map((claim) => JSON.parse(claim).counter);
  assert.deepEqual(counters(), [1]);
  await phone.open().payTo("text", "at the desk");
  assert.equal((await view(phone.store, TASK))?.payTo.state, "sent");
  assert.equal(await phone.open().run(), "ended");
  assert.deepEqual([counters(), platform.places.length], [[1, 2], 2]);
  const calls = platform.calls.length;
  assert.equal(await phone.open().run(), "ended");
  assert.equal(platform.calls.length, calls + 1, "nothing is new but where the money stands");
});

test("a place to be paid that comes after the time to claim is closed, and undoes nothing", async () => {
  const { phone, agent, platform } = await invited({ rounds: 1 });
  await agent.run();
  platform.instead.claim = () => { throw new TooLate("over"); };
  await phone.open().payTo("text", "at the desk");
  assert.equal(await phone.open().run(), "ended");
  const shown = await view(phone.store, TASK);
  assert.deepEqual([shown?.claim.state, shown?.payTo.state], ["claimed", "closed"]);
});

test("someone who leaves is paid for what was done, after the end", async () => {
  const { phone, agent, platform } = await invited();
  platform.autoFinish = false;
  await agent.join();
  await agent.participant.step(phone.trainer);
  platform.finish(1);
  assert.equal(await agent.leave(), true);
  assert.equal(platform.quits, 1);
  const running = agent.run();
  await until(() => phone.slept.length > 3);
  assert.deepEqual(phone.trainer.trained, [1]);
  platform.state = "finished";
  platform.rounds = platform.rounds.slice(0, 1);
  assert.equal(await running, "ended");
  assert.deepEqual(phone.events("claimed"), [{ millionths: 100n }]);
  assert.equal((await view(phone.store, TASK))?.phase, "left");
});

test("who leaves while the platform is away has left, and the platform hears it later", async () => {
  const { phone, agent, platform } = await invited();
  platform.autoFinish = false;
  await agent.join();
  platform.instead.quit = () => { throw new ServiceUnavailable("away"); };
  assert.equal(await agent.leave(), false);
  delete platform.instead.quit;
  assert.equal(await phone.open().run(), "left");
  assert.deepEqual([platform.quits, phone.trainer.trained], [1, []]);
});

test("forgetting asks first where rewards would be lost", async () => {
  const { phone, agent, platform } = await invited();
  platform.autoFinish = false;
  await agent.join();
  await agent.participant.step(phone.trainer);
  const owed = await agent.forget();
  assert.deepEqual(owed, { forgotten: false, unclaimed: { amount: 0n, owed: [1] }, told: false });
  platform.finish(1);
  await agent.participant.step(phone.trainer);
  assert.deepEqual((await agent.forget()).unclaimed, { amount: 100n, owed: [2] });
  assert.ok(await phone.store.has(TASK, "keys"), "nothing was erased");
  const done = await agent.forget({ loseRewards: true });
  assert.deepEqual([done.forgotten, done.told, platform.quits], [true, true, 1]);
  assert.equal(await view(phone.store, TASK), null);
  assert.equal(/** @type {any} */ (phone.tables).kept.size, 0);
});

test("after being paid everything is forgotten without a question", async () => {
  const { phone, agent } = await invited();
  await agent.run();
  await phone.store.addRecording(TASK, { id: "a", label: "w", times: new Float64Array(), signal: new Float64Array(), channels: 3 });
  assert.deepEqual(await agent.forget(), { forgotten: true, unclaimed: { amount: 0n, owed: [] }, told: true });
  assert.equal(/** @type {any} */ (phone.tables).kept.size, 0);
});

test("an agent in another tab ends without a trace when the campaign is forgotten", async () => {
  const { phone, agent, platform } = await invited();
  platform.autoFinish = false;
  const running = agent.run();
  await until(() => phone.slept.length > 2);
  await phone.open().forget({ loseRewards: true });
  platform.finish(1);
  assert.equal(await running, "forgotten");
  assert.equal(/** @type {any} */ (phone.tables).kept.size, 0);
  assert.equal(await phone.open().run(), "forgotten");
});

test("whoever leaves in another tab while this one enrols has left", async () => {
  const { phone, agent, platform } = await invited();
  await agent.join();
  const enrol = platform._acts(/** @type {any} */ ({})).enrol;
  platform.instead.enrol = async (task, certificate) => {
    await phone.open().leave();
    return enrol(task, certificate);
  };
  assert.equal(await phone.open().run(), "left");
  assert.deepEqual([phone.trainer.trained, platform.quits], [[], 2]); // SP was told again after the enrolment
});

test("a mistake in a listener ends nothing, and is reported", async () => {
  const { phone, platform } = await invited();
  /** @type {unknown[]} */
  const reported = [];
  const hear = (/** @type {unknown} */ error) => reported.push(error);
  const others = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", hear);
  try {
    assert.equal(await phone.open(undefined, { onEvent: () => { throw new Error("of the page"); } }).run(), "ended");
    await until(() => reported.length > 3);
  } finally {
    process.removeListener("uncaughtException", hear);
    others.forEach((one) => process.on("uncaughtException", one));
  }
  assert.equal(platform.paid, 1);
});

test("whom SP no longer knows after the end still sees how the task ended", async () => {
  const { phone, agent, platform } = await invited();
  await agent.join();
  Object.assign(platform, { state: "cancelled", rounds: [] });
  platform.instead.enrol = () => { throw new TaskNotRunning("the task is cancelled"); };
  assert.equal(await phone.open().run(), "ended");
  assert.equal((await view(phone.store, TASK))?.state, "cancelled");
});

test("a refused claim is not forgotten without a question", async () => {
  const { agent, platform } = await invited();
  platform.instead.claim = () => { throw new ClaimRefused("no"); };
  await agent.run();
  assert.deepEqual((await agent.forget()).unclaimed, { amount: 600n, owed: [] });
});

for (const [what, comeBack, most] of /** @type {const} */ ([["while nobody knows when the next round is", 0, 50], ["while the next round is far away", 1800, 3]])) {
  test(`an idle phone asks ${most} times an hour at most, ${what}`, async () => {
    const phone = new FakePhone(new FakePlatform({ settings: { window: 3600 } }));
    const agent = await phone.invited();
    await agent.join();
    phone.platform.autoFinish = false;
    phone.platform.rounds = [];
    phone.platform.comeBack = comeBack;
    const [stop, looks] = [new AbortController(), /** @type {number[]} */ ([])];
    phone.platform.instead.status = () => {
      looks.push(phone.time);
      if (phone.time > looks[0] + 7200) stop.abort(new DOMException("", "AbortError"));
      return { state: "running", epoch: "first", dropped: 0, rounds: [], enrolled: 5, enrolment: "open", come_back: comeBack, claims_extended: null, ended: null };
    };
    const before = phone.platform.calls.length;
    await agent.run(stop.signal).catch(() => {});
    const calls = phone.platform.calls.slice(before).filter((name) => name !== "papers" && name !== "enrol");
    assert.deepEqual([...new Set(calls)], ["status"], "nothing else is asked");
    const hour = looks.filter((at) => at > looks[0] + 3600 && at <= looks[0] + 7200).length; // the second: the first begins with quick looks
    assert.ok(hour <= most && hour > 0, `${hour}`);
  });
}
