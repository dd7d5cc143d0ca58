// SP's console: log in, then views that follow what happens.
import { Refusal } from "../web/common/api.js";
import { h } from "../web/common/dom.js";
import { formatTime } from "../web/common/format.js";
import { button, form, labelled, languageChoice, markView, messageOf, notice, redraw, showBar } from "../web/common/parts.js";
import { readServices } from "../web/common/said.js";
import { CONSOLES, speakReaders, t } from "../web/common/text.js";
import { Announcer } from "./announcer.js";
import { BY_PAGE, get, logOut, post, session } from "./api.js";
import { Live } from "./live.js";
import { moneyPanels } from "./money.js";
import { TaskData, taskPanels } from "./task.js";
import { tasksPanels } from "./tasks.js";

/** @typedef {import("./live.js").Panel} Panel */

const PAUSE = 1000; // milliseconds at least between two looks at the same task
const TASK = /^#\/tasks\/([0-9a-f]{64})$/;

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
    this.status = h("span.state", { title: t("bar.link") }, t("link.connecting"));
    this.heard = Date.now();
    this.follow = () => this.show();
    window.addEventListener("hashchange", this.follow);
    document.title = t("bar.name", { host: who.host });
    showBar(place("top"), document.title, { "#/": t("bar.tasks"), "#/money": t("bar.money") },
      this.status, h("span.soft", null, who.name), button(t("bar.logOut"), () => void this.leave(), { id: "log-out" }));
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
    const title = task ? [] : [h("h1", null, t(hash === "#/money" ? "money.title" : "tasks.heading"))];
    place("content").replaceChildren(...title, ...this.panels.map((panel) => h("section", { id: panel.id })));
    for (const panel of this.panels) this.draw(panel);
    place("content").focus();
    if (this.data) void this.load();
    else void get("session").catch((refusal) => this.failed(refusal)); // the operator does something
  }

  /** Once all of it is known: before, it would say that there is nothing. @param {Panel} panel */
  draw(panel) {
    if (panel.needs.every((need) => need === "task" || this.live.sections.has(need))) redraw(place(panel.id), panel.draw());
  }

  /** @param {string[]} names @param {Record<string, any> | null} change */
  changed(names, change) {
    if (change) this.announcer.hear(change);
    for (const panel of this.panels) {
      if (panel.needs.some((need) => names.includes(need))) this.draw(panel);
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
    else if (this.data && !this.data.about) place("content").replaceChildren(h("h1", null, t("task.cannot")), h("p", null, messageOf(refusal)));
  }

  /** @param {import("./live.js").Link} link */
  linked(link) {
    const gone = link === "connecting" && this.live?.sections.size > 0; // it was there, and is not any more
    if (link === "live") this.heard = Date.now();
    this.status.textContent = t(`link.${gone ? "gone" : link}`);
    this.status.className = `state ${link === "live" ? "good" : gone ? "bad" : "warn"}`;
    document.body.classList.toggle("gone", gone);
    place("stale").replaceChildren(...(gone ? [notice("bad", t("link.stale", { when: formatTime(this.heard) }))] : []));
    if (link === "ended") this.end(t("login.ended"));
  }

  async leave() {
    await logOut().catch(() => null);
    this.live.close();
    this.end(t("login.out"));
  }

  /** @param {string} text */
  end(text) {
    window.removeEventListener("hashchange", this.follow);
    window.clearTimeout(this.timer);
    for (const dialog of document.querySelectorAll("dialog")) dialog.close();
    [this.panels, this.data] = [[], null];
    place("top").replaceChildren();
    place("stale").replaceChildren();
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
  const [wrong, send] = [h("div"), button(t("login.logIn"), null, { kind: "main", type: "submit" })];
  const submit = async () => {
    await post("session", { token: token.value });
    token.value = "";
    await start();
  };
  document.title = t("login.title");
  place("content").replaceChildren(h("section.card.login", null, h("h1", null, t("login.title")), h("p", { role: "status" }, text),
    form(send, wrong, submit, labelled("token", t("login.token"), token, t("login.hint")), wrong, h("div.buttons", null, send, languageChoice()))));
  token.focus();
}

async function start() {
  const who = await session();
  if (who) new Console(who);
  else login(t("login.for"));
}

speakReaders((code) => import(`./text/${code}.js`), CONSOLES).then(readServices).then(start).catch((failure) => login(messageOf(failure)));
