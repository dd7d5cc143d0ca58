// @ts-check
// A participant of one `shares` task: look before joining, enrol, train on data that stays here, upload, read, be paid, leave.
//
// The port of roles/participant.py. What must survive is stored before it is sent: an upload that was interrupted is sent
// again with the same bytes, so that it is the same upload.

import {
  AlreadyCounted, CrowdFLError, DocumentError, Forbidden, KeyMismatch, NotAuthenticated, NotReady, NothingToContribute,
  RewardOutOfRange, RoundNotOpen, ServiceError, TaskNotRunning, TooFewParticipants, TooLate, UnknownParticipant, UploadRejected,
  WrongBase,
} from "../protocol/errors.js";
import { ClaimTime, Claiming } from "./claiming.js";
import { isPlatforms, passes, wordsOf } from "./errors.js";
import { Holdings, named } from "./holdings.js";
import * as shares from "./protocol.js";

/** @typedef {import("./api.js").Status} Status */
/** @typedef {import("./holdings.js").Metrics} Metrics */
/** @typedef {import("../protocol/keys.js").Keys} Keys */
/** @typedef {import("../protocol/settings.js").SharesTask} SharesTask */
/** @typedef {Awaited<ReturnType<typeof shares.openDefinition>>} Definition */
/** @typedef {(what: string, details: Record<string, any>) => void} OnEvent */
/** @typedef {Pick<import("./api.js").Platform, "papers" | "initial" | "status" | "enrol" | "enrolAtKgc" | "send" | "uploaded"
 *    | "average" | "reward" | "claim" | "quit">} ParticipantPlatform */

/**
 * @typedef {object} Trainer The owner's data and the task's model.
 * @property {(task: SharesTask, definition: Definition) => Promise<void> | void} [prepare] Throws what would keep it from
 *   training such a model.
 * @property {(weights: Float64Array, training: any, round: number) => Promise<{weights: Float64Array, samples: number}>} train
 *   Throws `NothingToContribute` when there is too little data.
 * @property {(weights: Float64Array) => Promise<Metrics | null>} evaluate On the owner's held-out data.
 */

/**
 * @typedef {object} ParticipantOptions
 * @property {string} task
 * @property {import("./store.js").Store} store
 * @property {ParticipantPlatform} platform
 * @property {Uint8Array} kgcKey What certificates are checked with.
 * @property {Uint8Array} spKey What receipts are checked with.
 * @property {OnEvent} [onEvent]
 * @property {() => number} [now] Seconds since 1970.
 * @property {typeof shares} [protocol]
 */

export const LEAST_PARTICIPANTS = 5; // in a smaller crowd an average says too much about one person
const UNDER_WAY = ["running", "paused"];
const NOT_PASSED_ON = "the platform has not passed on an upload of yours for this round";

export class Participant {
  /** @param {ParticipantOptions} options */
  constructor({ task, store, platform, kgcKey, spKey, onEvent = () => {}, now = () => Date.now() / 1000, protocol = shares }) {
    this.task = task;
    this.kept = new Holdings(store, task);
    this.onEvent = onEvent;
    this.state = "running"; // the task's, when this participant last looked
    /** @type {AbortSignal | undefined} */
    this.signal = undefined;
    this._platform = platform;
    this._kgcKey = kgcKey;
    this._spKey = spKey;
    this._now = now;
    this._protocol = protocol;
    this.claimTime = new ClaimTime(now);
    /** @type {string | null} SP's, when this participant last looked */
    this._epoch = null;
    /** @type {Map<number, {epoch: string, uploads: number}>} */
    this._looked = new Map();
    /** @type {Set<string>} What need not be told again. */
    this._told = new Set();
    /** @type {Map<number, boolean>} Rewards that could not be read: may that pass? */
    this._unread = new Map();
    /** @type {{definition: Definition, shares: SharesTask} | null} */
    this._opened = null;
  }

  // Before and at joining.

  /** The task as its requester signed it and KGC appointed it: read this before joining. */
  async look() {
    const { definition, shares: task } = await this._papers();
    return { definition, shares: task };
  }

