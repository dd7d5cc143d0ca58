// All tasks of this requester, from its own folder; where each stands, SP says.
import { h, table } from "../web/common/dom.js";
import { money } from "../web/common/format.js";
import { messageOf, notice } from "../web/common/parts.js";
import { get } from "./api.js";

/** @typedef {{ task: string, purpose: string, profile: string, rounds: number, parameters: number, budget: number }} Summary */

/** Whether a task takes neither people nor money any more. @param {string} state */
export const isOver = (state) => ["finished", "cancelled", "settled"].includes(state);

/** @param {AbortSignal} signal */
export async function listView(signal) {
  const { tasks, folder, unread } = /** @type {{ tasks: Summary[], folder: string, unread: { task: string, why: string }[] }} */ (await get("overview", signal));
  const states = new Map(tasks.map(({ task }) => [task, h("span.soft", null, "asking SP …")]));
  const rows = tasks.map(({ task, purpose, profile, rounds, budget }) => [
    h("a", { href: `#/tasks/${task}` }, purpose || "(no purpose)"), h("code", null, task.slice(0, 8)), profile, rounds,
    budget ? money(budget) : "none", /** @type {HTMLElement} */ (states.get(task))]);
  for (const [task, place] of states) void fill(task, place, signal);
  const columns = ["what for", "task", "profile", "rounds", "budget of a round", "state"];
  const element = h("div", null,
    h("h1", null, "Your tasks"),
    ...unread.map(({ task, why }) => notice("warn", `Task ${task} cannot be read here: ${why}`)),
    table("Tasks, the last one first", columns, rows, { numbers: [3, 4], empty: "no task yet" }),
    h("p", null, h("a.button.main", { href: "#/new" }, "New task")),
    h("details", null, h("summary", null, "Where this is kept"), h("p", null, h("code", null, folder)),
      h("p", null, "Your signing key and the keys of your tasks are in this folder: whoever has it can act as you, and whoever loses it has lost the tasks.")));
  return { title: "Tasks", element };
}

/** @param {string} task @param {HTMLElement} place @param {AbortSignal} signal */
async function fill(task, place, signal) {
  try {
    const { status } = await get(`tasks/${task}/status`, signal);
    place.className = "state";
    place.textContent = status.state;
  } catch (failure) {
    if (signal.aborted) return;
    place.className = "bad";
    place.textContent = messageOf(failure);
  }
}
