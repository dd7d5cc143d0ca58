// What opens first: the invitation, from the link and one question to the platform. The rest of the page is fetched behind it.

import { Platform } from "../agent/api.js";
import { closedBy, requireStatus } from "../agent/status.js";
import { openDefinition } from "../protocol/documents.js";
import { DocumentError, ServiceUnavailable } from "../protocol/errors.js";
import { parseLink } from "../protocol/invitation.js";
import { h } from "../../web/common/dom.js";
import { actionButton, button, explainBy, notice, title } from "../../web/common/parts.js";
import { speakReaders, t } from "../../web/common/text.js";
import { appOf, requireBrowser, wayOut } from "./browser.js";
import { linkOf, showInvitation, waitingInvitation } from "./link.js";
import { explain } from "./messages.js";
import { aboutView } from "./views/about.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Campaign} Campaign */
/** @typedef {import("../protocol/invitation.js").Invitation} Invitation */

/** In the place of a model until that is there: it can show one invitation, and nothing is kept or sent. */
class Doorstep {
  /** @param {Invitation} invitation */
  constructor({ task, sp, kgc, expires, replaces }) {
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
      task, sp, kgc, expires, phase: "invited", definition: null, refusal: null, closed: null, problem: null,
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
      Object.assign(this.campaign, { definition: body, closed, problem: null });
    } catch (wrong) {
      await speaking;
      this.campaign.problem = explain(wrong);
    }
    open?.view.update();
  }

  /** @param {string} task @param {number} least @param {string} [language] */
  async join(task, least, language) {
    return (await this.whole()).join(task, least, language);
  }

  /** @param {string} task */
  async forget(task) {
    return (await this.whole()).forget(task);
  }

  /** The page, once it is there; fetched again where that failed. */
  async whole() {
    if (!this.model) await openPage();
    return this.opened;
  }
}

const PATIENCE = 20; // seconds
const root = /** @type {HTMLElement} */ (document.getElementById("view"));
/** @type {{ step: Doorstep, view: ReturnType<typeof aboutView> } | null} */
let open = null;

/** The rest of the page. */
async function openPage() {
  try {
    await import("./main.js");
  } catch {
    throw new ServiceUnavailable("page.js was not loaded");
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

/** @param {Doorstep} step */
function showDoorstep(step) {
  const view = aboutView(/** @type {any} */ (step), step.campaign.task);
  open = { step, view };
  root.replaceChildren(view.element);
}

/** Out of an app's own browser; the link stays in the address bar, which such apps hand on. @param {string} app @param {string} fragment */
function showWayOut(app, fragment) {
  const [link, place, out] = [linkOf(fragment), h("div"), wayOut(linkOf(fragment), navigator.userAgent)];
  showInvitation();
  const copy = actionButton(t("browser.copy"), place, async () => {
    await navigator.clipboard.writeText(link);
    place.replaceChildren(notice("good", t("browser.copied")));
  }, { kind: out ? "" : "main" });
  root.replaceChildren(title(t("browser.outTitle")), h("p", null, app ? t("browser.inApp", { app }) : t("browser.inSomeApp")),
    h("p", null, t(out ? "browser.outAndroid" : "browser.outMenu")),
    h("div.buttons", null, out && h("a.button.main", { href: out }, t("browser.open")), copy), place,
    h("p", null, button(t("browser.stay"), () => {
      showInvitation(false);
      void enter();
    }, { small: true })));
}

/** The invitation in the link, if it can be read: what is wrong with it, the page says. @param {string} fragment */
function readable(fragment) {
  try {
    return parseLink(fragment, location.origin);
  } catch {
    return null;
  }
}

/** The platform is asked while the sentences are fetched. */
async function enter() {
  const fragment = waitingInvitation();
  const invitation = fragment === null ? null : readable(fragment);
  const step = invitation && new Doorstep(invitation);
  const looking = step?.look();
  await speaking;
  await requireBrowser();
  if (step) showDoorstep(step);
  await looking;
  await openPage().catch((wrong) => {
    if (!step) throw wrong; // else who taps Join tries again
  });
}

const speaking = speakReaders((code) => import(`../text/${code}.js`));

async function start() {
  explainBy(explain);
  const [app, fragment] = [appOf(navigator.userAgent), waitingInvitation()];
  if (app === null || fragment === null) return enter();
  await speaking;
  showWayOut(app, fragment);
}

start().catch((wrong) => root.replaceChildren(title(t("browser.cannotStart")), notice("bad", explain(wrong))));