  async _papers() {
    const papers = await this._platform.papers(this.task);
    const definition = await this._protocol.openDefinition(papers.definition);
    const appointment = await this._protocol.openAppointment(papers.appointment, this._kgcKey);
    if (definition.task !== this.task || appointment.task !== this.task) {
      throw new DocumentError("the platform showed the papers of another task");
    }
    const task = this._protocol.sharesTask(definition);
    await this._keepDefinition(papers.definition, definition);
    return { definition, shares: task, appointment };
  }

  /** @param {string} text @param {Definition} definition Never another one: its hash is the task's name. */
  async _keepDefinition(text, definition) {
    if (!(await this.kept.has("definition"))) {
      await this.kept.add("definition", text, { purpose: String(definition.body.purpose) });
    }
  }

  /** Refuse a task whose averages may be of fewer people than the owner accepts. @param {SharesTask} task */
  async requireCompany(task) {
    const least = (await this.kept.get("least")) ?? LEAST_PARTICIPANTS;
    if (task.minParticipants >= least) return;
    throw new TooFewParticipants(`this task averages as few as ${task.minParticipants} participants, and you take part from `
      + `${least} on: ask the requester to raise min_participants, or accept the smaller crowd`);
  }

  /** The owner accepts so small a crowd. @param {number} least */
  accept(least) {
    return this.kept.put("least", least);
  }

  /** Enrol with KGC and SP; safe to repeat. @param {string} invitation */
  async join(invitation) {
    const { shares: task, appointment } = await this._papers();
    await this.requireCompany(task);
    if (!(await this.kept.has("keys"))) await this.kept.add("keys", await this._protocol.newKeys());
    if (!(await this.kept.has("certificate"))) await this._enrol(invitation, appointment.fingerprint);
    await this._platform.enrol(this.task, await this.kept.get("certificate"));
    await this.kept.change({}, ["quit", "left"]);
    const { who } = await this.keys();
    this.onEvent("joined", { who });
    return who;
  }

  /** @param {string} invitation @param {string} fingerprint */
  async _enrol(invitation, fingerprint) {
    const keys = await this.keys();
    const asked = await this._protocol.enrolmentRequest(this.task, invitation, keys);
    const sealed = await this._platform.enrolAtKgc(this.task, invitation, asked.request);
    const { certificate, bundle } = await this._protocol.openEnrolled(sealed, asked, keys, this._kgcKey);
    const opened = await this._protocol.openBundle(bundle);
    if (this._protocol.hex(opened.fingerprint) !== fingerprint) {
      throw new KeyMismatch("the keys that arrived are not those that KGC appointed to this task: tell the requester");
    }
    await this.kept.change({ bundle, certificate });
  }

  /** @returns {Promise<Keys>} */
  keys() {
    return this.kept.get("keys");
  }

  hasJoined() {
    return this.kept.has("certificate");
  }

  hasLeft() {
    return this.kept.has("left");
  }

  // A look at the platform, and what is due then.

  /** Read new averages and rewards, and take part in an open round. True if anything was done. @param {Trainer} trainer */
  async step(trainer) {
    const status = await this._status();
    if ((await this.hasLeft()) && UNDER_WAY.includes(this.state)) {
      this.state = "left";
      await this._quit();
      return false;
    }
    await this._comeBack(status);
    let did = false;
    for (const { number, state } of status.rounds) {
      did = (await this._stepRound(number, state, status, trainer)) || did;
    }
    return did;
  }

  /** @param {number} number @param {string} state @param {Status} status @param {Trainer} trainer */
  async _stepRound(number, state, status, trainer) {
    let did = false;
    const made = await this.kept.hasAny(number, "upload"); // its receipt may have been lost
    if (state === "open" || made) did = await this._takePart(number, status, trainer);
    if (state === "rewarded") {
      did = (await this._read(number, trainer)) || did;
      did = (await this._openReward(number)) || did;
    }
    if (state === "aborted") did = (await this._explain(number)) || did;
    if (state === "rewarded" || state === "aborted") await this._tidy(number);
    return did;
  }

  async _status() {
    const status = await this._platform.status(this.task);
    await this._keepStatus(status);
    this.state = status.state;
    if (UNDER_WAY.includes(status.state)) this.claimTime.sawRunning((await this._task()).shares.claimWindow);
    return status;
  }

