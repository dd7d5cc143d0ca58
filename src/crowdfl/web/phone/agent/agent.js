// A participant's agent: takes part in a task until it ends, and claims what was earned. The port of roles/participant/agent.py.
//
// It polls the platform and waits while the platform is away. How to wait is passed in. What happens is told to `onEvent`. A tab
// may be closed at any moment: the next one goes on where it stopped. Of several tabs, one runs; another takes over from it.

import { ClaimRefused, Forgotten, NotAuthenticated, NotReady, TaskNotRunning, TooLate, passes, wordsOf } from "../protocol/errors.js";
import { UNDER_WAY, total } from "./claiming.js";
import { heldFile } from "./export.js";
import { Participant } from "./participant.js";
import { keepWords, reminderState, subscribe } from "./reminders.js";
import { Backoff, retry, sleep as sleepFor, uniform } from "./retry.js";
import { OneTab } from "./tabs.js";
import { CONTRIBUTION } from "./uploads.js";

/** @typedef {import("./participant_context.js").Trainer} Trainer */
/** @typedef {import("../protocol/invitation.js").Invitation} Invitation */
/** @typedef {import("./participant_context.js").ParticipantPlatform & {attach?: import("./api.js").Platform["attach"]}} AgentPlatform */
/** @typedef {"ended" | "left" | "stopped" | "forgotten"} Outcome */
/** @typedef {{amount: bigint, owed: number[]}} Unclaimed Millionths, and rounds whose reward is not known yet. */

/**
 * @typedef {object} AgentOptions
 * @property {import("./store.js").Store} store
 * @property {AgentPlatform} platform
 * @property {Invitation} invitation
 * @property {Trainer} trainer
 * @property {import("./participant_context.js").OnEvent} [onEvent]
 * @property {import("./retry.js").Sleep} [sleep]
 * @property {LockManager | null} [locks] null: nobody else runs.
 * @property {(low: number, high: number) => number} [jitter]
 * @property {() => number} [now] Seconds since 1970.
 * @property {typeof import("./protocol.js")} [protocol]
 */

const LONGEST = 80; // seconds between two looks at the platform
const LOOKS_UNKNOWN = 10; // until a platform that does not know this participant is believed
const FAREWELL = 15; // seconds that leaving waits for the platform; it is told later

export class Agent {
  /** @param {AgentOptions} options */
  constructor(options) {
    const { store, platform, invitation, trainer, onEvent = () => {}, now, protocol } = options;
    const { sleep = sleepFor, locks = globalThis.navigator?.locks ?? null, jitter = uniform } = options;
    const { task, kgcKey, spKey } = invitation;
    this.task = task;
    this._onEvent = unbroken(onEvent);
    this.participant = new Participant({ task, store, platform, kgcKey, spKey, onEvent: this._onEvent, now, protocol });
    this._store = store;
    this._platform = platform;
    this._invitation = invitation;
    this._trainer = trainer;
    this._sleep = sleep;
    this._tab = new OneTab(`crowdfl ${task}`, locks);
    this._jitter = jitter;
    /** @type {{stopper: AbortController, done: Promise<Outcome>} | null} */
    this._running = null;
    this._waking = new AbortController();
    this._attach();
  }

  /** What the task is, as its requester signed it; the invitation is kept from now on. */
  async look() {
    await this._store.open(this.task, this._invitation);
    return this.participant.look();
  }

  /** Why nobody can join now with such an invitation, null if somebody can; and how far this device's clock is ahead. */
  entry() {
    return this.participant.entry(this._invitation.replaces);
  }

  /** The owner accepts averages of so few people; and, all the same, a platform that may be all others. @param {number} least @param {boolean} [allTheSame] */
  accept(least, allTheSame = false) {
    return this.participant.accept(least, allTheSame);
  }

  /** The owner has read the consent text, in this language ("": the task's own), and agrees. @param {{language?: string}} [read] */
  agree({ language } = {}) {
    return this.participant.agree(language);
  }

