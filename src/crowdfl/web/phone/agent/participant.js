// A participant of one `shares` task: look before joining, enrol, train on data that stays here, upload, read, be paid, leave.
//
// The port of roles/participant/participant.py. What must survive is stored before it is sent: an upload that was interrupted is sent
// again with the same bytes, so that it is the same upload.

import { BadSignature, ConsentMissing, DocumentError, RolledBack, UploadRejected, Withdrawn } from "../protocol/errors.js";
import { ParticipantContext } from "./participant_context.js";
import { Claims, UNDER_WAY } from "./claiming.js";
import { evidenceCopy, heeded } from "./evidence.js";
import { named } from "./holdings.js";
import { PayTo } from "./pay_to.js";
import { clockAhead, closedBy, requireRoom } from "./status.js";
import { KeptModel } from "./model.js";
import { Rewards } from "./rewards.js";
import { Uploads } from "./uploads.js";

/** @typedef {import("./participant_context.js").Definition} Definition */
/** @typedef {import("./participant_context.js").SharesTask} SharesTask */
/** @typedef {import("./participant_context.js").Trainer} Trainer */
/** @typedef {import("./api.js").Status} Status */
/** @typedef {import("./holdings.js").KeptStatus} KeptStatus */

const LONGEST_REST = 3600; // seconds: a platform that asks for more is looked at all the same

export class Participant {
  /** @param {import("./participant_context.js").ContextOptions} options */
  constructor(options) {
    this.context = new ParticipantContext(options);
    this.task = this.context.task;
    this.kept = this.context.kept;
    this.model = new KeptModel(this.context);
    this.uploads = new Uploads(this.context, this.model);
    this.rewards = new Rewards(this.context);
    this.payTo = new PayTo(this.context);
    this.claims = new Claims(this.context);
    this.state = "running"; // the task's, when this participant last looked
    /** @type {Map<number, string>} By round, the state in which nothing of it can be due any more. */
    this._settled = new Map();
    this._epoch = ""; // SP's, when this page last looked
    this.comeBack = 0; // seconds after that look until the platform wants the next one, if there is nothing to do
    this._platform = this.context.platform;
    this._hasQuit = false;
    /** @type {Status | null} The last one. */
    this._shown = null;
  }

  /**
   * The task as its requester signed it and KGC appointed it: read this before joining.
   * @returns {Promise<{definition: Definition, shares: SharesTask}>}
   */
  async look() {
    const { definition, shares } = await this._papers();
    return { definition, shares };
  }

  /** Why nobody can join now, by the platform's word for it, null if somebody can; and how far this device's clock is ahead. @param {boolean} [takesPlace] As `closedBy`'s. */
  async entry(takesPlace = false) {
    const status = await this.context.status();
    return { closed: closedBy(status, takesPlace), ahead: clockAhead(status, this.context.now()) };
  }

  async _papers() {
    const { protocol, kgcKey } = this.context;
    const papers = await this._platform.papers(this.task);
    const definition = await protocol.openDefinition(papers.definition);
    const appointment = await protocol.openAppointment(papers.appointment, kgcKey);
    if (definition.task !== this.task || appointment.task !== this.task) {
      throw new DocumentError("the platform showed the papers of another task");
    }
    const shares = protocol.sharesTask(definition);
    if (!(await this.kept.has("definition"))) {
      await this.kept.add("definition", papers.definition, { purpose: String(definition.body.purpose) });
    }
    return { definition, shares, appointment };
  }

  /** The owner accepts averages of so few people; and, all the same, a platform that may be all others. @param {number} least @param {boolean} [allTheSame] */
  accept(least, allTheSame = false) {
    return this.kept.change({ least, "all-the-same": allTheSame });
  }

  /** The owner has read the consent text in this language, and agrees. @param {string} [language] "": the task's own. */
  async agree(language) {
    const { definition } = await this._papers(); // also if the owner was faster than the look that keeps it
    await this.kept.makeKeys(this.context.protocol.newKeys);
    const consent = await this.context.protocol.signConsent(definition, await this.context.keys(), (await this.context.status()).now ?? this.context.now(), language);
    if (!(await this.hasJoined())) await this.kept.put("consent", consent);
  }

