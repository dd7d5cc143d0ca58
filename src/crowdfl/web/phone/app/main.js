// The page: one view at a time, chosen by the address; the heading of a new view takes the focus.

import { blockedWords, onBlocked } from "../../web/common/blocked.js";
import { h } from "../../web/common/dom.js";
import { takeInvitation } from "./link.js";
import { openModel } from "./model.js";
import { keepForOffline, requireBrowser } from "./browser.js";
import { explainBy, notice, title } from "../../web/common/parts.js";
import { speakReaders } from "../../web/common/text.js";
import { CAMPAIGN_VIEWS, go, hashOf, placeOf } from "./router.js";
import { aboutView } from "./views/about.js";
import { campaignsView } from "./views/campaigns.js";
import { deviceView } from "./views/device.js";
import { recordView } from "./views/record.js";
import { rewardsView } from "./views/rewards.js";
import { roundsView } from "./views/rounds.js";
import { settingsView } from "./views/settings.js";
import { explain, explainLink } from "./messages.js";

/** @typedef {import("./types.js").Model} Model */
/** @typedef {{ element: HTMLElement, update(): unknown, close?(): unknown }} View */

/** @type {Record<string, (model: Model, task: string) => View>} */
const VIEWS = {
  campaigns: campaignsView,
  device: deviceView,
  about: aboutView,
  record: recordView,
  rounds: roundsView,
  rewards: rewardsView,
  settings: settingsView,
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
  }

  /** @param {boolean} [focus] Not when the page opens: whoever opens a page starts at its top. */
  show(focus = true) {
    const { name, task } = placeOf(location.hash);
    this.view?.close?.();
    this.view = VIEWS[name](this.model, task);
    root.replaceChildren(this.view.element);
    navigation(name, task, this.model.get(task)?.phase ?? "invited");
    const heading = root.querySelector("h1");
    document.title = `${heading?.textContent ?? "CrowdFL"} – CrowdFL`;
    scrollTo(0, 0);
    if (focus) heading?.focus();
  }

  update() {
    this.view?.update();
    const { name, task } = placeOf(location.hash);
    navigation(name, task, this.model.get(task)?.phase ?? "invited");
  }

  /** A link that was opened: with the page, or in a page that was open already. */
  async invite() {
    const fragment = takeInvitation();
    if (fragment === null) return;
    try {
      const task = await this.model.accept(fragment);
      notices.replaceChildren();
      go("about", task);
      void this.model.look(task);
    } catch (wrong) {
      notices.replaceChildren(notice("bad", "This invitation cannot be opened. ", explainLink(wrong)));
    }
  }
}

/** @type {string} */
let shown = "";

/** @param {string} name @param {string} task @param {string} phase */
function navigation(name, task, phase) {
  const joined = task !== "" && phase !== "invited";
  const now = `${name} ${task} ${joined}`;
  if (now === shown) return;
  shown = now;
  places.hidden = !joined;
  const items = Object.entries(CAMPAIGN_VIEWS).map(([view, words]) =>
    h("li", null, h("a", { href: hashOf(view, task), "aria-current": view === name && "page" }, words)));
  places.replaceChildren(...(joined ? [h("ul", null, ...items)] : []));
}

function tellStanding() {
  standing.textContent = navigator.onLine ? "" : "Offline. Recording works; rounds go on when the network is back.";
}

function keepSkipLinkLocal() {
  document.getElementById("skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    root.focus();
  });
}

async function start() {
  await speakReaders((code) => import(`../text/${code}.js`));
  explainBy(explain);
  keepSkipLinkLocal();
  onBlocked((place) => notices.append(notice("bad", blockedWords(place))));
  tellStanding();
  addEventListener("online", tellStanding);
  addEventListener("offline", tellStanding);
  await requireBrowser();
  const model = await openModel();
  const page = new Page(model);
  model.onChange(() => page.update());
  addEventListener("hashchange", () => {
    page.show();
    void page.invite();
  });
  page.show(false);
  await page.invite();
  void keepForOffline(notices);
}

start().catch((wrong) => root.replaceChildren(title("This page cannot start"), notice("bad", explain(wrong))));
