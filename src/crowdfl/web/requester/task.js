// One task: where it stands, its money, its people, what it learnt, and the orders it can be given.
import { h, table } from "../web/common/dom.js";
import { duration, formatTime } from "../web/common/format.js";
import { actionButton, ask, button, card, messageOf, notice, stateTag } from "../web/common/parts.js";
import { Refusal } from "../web/common/api.js";
import { follow, get, post } from "./api.js";
import { accuracyCard, modelCard } from "./evaluation.js";
import { inviteCard } from "./invite.js";
import { moneyCard } from "./money.js";

/**
 * @typedef {object} Task
 * @property {string} task @property {string} purpose @property {string} profile @property {number} rounds
 * @property {number} parameters @property {number} budget @property {number} least @property {number} most
 * @property {string} key @property {string} step @property {string[]} labels @property {string} folder
 */
/** @typedef {{ number: number, state: string, uploads: number, drawn: number | null, deadline: number, last_call: number }} Round */
/** @typedef {{ state: string, ended: string | null, enrolled: number, dropped: number, claim_seconds_left: number | null, rounds: Round[] }} Status */
/** @typedef {{ name: string, amount: number, state: string }} Deposit */
/** @typedef {{ name: string, source: string, target: string, amount: number }} Movement */
/** @typedef {{ pending: number, paid_in: number, offered: number, earned: number | null, returned: number, deposits: Deposit[], movements: Movement[] }} Report */
/** @typedef {{ status: Status, report: Report, waits: string[], unpaid: number, now: number }} Standing `unpaid`: what all rounds cost and nobody has announced. */
/** @typedef {(standing: Standing) => void} Listener */

const POLL_MS = 3000;

/** @param {AbortSignal} signal @param {string} id */
export async function taskView(signal, id) {
  const task = /** @type {Task} */ (await get(`tasks/${id}`, signal));
  const place = h("div", null, h("p.soft", null, "asking SP …"));
  const money = moneyCard(task, signal);
  const invite = inviteCard(task, signal);
  const accuracy = accuracyCard(task, signal);
  const learnt = learntCard(task, signal);
  const orders = orderCard(task);
  const element = h("div", null,
    h("h1", null, task.purpose || "(no purpose)"),
    h("p.soft", null, `Profile ${task.profile}, ${task.key}, ${task.parameters.toLocaleString("en")} parameters, ${task.rounds} rounds, ${task.least} to ${task.most} people. Task `, h("code", null, task.task)),
    place, money.element, invite.element, accuracy.element, modelCard(task, signal), learnt, orders.element,
    h("p", null, h("a", { href: `#/new/${task.task}` }, "Start another task from this one")));
  void watch(task, place, [money.show, invite.show, accuracy.show, orders.show], signal);
  return { title: task.purpose || "Task", element };
}

/**
 * Ask again and again; what did not change is not drawn again, so that nobody loses their place.
 * @param {Task} task @param {HTMLElement} place @param {readonly Listener[]} listeners @param {AbortSignal} signal
 */
async function watch(task, place, listeners, signal) {
  let before = "";
  while (!signal.aborted) {
    try {
      const standing = /** @type {Standing} */ (await get(`tasks/${task.task}/status`, signal));
      const now = JSON.stringify({ ...standing, now: 0, status: { ...standing.status, claim_seconds_left: 0 } });
      if (now !== before) {
        place.replaceChildren(standingCard(task, standing));
        for (const listener of listeners) listener(standing);
      }
      before = now;
    } catch (failure) {
      if (signal.aborted) return;
      before = "";
      place.replaceChildren(notice("bad", messageOf(failure)));
      if (failure instanceof Refusal && failure.kind === "unknown-task") place.append(postAgain(task, signal));
    }
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 4 * POLL_MS : POLL_MS));
  }
}