  /** Take a place, also again after leaving; safe to repeat. @param {string} invitation */
  async join(invitation) {
    const who = await this.enrol(invitation);
    if ((await this.hasLeft()) && !(await this.kept.has("replaced"))) await this.kept.change({}, ["left"]);
    return who;
  }

  /**
   * Enrol with KGC and SP; safe to repeat. Whoever leaves meanwhile, in another tab, has left. The name that this participant
   * goes by.
   * @param {string} invitation
   */
  async enrol(invitation) {
    const stopped = await this.kept.get("stopped");
    if (stopped !== undefined) throw new UploadRejected(`this phone takes no further part in the campaign: ${stopped}`);
    if (await this.kept.has("withdrawing")) throw new Withdrawn("you have withdrawn, which is final: ask for a new invitation");
    const { appointment, definition } = await this._papers();
    await this.context.requireCompany();
    await this._requireConsent(definition);
    if (!(await this.hasJoined())) requireRoom(await this.context.status(), invitation !== "" && this.context.protocol.takesPlace(invitation));
    await this.kept.makeKeys(this.context.protocol.newKeys);
    if (!(await this.hasJoined())) await this._certify(invitation, appointment);
    const { who } = await this.context.keys();
    if (await this.context.enrol()) {
      this._hasQuit = false;
      this.context.tell("joined", { who });
    }
    return who;
  }

  /** @param {Definition} definition */
  async _requireConsent({ body }) {
    if (!body.consent.version || (await this.kept.has("consent"))) return;
    throw new ConsentMissing(`this task has a consent text, version ${body.consent.version}: read it, agree to it, then join`);
  }

  /** @param {string} invitation @param {import("../protocol/documents.js").Appointment} appointment */
  async _certify(invitation, appointment) {
    const { protocol, kgcKey } = this.context;
    const keys = await this.context.keys();
    const asked = await protocol.enrolmentRequest(this.task, invitation || (await this._recruited()), keys);
    const sealed = await this._platform.enrolAtKgc(this.task, asked.invitation, asked.request);
    const { certificate, bundle } = await protocol.openEnrolled(sealed, asked, keys, kgcKey);
    protocol.requireKey(appointment, (await protocol.openBundle(bundle)).fingerprint);
    await this.kept.change({ bundle, certificate });
  }

  /** A ticket of SP's, for a key that is kept first: whoever asks again has the same place. */
  async _recruited() {
    const { protocol } = this.context;
    await this.kept.add("ticket-key", await protocol.newTicketKey());
    const key = await this.kept.get("ticket-key");
    return protocol.openRecruited(await this._platform.recruit(this.task, key.open), this.task, key);
  }

  hasJoined() {
    return this.kept.has("certificate");
  }

  hasLeft() {
    return this.kept.has("left");
  }

  /**
   * Do what is due: read new averages and rewards, take part in an open round. True if anything was done.
   * @param {Trainer} trainer
   */
  async step(trainer) {
    const status = await this._status();
    const left = (await this.hasLeft()) && UNDER_WAY.includes(status.state);
    const did = await this._orStop(() => (left ? this._stepLeft(status, trainer) : this._step(status, trainer)));
    return UNDER_WAY.includes(status.state) ? did : (await this._readLast(status)) || did;
  }

  /** What CSP cannot have signed honestly stops this phone, and holds up nothing else. @param {() => Promise<boolean>} act */
  async _orStop(act) {
    try {
      return await act();
    } catch (wrong) {
      if (!(wrong instanceof RolledBack)) throw wrong;
      return this.model.stop(wrong.message);
    }
  }

  /**
   * Nothing is sent any more. What was made may be judged, used and paid all the same: CSP's word of it is read.
   * @param {Status} status @param {Trainer} trainer
   */
  async _stepLeft(status, trainer) {
    this.state = "left";
    await this._quit();
    let did = false;
    const [last = 0] = (await this.kept.wordless(Infinity)).slice(-1);
    for (const round of status.rounds) did = (await this._orStop(() => this._readLeft(round, last, status, trainer))) || did;
    return did;
  }

