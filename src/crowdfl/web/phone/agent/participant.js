// A participant of one `shares` task: look before joining, enrol, train on data that stays here, upload, read, be paid, leave.
//
// The port of roles/participant/participant.py. What must survive is stored before it is sent: an upload that was interrupted is sent
// again with the same bytes, so that it is the same upload.

import { ConsentMissing, DocumentError, UploadRejected, Withdrawn } from "../protocol/errors.js";
import { ParticipantContext } from "./participant_context.js";
import { ClaimTime, Claiming } from "./claiming.js";
import { named } from "./holdings.js";
import { closedBy, requireRoom } from "./status.js";
import { KeptModel } from "./model.js";
import { PayTo } from "./pay.js";
import { Rewards } from "./rewards.js";
import { Uploads } from "./uploads.js";

/** @typedef {import("./participant_context.js").Definition} Definition */
/** @typedef {import("./participant_context.js").SharesTask} SharesTask */
/** @typedef {import("./participant_context.js").Trainer} Trainer */
/** @typedef {import("./api.js").Status} Status */
/** @typedef {import("./holdings.js").KeptStatus} KeptStatus */

export const UNDER_WAY = ["running", "paused"];
const LONGEST_REST = 3600; // seconds: a platform that asks for more is looked at all the same
const SAME_TIME = 60; // seconds: a smaller change of the time to claim is not written down

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
    this.claimTime = new ClaimTime(this.context.now);
    this.state = "running"; // the task's, when this participant last looked
    this.comeBack = 0; // seconds after that look until the platform wants the next one, if there is nothing to do
    this._platform = this.context.platform;
    this._hasQuit = false;
  }

  /**
   * The task as its requester signed it and KGC appointed it: read this before joining.
   * @returns {Promise<{definition: Definition, shares: SharesTask}>}
   */
  async look() {
    const { definition, shares } = await this._papers();
    return { definition, shares };
  }

  /** Why nobody can join now, by the platform's word for it; null if somebody can. @param {boolean} [takesPlace] As `closedBy`'s. */
  async closed(takesPlace = false) {
    return closedBy(await this.context.status(), takesPlace);
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

  /** The owner accepts averages of so few people. @param {number} least */
  accept(least) {
    return this.kept.put("least", least);
  }

  /** The owner has read the consent text in this language, and agrees. @param {string} [language] "": the task's own. */
  async agree(language) {
    const { definition } = await this._papers(); // also if the owner was faster than the look that keeps it
    await this.kept.makeKeys(this.context.protocol.newKeys);
    const consent = await this.context.protocol.signConsent(definition, await this.context.keys(), this.context.now(), language);
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
    if (!(await this.hasJoined())) requireRoom(await this.context.status(), this.context.protocol.takesPlace(invitation));
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
    const asked = await protocol.enrolmentRequest(this.task, invitation, keys);
    const sealed = await this._platform.enrolAtKgc(this.task, invitation, asked.request);
    const { certificate, bundle } = await protocol.openEnrolled(sealed, asked, keys, kgcKey);
    protocol.requireKey(appointment, (await protocol.openBundle(bundle)).fingerprint);
    await this.kept.change({ bundle, certificate });
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
    if ((await this.hasLeft()) && UNDER_WAY.includes(status.state)) {
      this.state = "left";
      await this._quit();
      return false;
    }
    await this.model.requireForward(status);
    await this.uploads.comeBack(status);
    let did = false;
    for (const round of status.rounds) did = (await this._stepRound(round, status, trainer)) || did;
    return did;
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
    if (state === "aborted") did = (await this.uploads.explain(number, unused)) || did;
    if (state === "rewarded" || state === "aborted") await this.uploads.tidy(number);
    return did;
  }

  async _status() {
    const status = await this.context.status();
    const { claimWindow } = await this.context.shares();
    const before = /** @type {KeptStatus | undefined} */ (await this.kept.get("status"));
    if (before && UNDER_WAY.includes(before.state)) this.claimTime.sawRunningAt(before.at, claimWindow);
    if (UNDER_WAY.includes(status.state)) this.claimTime.sawRunning(claimWindow);
    await this._keepStatus(status, before);
    this.state = status.state;
    this.comeBack = Math.min(status.come_back ?? 0, LONGEST_REST);
    return status;
  }

  /**
   * What the owner is shown while there is no network; written where it has changed.
   * @param {Status} status @param {KeptStatus} [before]
   */
  async _keepStatus(status, before) {
    const left = status.claim_seconds_left ?? null;
    const rounds = status.rounds.map(({ number, state, deadline }) => ({ number, state, deadline }));
    const next = status.next_round ?? null;
    const now = { state: status.state, ended: status.ended ?? null, enrolled: status.enrolled ?? 0, rounds, next };
    const claimUntil = left === null ? null : this.context.now() + left;
    const { at: _at, claimUntil: until = null, ...same } = before ?? {};
    if (JSON.stringify(same) === JSON.stringify(now) && Math.abs((until ?? 0) - (claimUntil ?? 0)) < SAME_TIME) return;
    await this.kept.put("status", { ...now, at: this.context.now(), claimUntil });
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
    const { context } = this;
    const task = await context.shares();
    return new Claiming({
      kept: this.kept,
      window: task.claimWindow,
      status: () => this._status(),
      pay: async (claim) => this._platform.claim(this.task, claim, await context.keys()),
      make: async (rewards) => context.protocol.makeClaim(task, await context.keys(), rewards, await context.bundle()),
      openReward: async (number, shown) => {
        await this.model.readRecord(number, shown); // first: nobody waits for a reward that it leaves out
        return this.rewards.look(number);
      },
      tell: context.tell,
      time: this.claimTime,
      unread: this.rewards.unread,
    });
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

  /** What was taken back earns nothing, and no upload stays here either. @param {{deleted: number[], standing: number[]}} answer */
  async _noteWithdrawn(answer) {
    const unpaid = answer.deleted.map((number) => [named(number, "no-reward"), "withdrawn"]);
    const uploads = (await this.kept.rounds("upload")).map((number) => named(number, "upload"));
    await this.kept.change({ ...Object.fromEntries(unpaid), withdrawn: { ...answer, at: this.context.now() } }, uploads);
    this.context.tell("withdrawn", answer);
  }
}
