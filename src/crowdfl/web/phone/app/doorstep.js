// An invitation on the screen before the rest of the page is there.

import { Platform } from "../agent/api.js";
import { clockAhead, closedBy, requireStatus } from "../agent/status.js";
import { openDefinition } from "../protocol/documents.js";
import { DocumentError } from "../protocol/errors.js";
import { explain } from "./messages.js";
import { aboutView } from "./views/about.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Campaign} Campaign */
/** @typedef {import("../protocol/invitation.js").Invitation} Invitation */

const PATIENCE = 20; // seconds
/** @type {{ step: Doorstep, view: ReturnType<typeof aboutView> } | null} */
let open = null;

/** In the place of a model until that is there: it can show one invitation, and nothing is kept or sent. */
export class Doorstep {
  /**
   * @param {Invitation} invitation
   * @param {{ speaking: Promise<unknown>, openPage: () => Promise<void> }} page Its sentences, and what fetches the rest of it, the model too.
   */
  constructor({ task, sp, kgc, expires, place, replaces }, page) {
    this.page = page;
    this.takesPlace = replaces;
    /** @type {Model | null} */
    this.model = null;
    /** @type {(model: Model) => void} */
    this.accept = () => {};
    /** @type {(wrong: unknown) => void} */
    this.refuse = () => {};
    /** @type {Promise<Model>} */
    this.opened = new Promise((resolve, reject) => Object.assign(this, { accept: resolve, refuse: reject }));
    this.opened.catch(() => {}); // heard by who taps Join
    this.platform = new Platform(sp, kgc, undefined, { deadline: PATIENCE });
    /** @type {any} What an invitation shows of a campaign. */
    this.campaign = {
      task, sp, kgc, expires, place, replaces, phase: "invited", definition: null, refusal: null, closed: null, ahead: 0, problem: null,
      now: { kind: "idle", round: null, done: 0, of: 0, why: null },
    };
  }

  /** What is shown stays, ticks included, until the model has asked for itself. @param {string} task @returns {Campaign} */
  get(task) {
    const found = this.model?.get(task);
    return found?.definition || found?.problem || found?.refusal ? found : this.campaign;
  }

  /** Its signature and its name are checked; the rest is, before anything is joined. */
  async look() {
    const { task } = this.campaign;
    try {
      const [papers, status] = await Promise.all([this.platform.papers(task), this.platform.status(task)]);
      const { task: named, body } = await openDefinition(papers.definition);
      if (named !== task) throw new DocumentError("the platform showed the papers of another task");
      const closed = closedBy(requireStatus(status, body.settings.rounds), this.takesPlace);
      Object.assign(this.campaign, { definition: body, closed, ahead: clockAhead(status, Date.now() / 1000), problem: null });
    } catch (wrong) {
      await this.page.speaking;
      this.campaign.problem = explain(wrong);
    }
    open?.view.update();
  }

  /** @type {Model["join"]} */
  async join(...asked) {
    return (await this.whole()).join(...asked);
  }

  /** @param {string} task */
  async forget(task) {
    return (await this.whole()).forget(task);
  }

  /** The page, once it is there; fetched again where that failed. */
  async whole() {
    if (!this.model) await this.page.openPage();
    return this.opened;
  }
}

/**
 * The invitation that is shown already, now with the whole model behind it; once.
 * @param {Model} model @param {string} task
 */
export function shownInvitation(model, task) {
  if (open?.step.campaign.task !== task) return null;
  const { step, view } = open;
  open = null;
  step.model = model;
  step.accept(model);
  return view;
}

/** The invitation cannot be kept: who has tapped Join hears why. @param {unknown} wrong */
export function refuseInvitation(wrong) {
  open?.step.refuse(wrong);
}

/** @param {Doorstep} step @param {HTMLElement} root */
export function showDoorstep(step, root) {
  const view = aboutView(/** @type {any} */ (step), step.campaign.task);
  open = { step, view };
  root.replaceChildren(view.element);
}
