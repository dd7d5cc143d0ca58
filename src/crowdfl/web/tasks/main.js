// The campaigns that this platform lists, which anybody may join. Each leads to the phone's page, which checks what its requester has
// signed, and says before Join what the platform could do.
import { h } from "../web/common/dom.js";
import { money } from "../web/common/format.js";
import { languageChoice, notice, title } from "../web/common/parts.js";
import { firstOf, readersLanguages, speakReaders, t, together, written } from "../web/common/text.js";

/**
 * @typedef {{ task: string, purpose: string, purposes: Record<string, string>, language: string, who: { name: string, institution: string }, profile: string,
 *   rounds: number, budget: number | null, currency: string, places_left: number, epsilon: number | null, link: string }} Row
 */

const PROFILE = "shares"; // phones take part in no other
const main = /** @type {HTMLElement} */ (document.querySelector("main"));

/** @returns {Promise<Row[]>} */
async function listed() {
  const answer = await fetch("../v1/tasks", { credentials: "omit" }).catch(() => null);
  const found = answer?.ok ? await answer.json().catch(() => null) : null;
  if (!Array.isArray(found?.tasks)) throw new Error(t("tasks.notLoaded"));
  return found.tasks;
}

/** The requester's words in the reader's language, where it has them. @param {Row} row */
function heading({ purpose, purposes, language }) {
  const found = firstOf(readersLanguages(), [language, ...Object.keys(purposes)]) ?? language;
  return h("h2", written(found), purposes[found] ?? purpose);
}

/** @param {Row} row */
function card(row) {
  const { who, rounds, budget, currency, places_left: places, profile, task, link } = row;
  const pay = budget === null ? t("tasks.unpaid") : t("tasks.budget", { amount: money(budget, currency) });
  return h("article.card", { id: `task-${task.slice(0, 8)}` },
    heading(row),
    h("p.soft", { dir: "auto" }, together(who.name || t("tasks.nobody"), who.institution && `(${who.institution})`)),
    h("p", null, together(t("tasks.rounds", { count: rounds }), pay, t("tasks.places", { count: places }))),
    profile === PROFILE ? h("div.buttons", null, h("a.button.main", { href: link }, t("tasks.look"))) : h("p.soft", null, t("tasks.program", { task })));
}

async function start() {
  await speakReaders((code) => import(`./text/${code}.js`));
  document.title = `${t("tasks.title")} – CrowdFL`;
  document.querySelector("header")?.append(languageChoice());
  const rows = await listed();
  main.replaceChildren(title(t("tasks.title")), h("p", null, t("tasks.recruits")),
    ...(rows.length ? rows.map(card) : [h("p.card", null, t("tasks.none"))]));
}

start().catch((wrong) => main.replaceChildren(notice("bad", /** @type {Error} */ (wrong).message)));
