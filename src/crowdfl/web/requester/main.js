// The requester's page: opens the session, then shows the view that the address names. No address holds a secret.
import { h } from "../web/common/dom.js";
import { markView, messageOf, notice, showBar } from "../web/common/parts.js";
import { readServices } from "../web/common/said.js";
import { CONSOLES, speakReaders, t } from "../web/common/text.js";
import { get, openSession } from "./api.js";
import { createView } from "./create.js";
import { sheetView } from "./invite.js";
import { listView } from "./list.js";
import { reportView } from "./report.js";
import { taskView } from "./task.js";

/** @typedef {{ title: string, element: HTMLElement }} View */

const OPENING = "#open=";
const main = /** @type {HTMLElement} */ (document.querySelector("main"));
let leaving = new AbortController(); // ends what the view before was doing

/** @type {[RegExp, (signal: AbortSignal, ...parts: string[]) => Promise<View>][]} */
const VIEWS = [
  [/^#\/$/, listView],
  [/^#\/new$/, createView],
  [/^#\/new\/([0-9a-f]{64})$/, createView],
  [/^#\/tasks\/([0-9a-f]{64})$/, taskView],
  [/^#\/tasks\/([0-9a-f]{64})\/sheet$/, sheetView],
  [/^#\/tasks\/([0-9a-f]{64})\/report$/, reportView],
];

/** Take the secret out of the address before anything else. The browser that used it before is still let in. */
async function openPage() {
  const hash = location.hash;
  if (!hash.startsWith(OPENING)) return;
  history.replaceState(null, "", `${location.pathname}#/`);
  try {
    await openSession(hash.slice(OPENING.length));
  } catch (refusal) {
    await get("overview").catch(() => { throw refusal; });
  }
}

async function show() {
  const hash = location.hash || "#/";
  if (!hash.startsWith("#/")) return; // a place on the page
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [found, make] = VIEWS.map(([path, view]) => /** @type {const} */ ([path.exec(hash), view])).find(([match]) => match) ?? [null, null];
  try {
    if (!found || !make) throw new Error(t("page.noSuch"));
    main.setAttribute("aria-busy", "true");
    const view = await make(signal, ...found.slice(1));
    if (signal.aborted) return;
    document.title = `${view.title} – ${t("page.name")}`;
    main.replaceChildren(view.element);
  } catch (failure) {
    if (signal.aborted) return;
    document.title = t("page.name");
    main.replaceChildren(h("h1", null, t("page.cannot")), notice("bad", messageOf(failure)), h("p", null, h("a", { href: "#/" }, t("page.all"))));
  }
  main.removeAttribute("aria-busy");
  markView(hash);
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

async function start() {
  try {
    await speakReaders((code) => import(`./text/${code}.js`), CONSOLES);
    await readServices();
    await openPage();
    const { name, sp } = await get("overview");
    showBar(/** @type {HTMLElement} */ (document.querySelector("header")), t("page.name"), { "#/": t("page.tasks"), "#/new": t("page.new") }, h("span.soft", null, t("page.who", { name, sp })));
  } catch (failure) {
    main.replaceChildren(h("h1", null, t("page.notOpen")), notice("bad", messageOf(failure)));
    return;
  }
  addEventListener("hashchange", () => (location.hash.startsWith(OPENING) ? location.reload() : void show()));
  await show();
}

void start();