  /** For the owner, who may be offline. @param {Status} status */
  async _keepStatus(status) {
    const before = /** @type {import("./holdings.js").KeptStatus | undefined} */ (await this.kept.get("status"));
    const left = status.claim_seconds_left ?? null;
    const now = { state: status.state, ended: status.ended ?? null, enrolled: status.enrolled ?? 0, rounds: status.rounds.map(brief) };
    const claimUntil = left === null ? null : this._now() + left;
    if (before && UNDER_WAY.includes(before.state)) this.claimTime.sawRunningAt(before.at, (await this._task()).shares.claimWindow);
    const { at: _at, claimUntil: until = null, ...same } = before ?? {};
    if (JSON.stringify(same) === JSON.stringify(now) && Math.abs((until ?? 0) - (claimUntil ?? 0)) < 60) return;
    await this.kept.put("status", { ...now, at: this._now(), claimUntil });
  }

  /** After SP was restored from a backup: enrol again, and send again the uploads that it no longer has. @param {Status} status */
  async _comeBack(status) {
    const epoch = String(status.epoch ?? "");
    if (this._epoch !== null && this._epoch !== epoch) {
      this.onEvent("restored", {});
      await this._platform.enrol(this.task, await this.kept.get("certificate"));
    }
    for (const entry of status.rounds) {
      const lost = entry.state === "open" && (await this._isLost(entry, `${epoch} ${status.dropped ?? 0}`));
      if (lost) await this._forgetReceipt(entry.number);
    }
    this._epoch = epoch;
  }

  /**
   * Asked once by each page, and again when SP was restored, has dropped uploads, or shows fewer than before.
   * @param {Status["rounds"][number]} entry @param {string} epoch
   */
  async _isLost({ number, uploads = 0 }, epoch) {
    const known = this._looked.get(number);
    const news = known === undefined || known.epoch !== epoch || known.uploads > uploads;
    const sent = news && (await this.kept.hasAny(number, "receipt")) && (await this.kept.hasAny(number, "upload"));
    const lost = sent && (await this._platform.uploaded(this.task, number, await this.keys())) === null;
    this._looked.set(number, { epoch, uploads });
    return lost;
  }

  /** What was made for the round is sent again; the first receipt is kept, as evidence. @param {number} number */
  async _forgetReceipt(number) {
    const first = (await this.kept.of(number, "lost-receipt")) ?? (await this.kept.of(number, "receipt"));
    await this.kept.change({ [named(number, "lost-receipt")]: first }, [named(number, "receipt")]);
    this.onEvent("sending again", { round: number });
  }

  // Taking part in a round.

  /** @param {number} number @param {Status} status @param {Trainer} trainer */
  async _takePart(number, status, trainer) {
    if (await this.kept.hasAny(number, "receipt", "refused")) return false;
    await this.requireCompany((await this._task()).shares); // before the work; the owner may have raised it since joining
    if (!(await this.kept.hasAny(number, "upload"))) {
      if ((await this._hadNothing(number)) || !(await this._hasCaughtUp(number, status))) return false;
      try {
        await this._train(number, trainer);
      } catch (nothing) {
        if (!(nothing instanceof NothingToContribute)) throw nothing;
        await this._noteNothing(number, nothing);
        return true;
      }
    }
    return this.send(number);
  }

  /** Nobody is asked twice about the same recordings: with new ones, an open round may still be reached. @param {number} number */
  async _hadNothing(number) {
    const before = await this.kept.of(number, "nothing");
    return before !== undefined && before.recordings === (await this._recordings());
  }

  /** @param {number} number @param {Error} nothing */
  async _noteNothing(number, nothing) {
    await this.kept.put(named(number, "nothing"), { why: nothing.message, recordings: await this._recordings() });
    this.onEvent("nothing to contribute", { round: number, why: nothing.message });
  }

  async _recordings() {
    return (await this.kept.store.recordingIds(this.task)).join(" ");
  }

  /** Whoever cannot read an average that the round builds on stays out of it, and looks again later. @param {number} number @param {Status} status */
  async _hasCaughtUp(number, status) {
    const { number: last } = await this._chain();
    return !status.rounds.some((entry) => last < entry.number && entry.number < number && entry.state === "rewarded");
  }

