// The model that a participant holds: the initial weights, then one average after the other. A chain, of which the last is kept.

import { CrowdFLError, DocumentError, isPlatforms, RolledBack, wordsOf } from "../protocol/errors.js";
import { heeded } from "./evidence.js";
import { named, stopping } from "./holdings.js";

/** @typedef {import("./participant_context.js").ParticipantContext} ParticipantContext */
/** @typedef {import("./participant_context.js").SharesTask} SharesTask */
/** @typedef {import("./participant_context.js").Trainer} Trainer */
/** @typedef {import("../protocol/bundle.js").Bundle} Bundle */
/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */
/** @typedef {import("../protocol/chain.js").Chain} Chain */
/** @typedef {import("./api.js").Status} Status */
/** @typedef {import("./holdings.js").Metrics} Metrics */

export class KeptModel {
  /** @param {ParticipantContext} context */
  constructor(context) {
    this._context = context;
    this._kept = context.kept;
  }

  /** @returns {Promise<import("../protocol/chain.js").Chain>} */
  async chain() {
    const { protocol } = this._context;
    const task = await this._context.shares();
    const kept = await this._kept.get("chain");
    return kept ? protocol.chainFromBytes(kept, task) : protocol.startChain(task, await this._initialWeights());
  }

  /** The last average read, or the initial weights. */
  async weights() {
    const chain = await this.chain();
    const { unit } = await this._context.shares();
    return chain.number ? this._context.protocol.chainWeights(chain, unit) : this._initialWeights();
  }

  /**
   * Whoever cannot read an average that the round builds on stays out of it, and looks again later.
   * @param {number} number @param {Status} status
   */
  async hasCaughtUp(number, status) {
    const { number: last } = await this.chain();
    return !status.rounds.some((entry) => last < entry.number && entry.number < number && entry.state === "rewarded");
  }

  /**
   * A task under way must not show a round as unfinished that CSP's signed record is here of.
   * @param {Status} status
   */
  async requireForward(status) {
    if (status.state !== "running" && status.state !== "paused") return;
    for (const { number, state } of status.rounds) {
      if (state !== "rewarded" && (await this._kept.hasAny(number, "record"))) {
        throw new RolledBack(
          `the platform runs round ${number} again, whose record CSP has signed: a server was set back, or cheats. ` +
            "Take no further part in this task",
        );
      }
    }
  }

  /**
   * A round's average, after those before it; false if there was nothing to read.
   * @param {number} number @param {Status} status @param {Trainer} trainer
   */
  async read(number, status, trainer) {
    const { protocol, tell } = this._context;
    const task = await this._context.shares();
    if (number >= task.rounds) return this.readRecord(number, status);
    if ((await this._kept.hasAny(number, "average")) || !(await this.hasCaughtUp(number, status))) return false;
    let opened;
    try {
      opened = await this._opened(number, protocol.readPublication);
      await this._kept.requireOnly(number, opened.record);
    } catch (wrong) {
      if (!(wrong instanceof CrowdFLError) || isPlatforms(wrong) || wrong instanceof RolledBack) throw wrong; // away: training on an older model would be a pity
      this._context.tellOnce("average missing", number, wrong);
      return false;
    }
    const metrics = await this.evaluate(trainer, protocol.chainWeights(opened.chain, task.unit));
    const known = { ...metrics, ...(task.step ? { state: await protocol.stateDigest(opened.chain) } : {}) };
    await this._keep(number, opened, {
      chain: protocol.chainToBytes(opened.chain),
      [named(number, "average")]: { total: opened.total, people: opened.accepted.length, ...known },
    }, ["initial"]);
    tell("read", { round: number, ...known });
    return true;
  }

  /**
   * The last average is the requester's; CSP's record of it is everyone's. Nobody's claim waits for it.
   * @param {number} number @param {Status} status
   */
  async readRecord(number, status) {
    const { rounds } = await this._context.shares();
    const isMine = number >= rounds || (await this._kept.hasMade(number));
    if (!isMine || (await this._kept.hasAny(number, "record")) || !(await this.hasCaughtUp(number, status))) return false;
    let opened;
    try {
      opened = await this._opened(number, this._context.protocol.readRecord);
      await this._kept.requireOnly(number, opened.record);
    } catch (wrong) {
      if (!(wrong instanceof CrowdFLError)) throw wrong;
      if (wrong instanceof RolledBack) await this.stop(wrong.message);
      else this._context.tellOnce("record missing", number, wrong);
      return false;
    }
    await this._keep(number, opened, {});
    return true;
  }

  /** For good; what was earned is still claimed. False if this phone had stopped before. @param {string} why */
  async stop(why) {
    const isNew = await this._kept.add("stopped", why, stopping(why, this._context.now()));
    if (isNew) this._context.tell("stopped", { why });
    return isNew;
  }

  /**
   * What SP has published of a round, as far as this phone can read it.
   * @template T
   * @param {number} number
   * @param {(task: SharesTask, bundle: Bundle, chain: Chain, publication: Bytes, round: number) => Promise<T>} open
   */
  async _opened(number, open) {
    const task = await this._context.shares();
    const publication = await this._context.platform.average(task.task, number, await this._context.keys());
    return open(task, await this._context.bundle(), await this.chain(), publication, number);
  }

  /**
   * With the record and what follows from it, in one write: whether both servers left this participant's upload out.
   * @param {number} number @param {Pick<import("../protocol/average.js").Opened, "accepted" | "rejected" | "record">} opened
   * @param {Record<string, unknown>} put @param {string[]} [remove]
   */
  async _keep(number, opened, put, remove = []) {
    const { who } = await this._context.keys();
    const found = await heeded(this._context, number, this._context.protocol.standing(opened, who));
    await this._kept.change({ ...put, [named(number, "record")]: opened.record, ...found.put }, [...remove, ...found.remove]);
    for (const [what, details] of found.tell) this._context.tell(what, details);
  }

  /**
   * How a model does on the owner's data; a figure that cannot be had holds up nothing.
   * @param {Trainer} trainer @param {Float64Array} weights
   */
  async evaluate(trainer, weights) {
    try {
      return metricsOf(await this._context.unlessStopped(trainer.evaluate(weights)));
    } catch (wrong) {
      this._context.signal?.throwIfAborted();
      this._context.tell("not evaluated", { why: wordsOf(wrong) });
      return null;
    }
  }

  /**
   * How the model does that a round starts from.
   * @param {number} number @param {Trainer} trainer @param {Float64Array} weights
   */
  async before(number, trainer, weights) {
    const { number: last } = await this.chain();
    const known = (await this._kept.of(number, "before")) ?? (last ? await this._kept.of(last, "average") : undefined);
    return known?.accuracy === undefined ? this.evaluate(trainer, weights) : metricsOf(known);
  }

  async _initialWeights() {
    const { protocol, platform } = this._context;
    const task = await this._context.shares();
    let initial = await this._kept.get("initial");
    if (initial === undefined) {
      initial = await platform.initial(task.task);
      if (protocol.hex(await protocol.sha256(initial)) !== task.initial) {
        throw new DocumentError("the platform's initial weights are not those that the task's definition names");
      }
      await this._kept.put("initial", initial);
    }
    return protocol.readSafetensors(initial, task.shape);
  }
}

/** @param {any} found @returns {Metrics | null} */
function metricsOf(found) {
  return found ? { accuracy: found.accuracy, loss: found.loss, samples: found.samples } : null;
}
