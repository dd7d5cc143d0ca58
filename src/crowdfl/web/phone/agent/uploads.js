// A participant's uploads: at most one for a round, durable before it is sent, sent again with the same bytes.

import { privacyOf } from "../protocol/accounting.js";
import { toMillionths } from "../protocol/amounts.js";
import {
  AlreadyCounted, CrowdFLError, Forbidden, NotAuthenticated, NotDrawn, NotReady, NothingToContribute, PlaceFreed, Replaced, RoundNotOpen, TaskFull,
  TaskNotRunning, TooLate, UnknownParticipant, WrongBase, wordsOf,
} from "../protocol/errors.js";
import { difference, heeded, signedOf } from "./evidence.js";
import { named, stopping } from "./holdings.js";

/** @typedef {import("./participant_context.js").ParticipantContext} ParticipantContext */
/** @typedef {import("./participant_context.js").Trainer} Trainer */
/** @typedef {import("./api.js").Status} Status */
/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */

/** Kept under this name: `{ ids, at }`, which recordings the owner has said to send, and when they or their labels last changed. */
export const CONTRIBUTION = "contribution";

/** Under this name: how the device calls what the task was charged. */
export const CHARGE = "charge";

const FINAL = [TooLate, RoundNotOpen, NotDrawn, AlreadyCounted, TaskFull, TaskNotRunning, WrongBase];

export class Uploads {
  /** @param {ParticipantContext} context @param {import("./model.js").KeptModel} model */
  constructor(context, model) {
    this._context = context;
    this._kept = context.kept;
    this._model = model;
    /** @type {string | null} SP's, when this participant last looked. */
    this._epoch = null;
    /** @type {Map<number, {epoch: string, uploads: number}>} */
    this._looked = new Map();
  }

  /**
   * Train and upload, or upload what was made; true if anything was done.
   * @param {number} number @param {Status} status @param {Trainer} trainer
   */
  async takePart(number, status, trainer) {
    if ((await this._kept.hasAny(number, "receipt", "refused", "reward")) || (await this._kept.sendsNoMore())) return false;
    const isMade = await this._kept.hasAny(number, "upload");
    if (!isMade && (await this._kept.hasMade(number))) return false; // its bytes are gone, and a round has one upload
    if (!(await this._hasWords(number, isMade))) return false;
    await this._context.requireCompany(); // before the work; the owner may have raised it since joining
    if (!isMade) {
      const { drawn } = status.rounds.find((entry) => entry.number === number) ?? {};
      if (!(await this._isDrawn(number, drawn ?? 0)) || (await this._hadNothing(number)) || !(await this._model.hasCaughtUp(number, status))) return false;
      const said = await this._said(); // now: what is said while this trains must be tried next
      try {
        await this._train(number, trainer);
      } catch (nothing) {
        if (!(nothing instanceof NothingToContribute)) throw nothing;
        await this._noteNothing(number, nothing, said);
        return true;
      }
    }
    return this.send(number);
  }

  /**
   * Nothing is made before CSP's signed word is here about every round that an upload was made for, in whatever order SP opens them,
   * and nothing is sent before it is of every earlier one: a restored SP is sent what it had.
   * @param {number} number @param {boolean} [isMade]
   */
  async _hasWords(number, isMade = true) {
    const missing = (await this._kept.wordless(isMade ? number : Infinity)).filter((other) => other !== number);
    for (const earlier of missing) {
      this._context.tellOnce("record missing", earlier, new NotReady(`the platform does not show it, and nothing is sent for round ${number} before it does`));
    }
    return !missing.length;
  }

  /**
   * Asked once a round, and again when SP has drawn more people, or was restored and may have drawn others.
   * @param {number} number @param {number} people How many are drawn.
   */
  async _isDrawn(number, people) {
    const { platform, task, tell } = this._context;
    if (!(await this._context.shares()).draws) return true;
    const [known, name] = [await this._kept.of(number, "not-drawn"), named(number, "not-drawn")];
    if (known?.epoch === this._epoch && known.people === people) return false;
    const drawn = await platform.isDrawn(task, number, await this._context.keys());
    await this._kept.change(drawn ? {} : { [name]: { epoch: this._epoch, people } }, drawn ? [name] : []);
    if (!drawn && !known) tell("not drawn", { round: number });
    return drawn;
  }

  /** Nothing is tried twice with the same recordings: with others, an open round may still be reached. @param {number} number */
  async _hadNothing(number) {
    const before = await this._kept.of(number, "nothing");
    return before !== undefined && before.said === (await this._said());
  }

  /** @param {number} number @param {Error} nothing @param {number | null} said What it was made of. */
  async _noteNothing(number, nothing, said) {
    const found = { why: nothing.message, said };
    await this._kept.change({ [named(number, "nothing")]: found }, [named(number, "before"), named(number, "started")]); // of other recordings
    this._context.tell("nothing to contribute", { round: number, why: nothing.message });
  }