  /** The owner's copy of what was agreed to, as a file; null if nothing was. */
  async consentCopy() {
    const [consent, receipt] = [await this._store.get(this.task, "consent"), await this._store.get(this.task, "consent-receipt")];
    if (consent === undefined) return null;
    const { definition } = await this.participant.context.papers();
    const text = this.participant.context.protocol.consentCopy(definition.body, consent, receipt ?? null);
    return { name: `consent-${this.task.slice(0, 8)}.json`, text };
  }

  /** All that this device holds of the task, as a file. */
  heldFile() {
    return heldFile(this._store, this.task);
  }

  /** Where SP's word and CSP's signed record differ, as a file with both, and whom to send it to; null if they do not. */
  evidence() {
    return this.participant.evidence();
  }

  /** Take a place in the task, also again after leaving. An error is told at once: an address may be wrong. */
  async join() {
    await this.stop();
    await this._store.open(this.task, this._invitation);
    return this._tab.now(async () => {
      await this._prepare();
      return this.participant.join(this._invitation.invitation);
    });
  }

  /**
   * Take part until the task has ended and is paid for; after an interruption, continue where it stopped. While another tab
   * runs, wait for its end. What does not pass by itself is thrown.
   * @param {AbortSignal} [signal] Ends it. @returns {Promise<Outcome>}
   */
  run(signal) {
    if (!this._running) {
      const stopper = new AbortController();
      const stop = signal ? AbortSignal.any([signal, stopper.signal]) : stopper.signal;
      const done = this._run(stop).finally(() => {
        this._running = null;
        this._attach();
      });
      this._running = { stopper, done };
    }
    return this._running.done;
  }

  /** End a run of this tab, and wait until it has. */
  async stop() {
    this._running?.stopper.abort(new DOMException("stopped", "AbortError"));
    await this._running?.done.catch(() => {});
  }

  /** Look at the platform now: there are new recordings, or the owner is curious. */
  wake() {
    this._waking.abort();
  }

  /** Claim what was earned so far, now; millionths that the platform has booked. `NotReady` says what is waited for. */
  async claim() {
    await this.stop();
    return this._tab.now(async () => {
      await this.participant.payTo.send();
      return this.participant.claim();
    });
  }

  /** How the platform pays people out. */
  payKinds() {
    return this.participant.payTo.kinds();
  }

  /**
   * Where to be paid; the next claim names it. Again, to correct it.
   * @param {string} kind @param {string} to Throws `WrongDestination`, and `Conflict` where nobody asks.
   */
  payTo(kind, to) {
    return this.participant.payTo.put(kind, to);
  }

  /**
   * Have this phone reminded of rounds; from a tap, for the browser asks.
   * @param {import("./reminders.js").Words} words @returns {Promise<import("./reminders.js").ReminderState>}
   */
  async remind(words) {
    const { push } = await this._platform.offers();
    const can = await reminderState();
    if (!push || (can !== "on" && can !== "off")) return push ? can : "unsupported";
    const subscription = await subscribe(push);
    if (!subscription) return reminderState();
    await keepWords(words);
    await this._platform.remind(this.task, subscription, await this.participant.context.keys());
    await this._store.put(this.task, "reminded", true);
    return "on";
  }

  /** The browser's subscription stays: other tasks may use it. */
  async stopReminding() {
    await this._platform.stopReminding(this.task, await this.participant.context.keys());
    await this._store.delete(this.task, "reminded");
  }

  /** Leave the task; whether the platform knows it already. What was earned stays claimable: `run` does that. */
  async leave() {
    await this.stop();
    await this._store.put(this.task, "left", Date.now() / 1000);
    return this._farewell();
  }

  /**
   * Leave for good, delete the recordings, and take back what was sent and no server has begun to average: the rounds whose
   * upload was deleted, and those that it stands in. Both are null until the platform was told.
   */
  async withdraw() {
    await this.stop();
    await this._store.change(this.task, { left: Date.now() / 1000, withdrawing: true }, [CONTRIBUTION]);
    for (const { id } of await this._store.listRecordings(this.task)) await this._store.deleteRecording(this.task, id);
    const told = await this._farewell();
    const found = /** @type {{deleted: number[], standing: number[]} | undefined} */ (await this._store.get(this.task, "withdrawn"));
    return { told, deleted: found?.deleted ?? null, standing: found?.standing ?? null };
  }

