// All tasks of this requester, from its own folder; where each stands, SP says.
import { h, table } from "../web/common/dom.js";
import { money } from "../web/common/format.js";
import { messageOf, notice, stateTag } from "../web/common/parts.js";
import { said } from "../web/common/said.js";
import { t } from "../web/common/text.js";
import { get } from "./api.js";

/** @typedef {{ task: string, purpose: string, profile: string, rounds: number, parameters: number, budget: number, currency?: string }} Summary */

/** Whether a task takes neither people nor money any more. @param {string} state */
export const isOver = (state) => ["finished", "cancelled", "settled"].includes(state);

/** @param {AbortSignal} signal */
export async function listView(signal) {
  const { tasks, folder, unread } = /** @type {{ tasks: Summary[], folder: string, unread: { task: string, why: string }[] }} */ (await get("overview", signal));
  const states = new Map(tasks.map(({ task }) => [task, h("span.soft", null, t("page.asking"))]));
  const rows = tasks.map(({ task, purpose, profile, rounds, budget, currency }) => [
    h("a", { href: `#/tasks/${task}` }, purpose || t("page.noPurpose")), h("code", null, task.slice(0, 8)), profile, rounds,
    budget ? money(budget, currency) : t("list.noBudget"), /** @type {HTMLElement} */ (states.get(task))]);
  for (const [task, place] of states) void fill(task, place, signal);
  const columns = ["for", "task", "profile", "rounds", "budget", "state"].map((name) => t(`list.${name}`));
  const element = h("div", null,
    h("h1", null, t("list.title")),
    ...unread.map(({ task, why }) => notice("warn", t("list.unread", { task, why: said(why) }))),
    table(t("list.caption"), columns, rows, { numbers: [3, 4], empty: t("list.none") }),
    h("p", null, h("a.button.main", { href: "#/new" }, t("page.new"))),
    h("details", null, h("summary", null, t("list.kept")), h("p", null, h("code", null, folder)),
      h("p", null, t("list.keptText"))));
  return { title: t("page.tasks"), element };
}

/** @param {string} task @param {HTMLElement} place @param {AbortSignal} signal */
async function fill(task, place, signal) {
  try {
    const { status } = await get(`tasks/${task}/status`, signal);
    place.replaceChildren(stateTag(status.state));
  } catch (failure) {
    if (signal.aborted) return;
    place.className = "bad";
    place.textContent = messageOf(failure);
  }
}