  /** @returns {Promise<number | null>} */
  async _said() {
    return (await this._kept.get(CONTRIBUTION))?.at ?? null;
  }

  /** @param {number} number @param {Trainer} trainer */
  async _train(number, trainer) {
    const { definition } = await this._context.papers();
    const weights = await this._model.weights();
    const before = await this._model.before(number, trainer, weights);
    const started = { [named(number, "started")]: this._context.now() };
    await this._kept.change(before ? { ...started, [named(number, "before")]: before } : started);
    this._context.tell("training", { round: number });
    const trained = await this._context.unlessStopped(trainer.train(weights, definition.body.training, number));
    this._context.signal?.throwIfAborted();
    await this.encrypt(number, trained.weights, trained.samples);
  }

  /**
   * A round's upload, made from what was trained; durable before it is sent. One that is there already stays: its seed may have
   * left the phone.
   * @param {number} number @param {Float64Array} weights @param {number} samples
   */
  async encrypt(number, weights, samples) {
    const [task, bundle, keys] = [await this._context.shares(), await this._context.bundle(), await this._context.keys()];
    const made = await this._context.protocol.makeUpload(task, bundle, keys, await this._model.chain(), weights, samples, number);
    await this._charge();
    const figures = { samples, clipped: made.clipped, scaled: made.scaled };
    if (await this._kept.add(named(number, "upload"), made.bytes, { [named(number, "trained")]: figures })) {
      this._context.tell("trained", { round: number, ...figures });
    }
  }

  /** A task's whole epsilon, at its first upload: what leaves the phone does not come back, whatever is opened of it. */
  async _charge() {
    const privacy = privacyOf((await this._context.papers()).definition.body.settings);
    if (privacy === null) return;
    await this._kept.add(CHARGE, crypto.randomUUID());
    await this._kept.store.charge(await this._kept.get(CHARGE), privacy.epsilon);
  }

  /** Upload what was made for a round; a refusal is noted and told. True if there was an answer. @param {number} number */
  async send(number) {
    this._context.signal?.throwIfAborted();
    await this._context.requireCompany();
    if ((await this._kept.sendsNoMore()) || !(await this._hasWords(number))) return false;
    const upload = /** @type {Bytes} */ (await this._kept.of(number, "upload"));
    let receipt;
    try {
      receipt = await this._sendAsEnrolled(number, upload);
    } catch (refusal) {
      return this._noteRefusal(number, refusal);
    }
    const { late, unused } = await this._checked(receipt, number, upload);
    if (unused) return this._noteUnused(number, receipt);
    await this._kept.change({ [named(number, "receipt")]: receipt }, [named(number, "nothing")]);
    this._context.tell("uploaded", { round: number, bytes: upload.length, late });
    return true;
  }

  /** What it earns, SP owes by its receipt: the servers compute nothing of it. @param {number} number @param {string} receipt */
  async _noteUnused(number, receipt) {
    const { definition } = await this._context.papers();
    const amount = toMillionths(definition.body.plan.unused_pay ?? 0).toString();
    await this._kept.change({ [named(number, "reward")]: { amount, unused: receipt } }, [named(number, "nothing")]);
    this._context.tell("unused", { round: number });
    return true;
  }

  /** @param {number} number @param {unknown} refusal */
  async _noteRefusal(number, refusal) {
    if (refusal instanceof Replaced) {
      await this._kept.put(named(number, "refused"), { why: wordsOf(refusal), kind: refusal.name });
      await this._context.giveWay(refusal);
      return true;
    }
    if (refusal instanceof Forbidden && (await this._kept.has("left"))) return false; // meanwhile: who joins again may send it
    if (!FINAL.some((kind) => refusal instanceof kind)) throw refusal;
    await this._kept.put(named(number, "refused"), { why: wordsOf(refusal), kind: /** @type {Error} */ (refusal).name });
    this._context.tell("refused", { round: number, why: wordsOf(refusal) });
    return true;
  }

  /**
   * An SP that was restored while this participant trained may not know it: then it enrols again.
   * @param {number} number @param {Bytes} upload
   */
  async _sendAsEnrolled(number, upload) {
    const { platform, task, tell } = this._context;
    const onSent = (/** @type {number} */ sent) => tell("sending", { round: number, sent, of: upload.length });
    const send = async () => platform.send(task, number, await this._context.keys(), upload, onSent);
    try {
      return await send();
    } catch (unknown) {
      if (unknown instanceof PlaceFreed && (await this._context.enrol())) return send(); // or `TaskFull`: others have the place
      if (!(unknown instanceof NotAuthenticated || unknown instanceof UnknownParticipant)) throw unknown;
      const before = this._epoch;
      await this.comeBack(await this._context.status());
      if (before === null || before === this._epoch) throw unknown;
    }
    return send();
  }