/** @param {Task} task @param {Standing} standing */
function standingCard(task, { status, waits, now }) {
  const rows = status.rounds.map(({ number, state, uploads, drawn, last_call }) => [
    number, stateTag(state), drawn ? `${uploads} of ${drawn}` : uploads, state === "open" ? `until ${formatTime(last_call)} (${last_call > now ? duration(last_call - now) : "over"})` : ""]);
  const left = status.claim_seconds_left;
  return card("Where it stands",
    h("p.headline", { role: "status" }, stateTag(status.state), ` ${status.enrolled} of at most ${task.most} people have joined.`),
    status.ended ? h("p", null, `Ended: ${status.ended}.`) : null,
    waits.length ? notice("good", `It waits for:\n${waits.map((one) => `• ${one}`).join("\n")}`) : null,
    left !== null && status.state !== "settled" ? h("p", null, `Rewards can be claimed for ${duration(left)}.`) : null,
    status.dropped ? notice("warn", `${status.dropped} uploads were damaged at the platform and dropped.`) : null,
    table(`Rounds, of ${task.rounds}`, ["round", "state", "uploads", "takes uploads"], rows, { numbers: [0, 2], empty: "no round yet" }));
}

/** For a creation that was cut off between KGC and SP. @param {Task} task @param {AbortSignal} signal */
function postAgain(task, signal) {
  const place = h("div", null);
  return card("This task was not posted", h("p", null, "Its creation was cut off. Posting it again is safe: it is the same task."), place,
    actionButton("Post it again", place, async () => {
      await follow(await post(`tasks/${task.task}/post`), place, signal);
      place.replaceChildren(notice("good", "It is posted."));
    }, { kind: "main" }));
}

/** @param {Task} task @param {AbortSignal} signal */
function learntCard(task, signal) {
  const place = h("div.learnt");
  const show = actionButton("Show what each party learns", place, async () => {
    const { rows } = await get(`tasks/${task.task}/disclosures`, signal);
    const cells = rows.map((/** @type {Record<string, string>} */ row) => [h("strong", null, row.party), row.learns, row.hidden, row.known]);
    place.replaceChildren(
      table(`Profile ${task.profile}, parties that follow the protocol`, ["party", "learns", "does not learn", "known of this task"], cells));
  });
  return card("What each party learns", place, show);
}

/** @type {Record<string, { label: string, states: readonly string[], title: string, text: string, danger: boolean }>} */
const ORDERS = {
  pause: { label: "Pause", states: ["running"], title: "Pause this task?", text: "Nothing happens until you resume it. An open round keeps its time.", danger: false },
  resume: { label: "Resume", states: ["paused"], title: "Resume this task?", text: "It goes on where it stood.", danger: false },
  close: { label: "Close enrolment", states: ["running", "paused"], title: "Close enrolment?", text: "Nobody else can join, and KGC destroys the key that it kept for newcomers. This cannot be undone.", danger: true },
  cancel: { label: "Cancel the task", states: ["running", "paused"], title: "Cancel this task?", text: "It ends without further rounds. Money that was not earned is returned. This cannot be undone.", danger: true },
};

/** @param {Task} task */
function orderCard(task) {
  const [place, none] = [h("div"), h("p.soft", null, "Once SP has answered, orders are here.")];
  const buttons = Object.entries(ORDERS).map(([action, { label, title, text, danger }]) => {
    const order = async () => {
      const done = await ask({ title, text: [text], action: label, danger }, () => post(`tasks/${task.task}/orders`, { action }));
      if (done) place.replaceChildren(notice("good", `${label}: the platform has taken the order.`));
    };
    return button(label, order, { id: `order-${action}`, kind: danger ? "danger" : "" });
  });
  const show = (/** @type {Standing} */ { status }) => {
    Object.values(ORDERS).forEach(({ states }, number) => { buttons[number].hidden = !states.includes(status.state); });
    none.textContent = buttons.some(({ hidden }) => !hidden) ? "" : "The task is over: there is nothing to order.";
  };
  for (const one of buttons) one.hidden = true;
  return { element: card("Orders", none, place, h("div.row", null, ...buttons)), show };
}
