// Between the views and the agents: the campaigns of this phone as plain objects, and what a person can do about them.

import { Agent } from "../agent/agent.js";
import { Platform } from "../agent/api.js";
import { reminderState, unsubscribe } from "../agent/reminders.js";
import { view } from "../agent/state.js";
import { openStore } from "../agent/store.js";
import { CONTRIBUTION } from "../agent/uploads.js";
import { parseRecipe, requireBearable } from "../learning/recipe.js";
import { UnsupportedTask } from "../protocol/errors.js";
import { parseLink } from "../protocol/invitation.js";
import { keepInvitation } from "./accepting.js";
import { importable } from "./imports.js";
import { forgetOffline } from "./browser.js";
import { mark, marked } from "./marks.js";
import { noteReach, probe } from "./reach.js";
import { stayAwake } from "./signals.js";
import { PhoneTrainer } from "./trainer.js";
import { explain } from "./messages.js";

/** @typedef {import("./types.js").Campaign} Campaign */
/** @typedef {import("./types.js").NowView} NowView */
/** @typedef {import("./types.js").RecordingView} RecordingView */
/** @typedef {import("./types.js").Samples} Samples */
/** @typedef {import("../agent/store.js").Store} Store */
/** @typedef {import("../protocol/invitation.js").Invitation} Invitation */
/** @typedef {{ agent: Agent, trainer: PhoneTrainer, now: NowView, problem: string | null, refusal: string | null, closed: string | null, ahead: number, runs: boolean }} Part */

/** @type {NowView} */
const IDLE = { kind: "idle", round: null, done: 0, of: 0, why: null };
const UNFINISHED = " unfinished"; // behind the name of a recording that is still being made