  /**
   * Whether SP counts the upload as late, or does not use it; a receipt that would prove nothing later is refused now, and kept as evidence.
   * @param {string} receipt @param {number} number @param {Bytes} upload
   */
  async _checked(receipt, number, upload) {
    const { protocol, task, spKey } = this._context;
    const { who } = await this._context.keys();
    try {
      return await protocol.checkReceipt(receipt, spKey, { task, round: number, who, upload });
    } catch (wrong) {
      await this._kept.put(named(number, "wrong-receipt"), receipt);
      throw wrong;
    }
  }

  /**
   * After SP was restored from a backup: enrol again, and send again the uploads that it no longer has.
   * @param {Status} status
   */
  async comeBack(status) {
    const epoch = String(status.epoch ?? "");
    if (this._epoch !== null && this._epoch !== epoch) {
      this._context.tell("restored", {});
      await this._context.enrol();
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
    const { platform, task } = this._context;
    const known = this._looked.get(number);
    const news = known === undefined || known.epoch !== epoch || known.uploads > uploads;
    const sent = news && (await this._kept.hasAny(number, "receipt")) && (await this._kept.hasAny(number, "upload"));
    const lost = sent && (await platform.uploaded(task, number, await this._context.keys())) === null;
    this._looked.set(number, { epoch, uploads });
    return lost;
  }

  /** What was made for the round is sent again; the first receipt is kept, as evidence. @param {number} number */
  async _forgetReceipt(number) {
    const first = (await this._kept.of(number, "lost-receipt")) ?? (await this._kept.of(number, "receipt"));
    await this._kept.change({ [named(number, "lost-receipt")]: first }, [named(number, "receipt")]);
    this._context.tell("sending again", { round: number });
  }

  /**
   * A round that SP has given up, and nobody is paid for. CSP's signed word alone says so, and what became of it.
   * @param {number} number @param {boolean} unused Before the servers looked at any upload, as SP says.
   */
  async explain(number, unused) {
    if ((await this._kept.hasAny(number, "given-up")) || !(await this._kept.hasMade(number))) return false;
    const heard = await this._hearEnd(number);
    if (heard === null) return false;
    const { why, shown, record, end } = heard;
    await this._kept.requireOnly(number, record ?? end);
    if (await this._kept.hasAny(number, "record")) return false; // the same, read before
    // A CSP that looks, fails and signs that it has shown nothing would ask round after round: SP's word counts beside it.
    const counts = shown || (!unused && (await this._kept.holdsReceipt(number)));
    const found = why === null && record === null ? await this._unshown(counts) : await heeded(this._context, number, why);
    const differs = record !== null ? { said: /** @type {const} */ ("no_average"), signed: signedOf(why) }
      : unused && shown ? { said: /** @type {const} */ ("nobody_looked"), signed: /** @type {const} */ ("shown") } : null;
    const note = differs && !(named(number, "differs") in found.put) ? await difference(this._kept, number, differs) : {};
    const word = record !== null ? { [named(number, "record")]: record }
      : { [named(number, "end")]: end, [named(number, "given-up")]: counts ? true : "unused" };
    await this._kept.change({ ...found.put, ...note, ...word }, found.remove);
    if (record === null && (await this._kept.holdsReceipt(number))) this._context.tell("given up", { round: number });
    if (Object.keys(note).length) this._context.tell("words differ", { round: number, ...differs });
    for (const [what, details] of found.tell) this._context.tell(what, details);
    return true;
  }

  /** @param {boolean} counts @returns {Promise<Awaited<ReturnType<typeof heeded>>>} */
  async _unshown(counts) {
    const stays = !counts || (await this._context.shares()).hasReference;
    const stop = stays ? null : await this._kept.unshown();
    return { put: stopping(stop, this._context.now()), remove: [], tell: stop === null ? [] : [["stopped", { why: stop }]] };
  }

  /** CSP's signed word about a round that SP has given up; null where SP does not show it: it is looked for later. @param {number} number */
  async _hearEnd(number) {
    const { platform, protocol, task } = this._context;
    const [shares, bundle, keys] = [await this._context.shares(), await this._context.bundle(), await this._context.keys()];
    try {
      const end = await platform.end(task, number, keys);
      return { ...(await protocol.readEnd(shares, bundle, keys.who, end, number)), end };
    } catch (wrong) {
      if (!(wrong instanceof CrowdFLError)) throw wrong;
      this._context.tellOnce("record missing", number, wrong);
      return null;
    }
  }

  /** An upload of a round that is over is not sent again: its bytes can go. @param {number} number */
  async tidy(number) {
    if (!(await this._kept.hasAny(number, "upload")) || !(await this._kept.hasAny(number, "receipt", "refused", "reward"))) return;
    await this._kept.change({}, [named(number, "upload")]);
  }
}
