// SP's console: log in, then views that follow what happens.
import { h } from "../web/common/dom.js";
import { Announcer } from "./announcer.js";
import { Refused, call, session } from "./api.js";
import { Live } from "./live.js";
import { moneyPanels } from "./money.js";
import { redraw } from "./panels.js";
import { TaskData, taskPanels } from "./task.js";
import { tasksPanels } from "./tasks.js";

/** @typedef {import("./panels.js").Panel} Panel */

const PAUSE = 1000; // milliseconds at least between two looks at the same task
const TASK = /^#\/tasks\/([0-9a-f]{32})$/;
const LINKS = { connecting: "connecting …", live: "live", trouble: "SP cannot read its store", ended: "ended" };

/** @param {string} id */
const place = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

class Console {
  /** @param {{ name: string, host: string }} who */
  constructor(who) {
    /** @type {Panel[]} */
    this.panels = [];
    /** @type {TaskData | null} */
    this.data = null;
    this.timer = 0;
    this.announcer = new Announcer(place("news"));
    this.status = h("span.state", { title: "The connection to SP" }, LINKS.connecting);
    this.follow = () => this.show();
    window.addEventListener("hashchange", this.follow);
    this.head(who);
    this.live = new Live((names, change) => this.changed(names, change), (link) => this.linked(link), async () => (await session()) !== null);
    this.show();
  }

  /** @param {{ name: string, host: string }} who */
  head(who) {
    const link = (/** @type {string} */ to, /** @type {string} */ words) => h("a", { href: to }, words);
    place("top").replaceChildren(h("div.page.row", null,
      h("strong", null, `CrowdFL · SP ${who.host}`),
      h("nav", { "aria-label": "Views" }, link("#/", "Tasks"), link("#/money", "Money")),
      h("span.row", null, this.status, h("span.soft", null, who.name), h("button", { id: "log-out", onclick: () => void this.leave() }, "Log out"))));
  }

  /** The view that the address names; other hashes are places on the page. */
  show() {
    const hash = location.hash || "#/";
    if (!hash.startsWith("#/")) return;
    const task = TASK.exec(hash)?.[1];
    this.data = task ? new TaskData(task) : null;
    this.panels = this.data ? taskPanels(this.data, this.live, () => void this.load("operator"))
      : hash === "#/money" ? moneyPanels(this.live) : tasksPanels(this.live);
    for (const link of document.querySelectorAll("nav a")) {
      if (link.getAttribute("href") === hash) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const title = task ? [] : [h("h1", null, hash === "#/money" ? "Money" : "Tasks")];
    place("content").replaceChildren(...title, ...this.panels.map((panel) => h("section", { id: panel.id })));
    for (const panel of this.panels) redraw(panel);
    place("content").focus();
    if (this.data) void this.load("operator");
    else void call("GET", "session").catch((refusal) => this.failed(refusal)); // the operator does something
  }

  /** @param {string[]} names @param {Record<string, any> | null} change */
  changed(names, change) {
    if (change) this.announcer.hear(change);
    for (const panel of this.panels) {
      if (panel.needs.some((need) => names.includes(need))) redraw(panel);
    }
    if (this.data && !this.timer && (!change || concerns(change, this.data.task))) {
      this.timer = window.setTimeout(() => void this.load("page"), PAUSE);
    }
  }

  /** @param {"operator" | "page"} by */
  async load(by) {
    const data = this.data;
    window.clearTimeout(this.timer);
    this.timer = 0;
    try {
      await data?.load(by);
      if (data === this.data) this.changed(["task"], {});
    } catch (refusal) {
      if (data === this.data) this.failed(refusal);
    }
  }

  /** @param {unknown} refusal */
  failed(refusal) {
    if (refusal instanceof Refused && refusal.status === 401) this.live.end();
    else if (this.data && !this.data.about) place("content").replaceChildren(h("h1", null, "This task cannot be shown"), h("p", null, String(refusal)));
  }

  /** @param {import("./live.js").Link} link */
  linked(link) {
    this.status.textContent = LINKS[link];
    this.status.className = link === "live" ? "state good" : "state warn";
    if (link === "ended") this.end("Your session has ended. Log in again.");
  }

  async leave() {
    await call("DELETE", "session").catch(() => null);
    this.live.close();
    this.end("You are logged out.");
  }

  /** @param {string} words */
  end(words) {
    window.removeEventListener("hashchange", this.follow);
    window.clearTimeout(this.timer);
    for (const dialog of document.querySelectorAll("dialog")) dialog.close();
    [this.panels, this.data] = [[], null];
    place("top").replaceChildren();
    login(words);
  }
}

/** Whether a change is about this task. @param {Record<string, any>} change @param {string} task */
function concerns(change, task) {
  return Object.values(change).some(({ changed, gone }) =>
    [...Object.keys(changed ?? {}), ...(gone ?? [])].some((key) => key.startsWith(task)) ||
    Object.values(changed ?? {}).some((/** @type {any} */ row) => row.task === task));
}

/** @param {string} words */
function login(words) {
  const token = /** @type {HTMLInputElement} */ (h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", "aria-describedby": "token-hint", required: true }));
  const wrong = h("p.wrong", { role: "alert" });
  const send = /** @type {HTMLButtonElement} */ (h("button.main", { type: "submit" }, "Log in"));
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    [send.disabled, wrong.textContent] = [true, ""];
    try {
      await call("POST", "session", { token: token.value });
      token.value = "";
      await start();
    } catch (refusal) {
      wrong.textContent = refusal instanceof Error ? refusal.message : String(refusal);
      send.disabled = false;
      token.focus();
    }
  }
  place("content").replaceChildren(h("section.card.login", null,
    h("h1", null, "CrowdFL console"), h("p", { role: "status" }, words),
    h("form", { onsubmit: submit, novalidate: true }, h("label", { for: "token" }, "Operator token"), token,
      h("p.soft", { id: "token-hint" }, "Made by: crowdfl sp token add SETTINGS NAME operator. It is sent once, over this connection, and is not kept in the browser."),
      wrong, send)));
  token.focus();
}

async function start() {
  const who = await session();
  if (who) new Console(who);
  else login("For the operator of SP.");
}

start().catch((failure) => login(failure instanceof Error ? failure.message : String(failure)));