  /** @param {number} number @param {Trainer} trainer */
  async _train(number, trainer) {
    const { definition } = await this._task();
    const model = await this.model();
    await this._start(number, model, trainer);
    this.onEvent("training", { round: number });
    const { weights, samples } = await trainer.train(model, definition.body.training, number);
    this.signal?.throwIfAborted();
    await this.encrypt(number, weights, samples);
  }

  /** How the model does before the round, for the owner to compare. @param {number} number @param {Float64Array} model @param {Trainer} trainer */
  async _start(number, model, trainer) {
    const { number: last } = await this._chain();
    const before = (await this.kept.of(number, "before")) ?? (last ? await this.kept.of(last, "average") : undefined);
    const metrics = before?.accuracy === undefined ? await this._evaluate(trainer, model) : metricsOf(before);
    const put = { [named(number, "started")]: this._now(), ...(metrics ? { [named(number, "before")]: metrics } : {}) };
    await this.kept.change(put, [named(number, "nothing")]);
  }

  /**
   * A round's upload, made from what was trained; durable before it is sent, so that a retry sends the same bytes.
   * @param {number} number @param {Float64Array} weights @param {number} samples
   */
  async encrypt(number, weights, samples) {
    const { shares: task } = await this._task();
    const made = await this._protocol.makeUpload(task, await this._bundle(), await this.keys(), await this._chain(), weights, samples, number);
    const told = { samples, clipped: made.clipped, scaled: made.scaled };
    if (await this.kept.add(named(number, "upload"), made.bytes, { [named(number, "trained")]: told })) {
      this.onEvent("trained", { round: number, ...told });
    }
  }

  /** Upload what was made for a round; a refusal is noted and told. True if there was an answer. @param {number} number */
  async send(number) {
    this.signal?.throwIfAborted();
    await this.requireCompany((await this._task()).shares);
    const upload = await this.kept.of(number, "upload");
    let receipt;
    try {
      receipt = await this._sendAsEnrolled(number, upload);
    } catch (refusal) {
      return this._noteRefusal(number, refusal);
    }
    const late = await this._checked(receipt, number, upload);
    await this.kept.put(named(number, "receipt"), receipt);
    this.onEvent("uploaded", { round: number, bytes: upload.length, late });
    return true;
  }

  /** @param {number} number @param {unknown} refusal */
  async _noteRefusal(number, refusal) {
    if (refusal instanceof Forbidden && (await this.hasLeft())) return false; // while this was under way: who joins again may send it
    const known = [TooLate, RoundNotOpen, AlreadyCounted, TaskNotRunning, WrongBase].some((kind) => refusal instanceof kind);
    if (!known) throw refusal;
    const why = wordsOf(refusal);
    await this.kept.put(named(number, "refused"), { why, late: refusal instanceof TooLate || refusal instanceof RoundNotOpen });
    this.onEvent("refused", { round: number, why });
    return true;
  }

  /** An SP that was restored while this participant trained may not know it: then it enrols again. @param {number} number @param {Uint8Array} upload */
  async _sendAsEnrolled(number, upload) {
    const send = async () => this._platform.send(this.task, number, await this.keys(), upload,
      (sent) => this.onEvent("sending", { round: number, sent, of: upload.length }));
    try {
      return await send();
    } catch (unknown) {
      if (!(unknown instanceof NotAuthenticated || unknown instanceof UnknownParticipant)) throw unknown;
      const before = this._epoch;
      await this._comeBack(await this._platform.status(this.task));
      if (before === null || before === this._epoch) throw unknown;
    }
    return send();
  }

  /**
   * Whether SP counts the upload as late; a receipt that would prove nothing later is refused now.
   * @param {string} receipt @param {number} number @param {Uint8Array} upload
   */
  async _checked(receipt, number, upload) {
    try {
      const body = await this._protocol.openReceipt(receipt, this._spKey);
      const digest = this._protocol.hex(await this._protocol.sha256(upload));
      const { who } = await this.keys();
      const fits = body.task === this.task && body.round === number && body.who === who && body.digest === digest;
      if (!fits) throw new DocumentError(`the platform's receipt is not for this upload of round ${number}: keep it and complain`);
      return body.late === true;
    } catch (wrong) {
      await this.kept.put(named(number, "wrong-receipt"), receipt); // evidence
      throw wrong;
    }
  }