  /** @param {Status["rounds"][number]} round @param {number} last That a word is missing of. @param {Status} status @param {Trainer} trainer */
  async _readLeft({ number, state, unused = false }, last, status, trainer) {
    let did = false;
    if (state === "rewarded" && number < last) did = await this.model.read(number, status, trainer); // what it follows from
    if (state === "rewarded" && number === last) did = await this.model.readRecord(number, status);
    if (state === "rewarded") did = (await this.rewards.look(number)) || did;
    if (state === "aborted") did = (await this._explain(number, unused)) || did;
    return did;
  }

  /**
   * What is left to read of a task that is over: whoever was away may not have read the last, and the last average is the requester's.
   * @param {Status} status
   */
  async _readLast(status) {
    let did = false;
    for (const { number, state, unused = false } of status.rounds) {
      const read = () => (state === "aborted" ? this._explain(number, unused) : this._readRewarded(number, status));
      if (state === "rewarded" || state === "aborted") did = (await this._orStop(read)) || did;
    }
    did = (await this.rewards.lookBonus()) || did;
    if (await this.rewards.arePaid()) await this.claims.tellDifferences(status, (await this.kept.get("status"))?.over ?? null);
    return did;
  }

  /** The record first: nobody waits for a reward that it leaves out. @param {number} number @param {Status} status */
  async _readRewarded(number, status) {
    const did = await this.model.readRecord(number, status);
    return (await this.rewards.look(number)) || did;
  }

  /** A round that SP has given up. What CSP has opened of it all the same is paid for. @param {number} number @param {boolean} unused */
  async _explain(number, unused) {
    const did = await this.uploads.explain(number, unused);
    return ((await this.kept.hasAny(number, "accepted")) && (await this.rewards.look(number))) || did;
  }

  /** Whether CSP's signed word is missing about a round that an upload was made for. */
  async awaitsWords() {
    return (await this.kept.wordless(Infinity)).length > 0;
  }

  /** Where SP's word and CSP's signed record differ, as a file; null if they do not. */
  evidence() {
    return evidenceCopy(this.context);
  }

  /** @param {Status} status @param {Trainer} trainer */
  async _step(status, trainer) {
    await this.model.requireForward(status);
    await this.uploads.comeBack(status);
    let did = false;
    const isAsBefore = this._epoch === `${status.epoch} ${status.dropped}`;
    if (!isAsBefore) this._settled.clear(); // SP was restored, or has dropped uploads
    this._epoch = `${status.epoch} ${status.dropped}`;
    for (const round of status.rounds) {
      if (this._settled.get(round.number) === round.state) continue;
      const news = await this._orStop(() => this._stepRound(round, status, trainer));
      if (!news && (await this._isSettled(round))) this._settled.set(round.number, round.state);
      did = news || did;
    }
    return did;
  }

  /**
   * Whether nothing of a round can be due any more, however often this page looks: a walk through all rounds each time would
   * make a look dearer with every round.
   * @param {Status["rounds"][number]} round
   */
  async _isSettled({ number, state }) {
    if (await this.kept.hasAny(number, "upload")) return false;
    if (state === "aborted") return (await this.kept.hasAny(number, "end", "given-up")) || !(await this.kept.hasMade(number));
    if (state !== "rewarded" || !(await this.kept.hasAny(number, "average", "record"))) return false;
    if ((await this.kept.hasMade(number)) && !(await this.kept.hasAny(number, "record"))) return false;
    const isOpen = (await this.rewards.arePaid()) && (await this.kept.hasEarned(number));
    return !isOpen || this.kept.hasAny(number, "reward", "no-reward");
  }

  /** @param {Status["rounds"][number]} round @param {Status} status @param {Trainer} trainer */
  async _stepRound({ number, state, unused = false }, status, trainer) {
    let did = false;
    const made = await this.kept.hasAny(number, "upload"); // its receipt may have been lost
    if (state === "open" || made) did = await this.uploads.takePart(number, status, trainer);
    if (state === "rewarded") {
      did = (await this.model.read(number, status, trainer)) || did;
      did = (await this.rewards.look(number)) || did;
    }
    if (state === "aborted") did = (await this._explain(number, unused)) || did;
    if (state === "rewarded" || state === "aborted") await this.uploads.tidy(number);
    return did;
  }

