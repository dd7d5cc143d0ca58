// SP's console: log in, then views that follow what happens.
import { Refusal } from "../web/common/api.js";
import { h } from "../web/common/dom.js";
import { button, form, labelled, markView, messageOf, redraw, showBar } from "../web/common/parts.js";
import { speakReaders } from "../web/common/text.js";
import { BY_PAGE, get, logOut, post, session } from "./api.js";
import { Live } from "./live.js";
import { Announcer } from "./messages.js";
import { moneyPanels } from "./money.js";
import { TaskData, taskPanels } from "./task.js";
import { tasksPanels } from "./tasks.js";

/** @typedef {{ id: string, needs: readonly string[], draw: () => Node[] }} Panel Drawn again when a section that it `needs` changes. */

const PAUSE = 1000; // milliseconds at least between two looks at the same task
const TASK = /^#\/tasks\/([0-9a-f]{64})$/;
const LINKS = { connecting: "connecting …", live: "live", trouble: "SP cannot read its store", ended: "ended" };
const TOKEN_HINT = "Made by: crowdfl sp token add SETTINGS NAME operator. It is sent once, over this connection, and is not kept in the browser.";

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
    showBar(place("top"), `CrowdFL · SP ${who.host}`, { "#/": "Tasks", "#/money": "Money" },
      this.status, h("span.soft", null, who.name), button("Log out", () => void this.leave(), { id: "log-out" }));
    this.live = new Live((names, change) => this.changed(names, change), (link) => this.linked(link), async () => (await session()) !== null);
    this.show();
  }

  /** The view that the address names; other hashes are places on the page. */
  show() {
    const hash = location.hash || "#/";
    if (!hash.startsWith("#/")) return;
    const task = TASK.exec(hash)?.[1];
    this.data = task ? new TaskData(task) : null;
    this.panels = this.data ? taskPanels(this.data, this.live, () => void this.load())
      : hash === "#/money" ? moneyPanels(this.live) : tasksPanels(this.live);
    markView(hash);
    const title = task ? [] : [h("h1", null, hash === "#/money" ? "Money" : "Tasks")];
    place("content").replaceChildren(...title, ...this.panels.map((panel) => h("section", { id: panel.id })));
    for (const panel of this.panels) redraw(place(panel.id), panel.draw());
    place("content").focus();
    if (this.data) void this.load();
    else void get("session").catch((refusal) => this.failed(refusal)); // the operator does something
  }

  /** @param {string[]} names @param {Record<string, any> | null} change */
  changed(names, change) {
    if (change) this.announcer.hear(change);
    for (const panel of this.panels) {
      if (panel.needs.some((need) => names.includes(need))) redraw(place(panel.id), panel.draw());
    }
    if (this.data && !this.timer && (!change || concerns(change, this.data.task))) {
      this.timer = window.setTimeout(() => void this.load(BY_PAGE), PAUSE);
    }
  }

  /** @param {string} [mark] */
  async load(mark) {
    const data = this.data;
    window.clearTimeout(this.timer);
    this.timer = 0;
    try {
      await data?.load(mark);
      if (data === this.data) this.changed(["task"], {});
    } catch (refusal) {
      if (data === this.data) this.failed(refusal);
    }
  }

  /** @param {unknown} refusal */
  failed(refusal) {
    if (refusal instanceof Refusal && refusal.status === 401) this.live.end();
    else if (this.data && !this.data.about) place("content").replaceChildren(h("h1", null, "This task cannot be shown"), h("p", null, messageOf(refusal)));
  }

  /** @param {import("./live.js").Link} link */
  linked(link) {
    this.status.textContent = LINKS[link];
    this.status.className = link === "live" ? "state good" : "state warn";
    if (link === "ended") this.end("Your session has ended. Log in again.");
  }

  async leave() {
    await logOut().catch(() => null);
    this.live.close();
    this.end("You are logged out.");
  }

  /** @param {string} text */
  end(text) {
    window.removeEventListener("hashchange", this.follow);
    window.clearTimeout(this.timer);
    for (const dialog of document.querySelectorAll("dialog")) dialog.close();
    [this.panels, this.data] = [[], null];
    place("top").replaceChildren();
    login(text);
  }
}

/** Whether a change is about this task. @param {Record<string, any>} change @param {string} task */
function concerns(change, task) {
  return Object.values(change).some(({ changed, gone }) =>
    [...Object.keys(changed ?? {}), ...(gone ?? [])].some((key) => key.startsWith(task)) ||
    Object.values(changed ?? {}).some((/** @type {any} */ row) => row.task === task));
}

/** @param {string} text */
function login(text) {
  const token = /** @type {HTMLInputElement} */ (h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true }));
  const [wrong, send] = [h("div"), button("Log in", null, { kind: "main", type: "submit" })];
  const submit = async () => {
    await post("session", { token: token.value });
    token.value = "";
    await start();
  };
  place("content").replaceChildren(h("section.card.login", null, h("h1", null, "CrowdFL console"), h("p", { role: "status" }, text),
    form(send, wrong, submit, labelled("token", "Operator token", token, TOKEN_HINT), wrong, h("p", null, send))));
  token.focus();
}

async function start() {
  const who = await session();
  if (who) new Console(who);
  else login("For the operator of SP.");
}

speakReaders((code) => import(`./text/${code}.js`)).then(start).catch((failure) => login(messageOf(failure)));