  /** What would be lost with the keys. @returns {Promise<Unclaimed>} */
  async unclaimed() {
    const { kept } = this.participant;
    const settled = (await kept.get("not-paid"))?.late || !(await kept.has("certificate"));
    if (settled || !(await this.participant.rewards.arePaid())) return { amount: 0n, owed: [] };
    return { amount: total((await kept.unanswered()).values()), owed: await kept.owed() };
  }

  /**
   * Erase keys, recordings and state, after leaving. Where rewards would be lost, nothing is erased unless the owner says so.
   * @param {{loseRewards?: boolean}} [options]
   * @returns {Promise<{forgotten: boolean, unclaimed: Unclaimed, told: boolean}>} `told`: the platform knows.
   */
  async forget({ loseRewards = false } = {}) {
    const unclaimed = await this.unclaimed();
    if (!loseRewards && (unclaimed.amount > 0n || unclaimed.owed.length)) return { forgotten: false, unclaimed, told: false };
    await this.stop();
    const told = (await this._store.has(this.task, "over")) || !(await this.participant.hasJoined()) || (await this.leave());
    await this._store.forget(this.task);
    return { forgotten: true, unclaimed, told };
  }

  /** @returns {Promise<boolean>} Whether the platform was told; else the next run does. */
  async _farewell() {
    this._attach(AbortSignal.timeout(FAREWELL * 1000));
    try {
      await this.participant.leave();
      return true;
    } catch (error) {
      if (error instanceof Forgotten) throw error;
      this._onEvent("waiting", { why: wordsOf(error), wrong: error, seconds: 0 });
      return false;
    } finally {
      this._attach();
    }
  }

  /** @param {AbortSignal} stop @returns {Promise<Outcome>} */
  async _run(stop) {
    try {
      return await this._tab.whenFree(() => this._takePart(stop), stop, () => this._onEvent("elsewhere", {}));
    } catch (error) {
      if (error instanceof Forgotten) return "forgotten";
      if (stop.aborted) return "stopped";
      throw error;
    }
  }

  /** @param {AbortSignal} stop @returns {Promise<Outcome>} */
  async _takePart(stop) {
    this._attach(stop);
    stop.throwIfAborted();
    if (!(await this._store.has(this.task, "invitation"))) return "forgotten";
    if (await this._store.has(this.task, "over")) {
      if (await this.participant.payTo.isNew()) await this._claim(stop, true); // what was given without a network
      else await this._askPay();
      return "ended";
    }
    await this._prepare();
    if (!(await this.participant.hasLeft())) await this._patiently(() => this._enrol(), stop);
    await this._follow(stop);
    return this._finish();
  }

  /** Again on every page: SP may have been restored from a backup. After the end it takes nobody whom it does not know. */
  async _enrol() {
    try {
      await this.participant.enrol(this._invitation.invitation);
    } catch (ended) {
      if (!(ended instanceof TaskNotRunning) || !(await this.participant.hasJoined())) throw ended;
    }
  }

  /** Someone who cannot train must not take a place. */
  async _prepare() {
    if (await this.participant.hasJoined()) return;
    const { definition, shares } = await this.participant.look();
    await this._trainer.prepare?.(shares, definition);
  }

  /** Step by step until the task has ended and all is claimed. Polls less often while nothing happens. @param {AbortSignal} stop */
  async _follow(stop) {
    const looks = this._idle(stop, await this._longestWait()).start();
    for (;;) {
      stop.throwIfAborted();
      const did = await this._patiently(() => this.participant.step(this._trainer), stop);
      if ((await this._claim(stop)) || did) looks.succeed();
      else if (await this._goesOn()) await looks.wait(this.participant.comeBack);
      else return;
    }
  }

  async _goesOn() {
    return UNDER_WAY.includes(this.participant.state) || (await this._isOwedWords()) || this.participant.awaitsClaim();
  }

