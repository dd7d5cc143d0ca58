// The page: one view at a time, chosen by the address; the heading of a new view takes the focus.

import { blockedWords, onBlocked } from "../../web/common/blocked.js";
import { h } from "../../web/common/dom.js";
import { takeInvitation } from "./link.js";
import { keepForOffline } from "./browser.js";
import { refuseInvitation, shownInvitation } from "./doorstep.js";
import { notice, title } from "../../web/common/parts.js";
import { between, t } from "../../web/common/text.js";
import { explain, explainLink } from "./messages.js";
import { showMenu } from "./menu.js";
import { isReached, watchReach } from "./reach.js";
import { go, placeOf } from "./router.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {{ element: HTMLElement, update(): unknown, close?(): unknown }} View */

/** Each is fetched when it is first shown. @type {Record<string, (model: Model, task: string) => Promise<View>>} */
const VIEWS = {
  campaigns: async (model) => (await import("./views/campaigns.js")).campaignsView(model),
  lost: async (model) => (await import("./views/campaigns.js")).lostView(model),
  device: async (model) => (await import("./views/device.js")).deviceView(model),
  about: async (model, task) => shownInvitation(model, task) ?? (await import("./views/about.js")).aboutView(model, task),
  home: async (model, task) => (await import("./views/home.js")).homeView(model, task),
  record: async (model, task) => (await import("./views/record.js")).recordView(model, task),
  earnings: async (model, task) => (await import("./views/earnings.js")).earningsView(model, task),
  details: async (model, task) => (await import("./views/details.js")).detailsView(model, task),
  leave: async (model, task) => (await import("./views/leave.js")).leaveView(model, task),
};

const root = /** @type {HTMLElement} */ (document.getElementById("view"));
const places = /** @type {HTMLElement} */ (document.getElementById("places"));
const notices = /** @type {HTMLElement} */ (document.getElementById("notices"));
const standing = /** @type {HTMLElement} */ (document.getElementById("standing"));

class Page {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    /** @type {View | null} */
    this.view = null;
    this.shown = 0; // views so far
    this.headed = "";
  }

  /** @param {boolean} [focus] Not when the page opens: whoever opens a page starts at its top. */
  async show(focus = true) {
    const { name, task } = this.place();
    const [opening, made] = [++this.shown, await VIEWS[name](this.model, task)];
    const last = opening === this.shown; // else another was asked for meanwhile
    (last ? this.view : made)?.close?.();
    if (!last) return;
    this.view = made;
    const isThere = made.element.isConnected; // an invitation that somebody is reading
    if (!isThere) root.replaceChildren(made.element);
    this.update();
    const heading = root.querySelector("h1");
    document.title = `${heading?.textContent ?? "CrowdFL"} – CrowdFL`;
    if (isThere) return;
    scrollTo(0, 0);
    if (focus) heading?.focus();
  }

  /** Where the address leads to: a phone with one campaign opens at that one. @returns {import("./router.js").Place} */
  place() {
    const { name, task } = placeOf(location.hash);
    const [only, ...others] = this.model.campaigns();
    if (task) return this.model.get(task) ? { name: name === "home" && !this.isIn(task) ? "about" : name, task } : { name: "lost", task };
    if (name === "start" && only && !others.length) return { name: this.isIn(only.task) ? "home" : "about", task: only.task };
    return { name: name === "start" ? "campaigns" : name, task: "" };
  }

  /** @param {string} task */
  isIn(task) {
    return (this.model.get(task)?.phase ?? "invited") !== "invited";
  }

  header() {
    const place = this.place();
    const now = `${place.name} ${place.task} ${this.isIn(place.task)}`;
    if (now !== this.headed) showMenu(places, place, this.isIn(place.task));
    this.headed = now;
  }

  update() {
    this.view?.update();
    this.header();
  }

  /** A link that was opened: with the page, or in a page that was open already. @returns {Promise<boolean>} Whether it leads somewhere. */
  async invite() {
    const fragment = takeInvitation();
    if (fragment === null) return false;
    try {
      const task = await this.model.accept(fragment);
      notices.replaceChildren();
      go(this.isIn(task) ? "home" : "about", task);
      void this.model.look(task);
      return true;
    } catch (wrong) {
      refuseInvitation(wrong);
      notices.replaceChildren(notice("bad", h("strong", null, t("menu.badLink")), between(), explainLink(wrong)));
      return false;
    }
  }
}

function tellStanding() {
  standing.textContent = isReached() ? "" : t("menu.offline");
}

function keepSkipLinkLocal() {
  document.getElementById("skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    root.focus();
  });
}

async function start() {
  keepSkipLinkLocal();
  onBlocked((place) => notices.append(notice("bad", blockedWords(place))));
  const { openModel } = await import("./model.js");
  const model = await openModel();
  const page = new Page(model);
  model.onChange(() => page.update());
  watchReach(() => {
    tellStanding();
    page.update();
  });
  addEventListener("hashchange", () => {
    void page.show();
    void page.invite();
  });
  if (!(await page.invite())) await page.show(false);
  void keepForOffline(notices);
}

start().catch((wrong) => root.replaceChildren(title(t("browser.cannotStart")), notice("bad", explain(wrong))));