  async _status() {
    const status = await this.context.status();
    await this._hearExtension(status.claims_extended ?? null);
    await this._keepStatus(status);
    this.state = status.state;
    this.comeBack = Math.min(status.come_back ?? 0, LONGEST_REST);
    this._shown = status;
    return status;
  }

  /** What the owner is shown while there is no network; written where it has changed. @param {Status} status */
  async _keepStatus(status) {
    const before = /** @type {KeptStatus | undefined} */ (await this.kept.get("status"));
    const rounds = status.rounds.map(({ number, state, last_call: until }) => ({ number, state, until }));
    const next = status.next_round ?? null;
    const over = UNDER_WAY.includes(status.state) ? null : (before?.over ?? this.context.now());
    const now = { state: status.state, ended: status.ended ?? null, enrolled: status.enrolled ?? 0, rounds, next, over };
    const { at: _at, ...same } = before ?? {};
    if (JSON.stringify(same) !== JSON.stringify(now)) await this.kept.put("status", { ...now, at: this.context.now() });
  }

  /** A later last day of claims, if CSP has signed it. @param {string | null} text */
  async _hearExtension(text) {
    if (text === null || !(await this.hasJoined()) || (await this.kept.get("claims-extended"))?.text === text) return;
    const { protocol } = this.context;
    try {
      const until = await protocol.openExtension(text, (await this.context.bundle()).cspSigning, await this.context.shares());
      await this.kept.put("claims-extended", { text, until });
    } catch (wrong) {
      if (!(wrong instanceof DocumentError || wrong instanceof BadSignature)) throw wrong;
      this.context.tellOnce("extension refused", 0, wrong); // the signed day stands
    }
  }

  /** Claim all that can be claimed now; millionths that the platform has booked so far. */
  async claim() {
    const status = await this._status();
    await this._readLast(status);
    return this.claims.claim(status);
  }

  /** Whether anything is to be claimed, by the last look. */
  async isClaimDue() {
    return this._shown !== null && (await this.rewards.arePaid()) && this.claims.isDue(this._shown);
  }

  /** Of a task that is over: whether the platform may still answer a claim of it. */
  async awaitsClaim() {
    return this._shown !== null && (await this.hasJoined()) && (await this.rewards.arePaid()) && this.claims.isAwaited(this._shown);
  }

  async leave() {
    await this.kept.put("left", this.context.now()); // first: a closed tab must not make someone stay who wants to go
    await this._quit();
    this.context.tell("left", {});
  }

  /** Once by each page: nobody knows what another tab told the platform last. A withdrawal is told until it is answered. */
  async _quit() {
    const withdraws = await this.kept.has("withdrawing");
    const isDone = withdraws ? await this.kept.has("withdrawn") : this._hasQuit || (await this.kept.has("replaced"));
    if (isDone || !(await this.hasJoined())) return;
    const answer = await this._platform.quit(this.task, await this.context.keys(), withdraws);
    if (withdraws) await this._noteWithdrawn(answer);
    this._hasQuit = true;
  }

  /**
   * What was taken back earns nothing, unless CSP has signed what became of it; and no upload stays here either.
   * @param {{deleted: number[], standing: number[]}} answer
   */
  async _noteWithdrawn(answer) {
    const found = await Promise.all(answer.deleted.map((number) => this._deleted(number)));
    const uploads = (await this.kept.rounds("upload")).map((number) => named(number, "upload"));
    const put = Object.assign({}, ...found.map((one) => one.put), { withdrawn: { ...answer, at: this.context.now() } });
    await this.kept.change(put, [...uploads, ...found.flatMap((one) => one.remove)]);
    this.context.tell("withdrawn", answer);
    for (const [what, details] of found.flatMap((one) => one.tell)) this.context.tell(what, details);
  }

  /** SP says to have deleted an upload: what CSP has signed of it counts. @param {number} number @returns {ReturnType<typeof heeded>} */
  async _deleted(number) {
    const name = named(number, "no-reward");
    if (!(await this.kept.hasAny(number, "record", "end"))) return { put: { [name]: "withdrawn" }, remove: [], tell: [] };
    const why = (await this.kept.hasAny(number, "accepted")) ? null : ((await this.kept.get(name)) ?? "not_passed_on");
    return heeded(this.context, number, why, "deleted");
  }
}