  async _isOwedWords() {
    return this.participant.state === "left" && this.participant.awaitsWords();
  }

  async _longestWait() {
    const { window } = await this.participant.context.shares();
    return Math.min(LONGEST, Math.max(3, window / 15));
  }

  /**
   * What can be claimed now, and where to be paid; true if the platform has answered. A refusal is an event. Nobody's training
   * waits for it: while the task is under way, a platform that does not answer is asked at the next look.
   * @param {AbortSignal} stop @param {boolean} [always]
   */
  async _claim(stop, always = false) {
    const act = async () => {
      await this.participant.payTo.send();
      if (!always && !(await this.participant.isClaimDue())) return false;
      await this.participant.claim();
      await this._askPay();
      return true;
    };
    const underWay = await this._isUnderWay();
    try {
      return await (underWay ? act() : this._patiently(act, stop));
    } catch (refusal) {
      if (refusal instanceof NotReady || refusal instanceof ClaimRefused || refusal instanceof TooLate) return false;
      if (!underWay || !(passes(refusal) || refusal instanceof NotAuthenticated)) throw refusal;
      this._tellAway(refusal, 0);
      return false;
    }
  }

  /** Where the money stands; what the platform said last is shown meanwhile. */
  async _askPay() {
    try {
      await this.participant.claims.askPay();
    } catch (error) {
      if (error instanceof Forgotten) throw error;
    }
  }

  /** @returns {Promise<Outcome>} */
  async _finish() {
    if (this.participant.state === "left" && (await this._isUnderWay())) return "left";
    await this._store.put(this.task, "over", true);
    this._onEvent("ended", {});
    return "ended";
  }

  async _isUnderWay() {
    return UNDER_WAY.includes((await this._store.get(this.task, "status"))?.state);
  }

  /**
   * Repeat what may pass: a platform that is away, fails, has no room or no database. A refusal is final. A platform that was
   * restored may not know this participant until it enrols again: that is waited for a few minutes. Someone who has not joined
   * yet gets the error at once: the address may be wrong.
   * @template T @param {() => Promise<T>} act @param {AbortSignal} stop
   */
  _patiently(act, stop) {
    let unknown = 0;
    const away = new Backoff({ first: 1.5, longest: LONGEST, jitter: this._jitter, sleep: this._rest, signal: stop });
    const mayPass = (/** @type {unknown} */ error) =>
      passes(error) || (error instanceof NotAuthenticated && ++unknown < LOOKS_UNKNOWN);
    return retry(act, away, async (error) => mayPass(error) && this.participant.hasJoined(), this._tellAway);
  }

  /** @param {AbortSignal} stop @param {number} [longest] */
  _idle(stop, longest = LONGEST) {
    return new Backoff({ first: 1, longest, factor: 1.5, jitter: this._jitter, sleep: this._rest, signal: stop });
  }

  /** A wait that `wake` ends. @type {import("./retry.js").Sleep} */
  _rest = async (seconds, signal) => {
    this._waking = new AbortController();
    const waking = this._waking.signal;
    try {
      await this._sleep(seconds, signal ? AbortSignal.any([signal, waking]) : waking);
    } catch (error) {
      signal?.throwIfAborted();
      if (!waking.aborted) throw error;
    }
  };

  /** @param {unknown} why @param {number} seconds */
  _tellAway = (why, seconds) => {
    this._onEvent("waiting", { why: wordsOf(why), wrong: why, seconds: Math.round(seconds * 10) / 10 });
  };

  /** @param {AbortSignal} [signal] What ends calls to the platform that are under way. */
  _attach(signal) {
    this.participant.context.signal = signal;
    this._platform.attach?.(this._tellAway, signal);
  }
}

/**
 * A listener whose mistakes end nothing; they are reported as any error of the page.
 * @param {import("./participant_context.js").OnEvent} onEvent @returns {import("./participant_context.js").OnEvent}
 */
function unbroken(onEvent) {
  return (what, details) => {
    try {
      onEvent(what, details);
    } catch (error) {
      queueMicrotask(() => { throw error; });
    }
  };
}