/** A `Model`; `openModel` says so to the type checker. */
class PhoneModel {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Map<string, Part>} */
    this.parts = new Map();
    /** @type {Campaign[]} */
    this.found = [];
    /** @type {string[]} Campaigns that were joined, and of which the database has nothing any more. */
    this.gone = [];
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    /** @type {Promise<void> | null} */
    this.reading = null;
    this.again = false;
    this.recordedTimes = 0;
    this.others = new BroadcastChannel("crowdfl"); // tabs of the same browser
    this.others.onmessage = () => {
      this.recordedTimes += 1; // perhaps
      void this.refresh(false);
    };
    addEventListener("online", () => this.wake());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.wake());
  }

  /** What was going on when the page was closed goes on. */
  async resume() {
    const tasks = await this.store.tasks();
    this.gone = marked().filter((name) => !tasks.some(({ task }) => task === name));
    for (const { task, phase } of tasks) {
      await this.tidy(task);
      if (phase === "invited") void this.look(task);
      else void this.run(task); // of one that has ended: what its owner has given since
    }
    await this.refresh(false);
  }

  campaigns() {
    return this.found;
  }

  lost() {
    return this.gone;
  }

  forgetLost() {
    this.gone = [];
    void this.refresh();
  }

  /** @param {string} task */
  get(task) {
    return this.found.find((one) => one.task === task);
  }

  /** @param {() => void} listener */
  onChange(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** @param {string} fragment */
  async accept(fragment) {
    const invitation = parseLink(fragment, location.origin);
    if (await keepInvitation(this.store, invitation, Date.now() / 1000)) this.parts.delete(invitation.task);
    await this.refresh();
    return invitation.task;
  }

  /** Ask the platform what the campaign is. @param {string} task */
  async look(task) {
    const part = await this.part(task);
    try {
      const { definition } = await part.agent.look();
      requireBearable(parseRecipe(definition.body.training));
      Object.assign(part, await part.agent.entry());
      part.problem = null;
    } catch (wrong) {
      if (wrong instanceof UnsupportedTask || isUnsupported(wrong)) part.refusal = explain(wrong);
      else part.problem = (await this.store.has(task, "definition")) ? null : explain(wrong);
    }
    await this.refresh();
  }

  /** @type {import("./types.js").Model["join"]} */
  async join(task, least, language, allTheSame = false) {
    const { agent } = await this.part(task);
    await agent.accept(least, allTheSame);
    if (language !== undefined) await agent.agree({ language });
    await agent.join();
    await this.refresh();
    void this.run(task);
  }

  /** Take part until the end; what stops it is shown, and tried again when the person comes back. @param {string} task */
  async run(task) {
    const part = await this.part(task);
    if (part.runs) return;
    part.runs = true;
    part.problem = null;
    try {
      await part.agent.run();
    } catch (wrong) {
      part.problem = explain(wrong);
    } finally {
      part.runs = false;
      part.now = IDLE;
      await this.refresh();
    }
  }

  /** @param {string} task */
  async leave(task) {
    const { agent, trainer } = await this.part(task);
    await agent.leave();
    trainer.close(); // what it was training for is not sent any more
    await this.refresh();
    void this.run(task); // what was earned is claimed at the end
  }

  /** @param {string} task */
  async withdraw(task) {
    const { agent, trainer } = await this.part(task);
    const answer = await agent.withdraw();
    trainer.close();
    await this.refresh();
    void this.run(task);
    return answer;
  }

  /** @param {string} task */
  async consentCopy(task) {
    return (await this.part(task)).agent.consentCopy();
  }

  /** @param {string} task */
  async ownData(task) {
    return (await this.part(task)).agent.heldFile();
  }

  /** @param {string} task */
  async evidence(task) {
    return (await this.part(task)).agent.evidence();
  }

  /** @param {string} task */
  async payKinds(task) {
    await (await this.part(task)).agent.payKinds();
    await this.refresh();
  }

  /** @param {string} task @param {string} kind @param {string} to */
  async payTo(task, kind, to) {
    const part = await this.part(task);
    try {
      await part.agent.payTo(kind, to);
    } finally {
      await this.refresh(); // it may be kept, and sent later
      if (part.runs) part.agent.wake();
      else void this.run(task); // a claim names it
    }
  }

  reminderState() {
    return reminderState();
  }

  /** @param {string} task @param {import("../agent/reminders.js").Words} words */
  async remind(task, words) {
    const state = await (await this.part(task)).agent.remind(words);
    await this.refresh();
    return state;
  }

  /** @param {string} task */
  async stopReminding(task) {
    await (await this.part(task)).agent.stopReminding();
    await this.refresh();
  }

  /** @param {string} task */
  async forget(task) {
    const { agent, trainer } = await this.part(task);
    await agent.forget({ loseRewards: true }).catch(() => {}); // whatever is wrong with what is kept, it goes
    await this.drop(task);
    trainer.close();
    await this.refresh();
  }

  async forgetAll() {
    const tasks = await this.store.tasks();
    await Promise.all(tasks.map(({ task }) => this.forget(task)));
    this.gone = [];
    await this.store.forgetDevice();
    await unsubscribe();
    await this.refresh();
    await forgetOffline();
  }

  /** @param {string} task */
  async claim(task) {
    const { agent } = await this.part(task);
    try {
      await agent.claim();
    } finally {
      await this.refresh();
      void this.run(task);
    }
  }

  /** What may have changed while the page slept or was offline; what had failed is tried again. */
  wake() {
    for (const [task, { agent, runs, problem, ahead }] of this.parts) {
      if (runs) agent.wake();
      else if (problem || ahead) void this.retry(task);
    }
  }

  /** @param {string} task */
  async retry(task) {
    if (this.get(task)?.phase === "invited") await this.look(task);
    else void this.run(task);
  }

  /** @param {string} task */
  async windows(task) {
    return (await this.part(task)).trainer.windows();
  }

  /** The owner's word: what is recorded now is used in this round and in those that follow. @param {string} task */
  async contribute(task) {
    await this.store.put(task, CONTRIBUTION, { ids: await this.store.recordingIds(task), at: Date.now() });
    await this.recorded(task);
  }

  /** @param {string} task @returns {Promise<RecordingView[]>} The newest first. */
  async recordings(task) {
    const [found, said] = [await this.store.listRecordings(task), await this.store.get(task, CONTRIBUTION)];
    return found.reverse().map(({ id, label, answers = {}, times }) => ({
      id,
      label,
      answers,
      seconds: times.length ? times[times.length - 1] - times[0] : 0,
      at: Number.isNaN(Date.parse(id.split(" ")[0])) ? null : Date.parse(id.split(" ")[0]),
      said: said?.ids.includes(id) ?? false,
    }));
  }

  /**
   * A recording under way has a name of its own, which nobody has said to send.
   * @param {string} task @param {import("./types.js").KeptRecording} recording @param {boolean} whole
   */
  async keep(task, recording, whole) {
    const { id } = recording;
    await this.store.addRecording(task, { ...recording, id: whole ? id : id + UNFINISHED });
    if (!whole) return;
    await this.store.deleteRecording(task, id + UNFINISHED);
    await this.recorded(task);
  }

  /** It was something else, or is answered otherwise. @param {string} task @param {string} id @param {import("./types.js").About} about */
  async changeRecording(task, id, about) {
    const found = (await this.store.listRecordings(task)).find((one) => one.id === id);
    if (!found) return;
    await this.store.addRecording(task, { ...found, ...about });
    await this.renewContribution(task, (one) => one);
  }

  /** @param {string} task @param {string} name @param {string} text */
  async importCsv(task, name, text) {
    const recipe = parseRecipe(this.get(task)?.definition?.training);
    const { recordings, words } = importable(name, text, recipe);
    for (const recording of recordings) await this.store.addRecording(task, recording);
    await this.recorded(task);
    return words;
  }

  /** @param {string} task @param {string} id */
  async deleteRecording(task, id) {
    await this.store.deleteRecording(task, id);
    await this.renewContribution(task, (ids) => ids.filter((one) => one !== id));
  }

  /** What the owner said stands, of what the recordings are now. @param {string} task @param {(ids: string[]) => string[]} changed */
  async renewContribution(task, changed) {
    const said = await this.store.get(task, CONTRIBUTION);
    if (said) await this.store.put(task, CONTRIBUTION, { ids: changed(said.ids), at: Date.now() });
    await this.recorded(task);
  }

  async persisted() {
    return (await navigator.storage?.persisted?.()) ?? false;
  }

  /** @param {string} task */
  async recorded(task) {
    const part = this.parts.get(task);
    this.recordedTimes += 1;
    part?.agent.wake();
    await this.refresh();
    if (part && this.get(task)?.phase === "joined") void this.run(task); // where it had stopped
  }

  /** A page may have been closed after a recording was whole, and before what it was made of was deleted. @param {string} task */
  async tidy(task) {
    const ids = new Set(await this.store.recordingIds(task));
    for (const id of ids) if (ids.has(id + UNFINISHED)) await this.store.deleteRecording(task, id + UNFINISHED);
  }

  /** @param {string} task */
  async drop(task) {
    await this.store.forget(task);
    this.parts.delete(task);
  }

  /** Read everything again; several wishes at once are one. @param {boolean} [tell] Other tabs too. */
  async refresh(tell = true) {
    if (tell) this.others.postMessage("changed");
    if (this.reading) {
      this.again = true;
      return this.reading;
    }
    this.reading = this.read();
    try {
      await this.reading;
    } finally {
      this.reading = null;
    }
    if (this.again) await this.refresh(false);
  }

  async read() {
    do {
      this.again = false;
      const tasks = await this.store.tasks();
      const found = await Promise.all(tasks.map(({ task }) => this.campaign(task)));
      this.found = /** @type {Campaign[]} */ (found.filter((one) => one !== null));
      mark([...this.gone, ...this.found.filter(({ phase }) => phase !== "invited").map(({ task }) => task)]);
      for (const listener of this.listeners) listener();
    } while (this.again);
  }

  /** @param {string} task @returns {Promise<Campaign | null>} */
  async campaign(task) {
    const [shown, invitation, recordings, said] = await Promise.all([
      view(this.store, task), this.store.get(task, "invitation"), this.store.recordingIds(task), this.store.get(task, CONTRIBUTION)]);
    if (!shown || !invitation) return null;
    const part = this.parts.get(task);
    const { total, ...rest } = shown;
    return {
      ...rest,
      rewards: total,
      recordings: recordings.length,
      recorded: this.recordedTimes,
      contributed: said?.ids.length ?? null,
      refusal: part?.refusal ?? refusalOf(shown.definition),
      closed: part?.closed ?? null,
      ahead: part?.ahead ?? 0,
      problem: part?.problem ?? null,
      now: part?.now ?? IDLE,
      sp: invitation.sp,
      kgc: invitation.kgc,
      expires: invitation.expires,
      place: invitation.place,
      replaces: invitation.replaces,
    };
  }

  /** @param {string} task @returns {Promise<Part>} */
  async part(task) {
    const known = this.parts.get(task);
    if (known) return known;
    const invitation = /** @type {Invitation} */ (await this.store.get(task, "invitation"));
    const trainer = new PhoneTrainer(this.store, task, (round, done, of) => this.happens(task, { kind: "training", round, done, of, why: null }));
    const agent = new Agent({
      store: this.store,
      platform: new WatchedPlatform(invitation.sp, invitation.kgc, () => this.reached(task)),
      invitation,
      trainer,
      onEvent: (what, details) => this.hear(task, what, details),
    });
    const part = this.parts.get(task) ?? { agent, trainer, now: IDLE, problem: null, refusal: null, closed: null, ahead: 0, runs: false }; // another call was faster
    this.parts.set(task, part);
    return part;
  }

  /** @param {string} task @param {NowView} now */
  happens(task, now) {
    const part = this.parts.get(task);
    if (!part) return;
    part.now = now;
    stayAwake(task, now.kind === "training" || now.kind === "sending");
    const campaign = this.get(task);
    if (campaign) campaign.now = now;
    for (const listener of this.listeners) listener();
  }

  /** The platform answers again. @param {string} task */
  reached(task) {
    noteReach(true);
    if (this.parts.get(task)?.now.kind === "waiting") this.happens(task, IDLE);
  }

  /** @param {string} task @param {string} what @param {Record<string, any>} details */
  hear(task, what, details) {
    const { round = null } = details;
    if (what === "waiting") void probe(); // is it the platform, or the network?
    if (what === "training") this.happens(task, { kind: "training", round, done: 0, of: 1, why: null });
    else if (what === "sending") this.happens(task, { kind: "sending", round, done: details.sent, of: details.of, why: null });
    else if (what === "waiting") this.happens(task, { kind: "waiting", round, done: 0, of: 0, why: explain(details.wrong) });
    else if (what === "elsewhere") this.happens(task, { ...IDLE, kind: "elsewhere" });
    else this.happens(task, IDLE);
    void this.refresh();
  }
}

/** Tells when the platform has answered: an agent tells only when it does not. */
class WatchedPlatform extends Platform {
  /** @param {string} sp @param {string} kgc @param {() => void} onAnswer */
  constructor(sp, kgc, onAnswer) {
    super(sp, kgc);
    this.onAnswer = onAnswer;
  }

  /** @param {string} task */
  async status(task) {
    const found = await super.status(task);
    this.onAnswer();
    return found;
  }
}

/** Why this page cannot take part, from what is kept: there may be no network. @param {any} definition @returns {string | null} */
function refusalOf(definition) {
  try {
    if (definition) requireBearable(parseRecipe(definition.training));
    return null;
  } catch (wrong) {
    return explain(wrong);
  }
}

/** Errors of the learning code have names of their own. @param {unknown} wrong */
function isUnsupported(wrong) {
  return wrong instanceof Error && ["UnsupportedTask", "SettingsError"].includes(wrong.name);
}

/** @returns {Promise<import("./types.js").Model>} */
export async function openModel() {
  const store = await openStore();
  await store.keeping(); // before anybody joins with keys that would be lost
  const model = new PhoneModel(store);
  await model.resume();
  return model;
}