  /** A round that an upload was accepted for and that nobody is paid for. @param {number} number */
  async _explain(number) {
    if ((await this.kept.hasAny(number, "given-up")) || !(await this.kept.holdsReceipt(number))) return false;
    await this.kept.put(named(number, "given-up"), true);
    this.onEvent("given up", { round: number });
    return true;
  }

  /** An upload of a round that is over is not sent again: its bytes can go. @param {number} number */
  async _tidy(number) {
    if (!(await this.kept.hasAny(number, "upload")) || !(await this.kept.hasAny(number, "receipt", "refused"))) return;
    await this.kept.change({}, [named(number, "upload")]);
  }

  // Averages.

  /** @param {number} number @param {Trainer} trainer */
  async _read(number, trainer) {
    const { shares: task } = await this._task();
    const chain = await this._chain();
    if (number <= chain.number || number >= task.rounds) return false; // the last average is for the requester
    let read;
    try {
      const publication = await this._platform.average(this.task, number, await this.keys());
      read = await this._protocol.readPublication(task, await this._bundle(), chain, publication, number);
    } catch (wrong) {
      if (!(wrong instanceof CrowdFLError) || isPlatforms(wrong)) throw wrong; // away: training on an older model would be a pity
      this._tellOnce("average missing", number, wrong);
      return false;
    }
    const metrics = await this._evaluate(trainer, this._protocol.chainWeights(read.chain, task.unit));
    await this._keepAverage(number, read, metrics);
    this.onEvent("read", { round: number, ...metrics });
    return true;
  }

  /** @param {number} number @param {Awaited<ReturnType<typeof shares.readPublication>>} read @param {Metrics | null} metrics */
  async _keepAverage(number, read, metrics) {
    const { who } = await this.keys();
    const accepted = read.accepted.includes(who);
    const why = accepted || !(await this.kept.holdsReceipt(number)) ? null : read.rejected.get(who) ?? NOT_PASSED_ON;
    const news = why !== null && !(await this.kept.hasAny(number, "no-reward"));
    await this.kept.change({
      chain: this._protocol.chainToBytes(read.chain),
      [named(number, "average")]: { total: Number(read.total), people: read.accepted.length, ...metrics },
      ...(news ? { [named(number, "no-reward")]: why } : {}),
    }, ["initial"]);
    if (news) this.onEvent("upload rejected", { round: number, why });
  }

  /** @param {Trainer} trainer @param {Float64Array} weights */
  async _evaluate(trainer, weights) {
    try {
      return metricsOf(await trainer.evaluate(weights));
    } catch (wrong) {
      this.onEvent("not evaluated", { why: wordsOf(wrong) }); // a figure for the owner holds up nothing
      return null;
    }
  }

  /** The newest model that this participant has: the last average read, or the initial weights. */
  async model() {
    const { shares: task } = await this._task();
    const chain = await this._chain();
    return chain.number ? this._protocol.chainWeights(chain, task.unit) : this._initialWeights();
  }

  async _chain() {
    const { shares: task } = await this._task();
    const kept = await this.kept.get("chain");
    return kept ? this._protocol.chainFromBytes(kept, task.parameters) : this._protocol.startChain(task, await this._initialWeights());
  }

  async _initialWeights() {
    const { definition, shares: task } = await this._task();
    let initial = await this.kept.get("initial");
    if (!initial) {
      initial = await this._platform.initial(this.task);
      if (this._protocol.hex(await this._protocol.sha256(initial)) !== definition.body.initial) {
        throw new DocumentError("the platform's initial weights are not those that the task's definition names");
      }
      await this.kept.put("initial", initial);
    }
    return this._protocol.readNpz(initial, task.shape);
  }

  // Rewards.

  /** @param {number} number */
  async _openReward(number) {
    const done = (await this.kept.hasAny(number, "reward", "no-reward")) || !(await this.kept.holdsReceipt(number));
    if (done || !(await this.hasBudget())) return false;
    try {
      await this.openReward(number);
    } catch (wrong) {
      return this._noteNoReward(number, wrong);
    }
    return true;
  }

