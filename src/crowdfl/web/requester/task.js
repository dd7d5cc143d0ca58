// One task: where it stands, its money, its people, what it learnt, and the orders it can be given.
import { h, table } from "../web/common/dom.js";
import { duration, formatTime } from "../web/common/format.js";
import { actionButton, ask, button, card, messageOf, notice, stateTag, waitText } from "../web/common/parts.js";
import { said } from "../web/common/said.js";
import { endingWords, learntRows, t } from "../web/common/text.js";
import { Refusal } from "../web/common/api.js";
import { follow, get, post } from "./api.js";
import { accuracyCard, modelCard } from "./evaluation.js";
import { inviteCard } from "./invite.js";
import { moneyCard } from "./money.js";

/** @typedef {import("./api.js").Task} Task */
/** @typedef {import("./api.js").Standing} Standing */
/** @typedef {(standing: Standing) => void} Listener */

const POLL_MS = 3000;

/** @param {AbortSignal} signal @param {string} id */
export async function taskView(signal, id) {
  const task = /** @type {Task} */ (await get(`tasks/${id}`, signal));
  const place = h("div", null, h("p.soft", null, t("page.asking")));
  const money = moneyCard(task, signal);
  const invite = inviteCard(task, signal);
  const accuracy = accuracyCard(task, signal);
  const learnt = learntCard(task, signal);
  const orders = orderCard(task);
  const element = h("div", null,
    h("h1", null, task.purpose || t("page.noPurpose")),
    h("p.soft", null, t("task.line", { profile: task.profile, parameters: task.parameters, count: task.rounds, least: task.least, most: task.most }), " ", h("code", null, task.task)),
    place, money.element, invite.element, accuracy.element, modelCard(task, signal), learnt, orders.element,
    card(t("paper.title"), h("p", null, t("paper.about")), h("a.button", { id: "to-report", href: `#/tasks/${task.task}/report` }, t("paper.open"))),
    h("p", null, h("a", { href: `#/new/${task.task}` }, t("task.another"))));
  void watch(task, place, [money.show, invite.show, accuracy.show, orders.show], signal);
  return { title: task.purpose || t("page.task"), element };
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
      const now = JSON.stringify({ ...standing, now: 0, status: { ...standing.status, now: 0, claim_seconds_left: 0 } });
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
    number, stateTag(state), drawn ? t("task.ofDrawn", { uploads, drawn }) : uploads, state === "open" ? last_call > now ? t("task.until", { when: formatTime(last_call), left: duration(last_call - now) }) : t("task.untilOver", { when: formatTime(last_call) }) : ""]);
  const left = status.claim_seconds_left;
  return card(t("task.stands"),
    h("p.headline", { role: "status" }, stateTag(status.state), " ", t("task.joined", { enrolled: status.enrolled, most: task.most })),
    status.listed == null ? null : h("p", null, t("task.came", { listed: status.listed, invited: status.enrolled - status.listed })),
    status.ended ? h("p", null, t("task.ended", { words: endingWords(status.ended, said) })) : null,
    waits.length ? notice("good", `${t("task.waits")}\n${waits.map((one) => `• ${waitText(one)}`).join("\n")}`) : null,
    left !== null && status.state !== "settled" ? h("p", null, t("task.claims", { time: duration(left) })) : null,
    status.dropped ? notice("warn", t("task.dropped", { count: status.dropped })) : null,
    table(t("task.rounds", { count: task.rounds }), ["round", "state", "uploads", "takes"].map((name) => t(`task.${name}`)), rows, { numbers: [0, 2], empty: t("task.noRound") }));
}

/** For a creation that was cut off between KGC and SP. @param {Task} task @param {AbortSignal} signal */
function postAgain(task, signal) {
  const place = h("div", null);
  return card(t("task.notPosted"), h("p", null, t("task.cutOff")), place,
    actionButton(t("task.postAgain"), place, async () => {
      await follow(await post(`tasks/${task.task}/post`), place, signal);
      place.replaceChildren(notice("good", t("task.posted")));
    }, { kind: "main" }));
}

/** @param {Task} task @param {AbortSignal} signal */
function learntCard(task, signal) {
  const place = h("div.learnt");
  const show = actionButton(t("task.showLearnt"), place, async () => {
    const known = /** @type {Record<string, { code: string, [value: string]: any }[]>} */ (await get(`tasks/${task.task}/known`, signal));
    const cells = learntRows(task.profile, task.recruits).map(({ key, party, learns, hidden }) =>
      [h("strong", null, party), learns, hidden, known[key]?.length ? h("div", null, ...known[key].map(({ code, ...values }) => h("div", null, t(`known.${code}`, values)))) : ""]);
    place.replaceChildren(
      table(t("task.learntCaption", { profile: task.profile }), ["party", "learns", "hidden", "known"].map((name) => t(`task.${name}`)), cells));
  }, { id: "show-learnt" });
  return card(t("task.learnt"), h("p", null, t("common.kgc")), place, show);
}

/** @type {Record<string, { states: readonly string[], danger: boolean }>} */
const ORDERS = {
  pause: { states: ["running"], danger: false },
  resume: { states: ["paused"], danger: false },
  close: { states: ["running", "paused"], danger: true },
  cancel: { states: ["running", "paused"], danger: true },
};

/** @param {Task} task */
function orderCard(task) {
  const [place, none] = [h("div"), h("p.soft", null, t("order.wait"))];
  const buttons = Object.entries(ORDERS).map(([action, { danger }]) => {
    const [label, title, text] = [t(`order.${action}`), t(`orderTitle.${action}`), t(`orderText.${action}`)];
    const order = async () => {
      const done = await ask({ title, text: [text], action: label, danger }, () => post(`tasks/${task.task}/orders`, { action }));
      if (done) place.replaceChildren(notice("good", t("order.taken", { order: label })));
    };
    return button(label, order, { id: `order-${action}`, kind: danger ? "danger" : "" });
  });
  const show = (/** @type {Standing} */ { status }) => {
    Object.values(ORDERS).forEach(({ states }, number) => { buttons[number].hidden = !states.includes(status.state); });
    none.textContent = buttons.some(({ hidden }) => !hidden) ? "" : t("order.over");
  };
  for (const one of buttons) one.hidden = true;
  return { element: card(t("order.title"), none, place, h("div.row", null, ...buttons)), show };
}
