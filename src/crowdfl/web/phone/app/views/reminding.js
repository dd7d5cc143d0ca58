// Reminders of the rounds to come: a calendar file that this phone makes, and messages by the browser's push service.

import { h } from "../../../web/common/dom.js";
import { actionButton, part } from "../../../web/common/parts.js";
import { t } from "../../../web/common/text.js";
import { calendarOf } from "../../agent/calendar.js";
import { isPaid } from "../../protocol/amounts.js";
import { formatTime } from "../../../web/common/format.js";
import { keepWords } from "../../agent/reminders.js";
import { download } from "../download.js";
import { nameOf } from "../standing.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").ReminderState} ReminderState */
/** @typedef {{ calendar: string | null, on: boolean, state: ReminderState }} Shown */

/** @param {Model} model @param {string} task */
export function reminding(model, task) {
  const trouble = h("div");
  const box = part("div", null, (/** @type {Shown | null} */ shown) => shown ? card(model, task, shown, trouble, look) : []);
  /** @type {ReminderState} */
  let state = "unsupported";
  let kept = false;
  const update = (/** @type {Campaign} */ campaign) => {
    box.show(needed(campaign, state));
    if (kept || !campaign.reminders || state !== "on") return;
    kept = true; // the reader's language may be another since the page was open last
    void keepWords(wordsNow()).catch(() => { kept = false; });
  };
  const look = async () => {
    state = await model.reminderState();
    const campaign = model.get(task);
    if (campaign) update(campaign);
  };
  void look();
  return { element: h("div", null, box.element, trouble), update };
}

/** What a reminder says. */
const wordsNow = () => ({ opened: { title: t("remind.opened"), body: t("remind.openedBody") }, closing: { title: t("remind.closing"), body: t("remind.closingBody") } });

/** Nothing is left to remind of, or nothing can remind: then nothing is shown. @param {Campaign} campaign @param {ReminderState} state @returns {Shown | null} */
function needed(campaign, state) {
  const { definition, phase, rounds, task, next, reminders, stopped, claim } = campaign;
  if (phase !== "joined" || !definition || stopped) return null;
  const [name, owes] = [nameOf(campaign), isPaid(definition) && claim.state !== "claimed"];
  if (rounds.length >= definition.settings.rounds && !owes) return null;
  const claims = { title: t("remind.claimEvent", { name, until: formatTime(definition.claims_until) }), body: t("remind.claimBody") };
  const texts = { title: t("remind.event", { name }), body: t("remind.eventBody"), ...(owes ? { claim: claims } : {}) };
  const now = Math.floor(Date.now() / 60_000) * 60; // to the minute: the file is not made anew all the time
  const calendar = calendarOf(definition, task, { now, next, done: rounds.length, texts });
  return calendar === null && state === "unsupported" ? null : { calendar, on: reminders, state };
}

/** @param {Model} model @param {string} task @param {Shown} shown @param {HTMLElement} trouble @param {() => Promise<void>} look What the browser allows may be new. */
function card(model, task, { calendar, on, state }, trouble, look) {
  const save = calendar !== null && actionButton(t("remind.calendar"), trouble, async () => download("crowdfl.ics", calendar, "text/calendar"), { id: "calendar" });
  const isOn = on && state === "on";
  const toggle = (state === "on" || state === "off") && (isOn
    ? actionButton(t("remind.stop"), trouble, () => model.stopReminding(task).then(look), { id: "remind" })
    : actionButton(t("remind.start"), trouble, () => model.remind(task, wordsNow()).then(look), { id: "remind" }));
  const why = { on: isOn ? "remind.isOn" : "remind.learns", off: "remind.learns", denied: "remind.denied", "needs-install": "remind.install", unsupported: null }[state];
  return [h("section.card", { "aria-labelledby": "reminders" }, h("h2", { id: "reminders" }, t("remind.title")),
    why && h("p.soft", null, t(why)), h("div.buttons", null, save, toggle))];
}