  /** @param {number} number @param {unknown} wrong */
  async _noteNoReward(number, wrong) {
    if (!(wrong instanceof CrowdFLError)) throw wrong;
    if (wrong instanceof UploadRejected && !(await this.kept.hasAny(number, "average"))) {
      await this.kept.put(named(number, "no-reward"), wrong.message);
      this.onEvent("upload rejected", { round: number, why: wrong.message });
      return true;
    }
    if (wrong instanceof RewardOutOfRange || wrong instanceof UnknownParticipant) { // for good: no claim of it would be paid
      await this.kept.put(named(number, "no-reward"), wrong.message);
      this.onEvent("reward refused", { round: number, why: wrong.message });
      return true;
    }
    if (wrong instanceof ServiceError && !wrong.passes) throw wrong;
    // Not there, or not what CSP made, or SP says rejected and the average, which CSP has signed, does not: the platform may
    // still show it, and one reward must not hold up the rest.
    if (!(wrong instanceof UploadRejected)) this._unread.set(number, passes(wrong));
    this._tellOnce("reward missing", number, wrong);
    return false;
  }

  /** @param {number} number */
  async openReward(number) {
    const { shares: task } = await this._task();
    const keys = await this.keys();
    const envelope = await this._platform.reward(this.task, number, keys);
    const amount = await this._protocol.openReward(task, await this._bundle(), keys, envelope, number);
    await this.kept.put(named(number, "reward"), { envelope, amount: amount.toString() });
    this.onEvent("rewarded", { round: number, millionths: amount });
    return amount;
  }

  async hasBudget() {
    return (await this._task()).shares.payment > 0n;
  }

  /** @param {string} what @param {number} number @param {Error} why */
  _tellOnce(what, number, why) {
    const news = `${what} ${number} ${why.name}`;
    if (this._told.has(news)) return;
    this._told.add(news);
    this.onEvent(what, { round: number, why: why.message });
  }

  /** Claim everything earned, once, after the task's end; millionths paid. @param {{withoutMissing?: boolean}} [options] */
  async claim({ withoutMissing = false } = {}) {
    return (await this._claiming()).claim(withoutMissing);
  }

  /** Send a claim that was paid once more: an SP that was restored from a backup may have lost it. */
  async claimAgain() {
    return (await this._claiming()).claimAgain();
  }

  async _claiming() {
    const { shares: task } = await this._task();
    return new Claiming({
      kept: this.kept,
      window: task.claimWindow,
      status: () => this._status(),
      pay: async (claim) => this._platform.claim(this.task, claim, await this.keys()),
      make: async (rewards) => this._protocol.makeClaim(task, await this.keys(), rewards),
      openReward: (number) => this._openReward(number),
      tell: this.onEvent,
      time: this.claimTime,
      unread: this._unread,
    });
  }

  // Leaving.

  async leave() {
    await this.kept.put("left", this._now()); // first: a closed tab must not make someone stay who wants to go
    await this._quit();
    this.onEvent("left", {});
  }

  async _quit() {
    if ((await this.kept.has("quit")) || !(await this.hasJoined())) return;
    await this._platform.quit(this.task, await this.keys());
    await this.kept.put("quit", true);
  }

  // What was dealt.

  async _bundle() {
    return this._protocol.openBundle(await this.kept.get("bundle"));
  }

  /** Opened once: a task's name is the hash of its definition. */
  async _task() {
    this._opened ??= await this._openTask();
    return this._opened;
  }

  async _openTask() {
    const text = await this.kept.get("definition");
    if (text === undefined) throw new NotReady("join the task first");
    const definition = await this._protocol.openDefinition(text);
    return { definition, shares: this._protocol.sharesTask(definition) };
  }
}

/** @param {Status["rounds"][number]} entry */
function brief({ number, state, deadline }) {
  return { number, state, deadline };
}

/** @param {any} found @returns {Metrics | null} */
function metricsOf(found) {
  return found ? { accuracy: found.accuracy, loss: found.loss, samples: found.samples } : null;
}
