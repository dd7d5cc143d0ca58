// Rounds: what happens now, whether the update arrived, and how the model does on the owner's own recordings.

import { h, table } from "../../../web/common/dom.js";
import { formatTime, money, percent } from "../../../web/common/format.js";
import { plot } from "../../../web/common/plot.js";
import { button, notice, part, title } from "../../../web/common/parts.js";
import { hashOf } from "../router.js";
import { grouped, mineWord, roundWord, sentence } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RoundView} RoundView */

const SHOWN = 16; // digits of a digest, as the Python program shows them

/** @param {Model} model @param {string} task */
export function roundsView(model, task) {
  const bar = part("div", null, (/** @type {Campaign["now"]} */ now) => progress(now));
  const now = part("div", null, (/** @type {Happening} */ campaign) => [happening(model, campaign)]);
  const words = part("p.headline", { role: "status", "aria-live": "polite" }, (/** @type {string} */ text) => [text]);
  const results = part("div", null, (/** @type {RoundView[]} */ rounds) => outcome(rounds));
  const receipts = part("div", null, (/** @type {Campaign["receipts"]} */ found) => found.length ? [proofs(found)] : []);
  const element = h("div", null, title("Rounds"), h("section.card", { "aria-label": "Now" }, words.element, bar.element, now.element),
    results.element, receipts.element);
  const update = () => {
    const campaign = model.get(task);
    if (!campaign) return;
    words.show(headline(campaign));
    bar.show(campaign.now);
    now.show(pick(campaign)); // without what changes all the time: a focused link stays focused
    results.show(campaign.rounds);
    receipts.show(campaign.receipts);
  };
  update();
  return { element, update };
}

/** One sentence for the eye and the ear; progress is told by the bar. @param {Campaign} campaign */
export function headline({ phase, now, rounds, definition, state, ended, next, stopped }) {
  const of = definition?.settings.rounds ?? rounds.length;
  if (phase === "invited") return "You have not joined yet.";
  if (stopped) return `Your phone takes no further part: ${stopped}. A server may be trying to learn about you, or it fails.`;
  if (phase === "left") return "You have left this campaign.";
  if (phase === "ended") return ended ? `The campaign has ended: ${ended}.` : "The campaign has ended.";
  if (state === "paused") return "The campaign is paused. It goes on when whoever asked says so.";
  if (now.kind === "elsewhere") return "Another tab of this page is at work. Keep that one open.";
  if (now.kind === "training") return `Training for round ${now.round} of ${of}.`;
  if (now.kind === "sending") return `Sending your update of round ${now.round}.`;
  const last = rounds.at(-1);
  if (next) return `${last ? "The next" : "The first"} round begins on ${formatTime(next)}, if enough people have joined.`;
  if (last && ["arrived", "late"].includes(last.mine)) return `Round ${last.number} of ${of}: your update arrived.`;
  if (last?.mine === "nothing") return `Round ${last.number} of ${of}: there is nothing to send. Record first.`;
  if (last?.mine === "not drawn") return `Round ${last.number} of ${of}: not this time. Others were drawn; your phone waits for the next round.`;
  return rounds.length ? `Waiting for the next round. ${rounds.length} of ${of} have begun.` : "Waiting for the first round.";
}

/** @param {Campaign["now"]} now */
function progress({ kind, done, of }) {
  if (kind !== "training" && kind !== "sending") return [];
  const most = Math.max(of, 1);
  return [
    h("progress", { max: most, value: done, "aria-label": kind === "training" ? "Training" : "Sending" }),
    h("p.soft", null, `${Math.floor((100 * done) / most)}% done.`),
  ];
}

/** @typedef {ReturnType<typeof pick>} Happening */

/** @param {Campaign} campaign */
const pick = ({ task, phase, now, problem, rounds }) => ({
  task, phase, problem, elsewhere: now.kind === "elsewhere", waits: now.kind === "waiting" ? now.why : null, until: openUntil(rounds),
});

/** Until when the newest round takes updates, in words; null if none is open. @param {RoundView[]} rounds */
function openUntil(rounds) {
  const last = rounds.at(-1);
  if (last?.state !== "open" || last.deadline === null) return null;
  return `Round ${last.number} takes updates until ${formatTime(last.deadline)}.`;
}

/** @param {Model} model @param {Happening} campaign */
function happening(model, { task, phase, problem, elsewhere, waits, until }) {
  const open = phase === "joined" && !elsewhere;
  return h("div", null,
    waits && notice("warn", `${sentence(waits)} The page tries again by itself.`),
    problem && notice("bad", problem),
    problem && button("Try again", () => model.retry(task), { id: "retry" }),
    open && until && h("p", null, until),
    open && h("p.soft", null, "Keep this page open: a phone does nothing for a page that is closed. What is done is kept, and the page goes on where it stopped."),
    phase === "ended" && h("p", null, h("a", { href: hashOf("rewards", task), id: "to-rewards" }, "See your rewards")),
    open && h("p", null, h("a", { href: hashOf("record", task), id: "to-record" }, "Record more")));
}

/** @param {RoundView[]} rounds */
function outcome(rounds) {
  const row = (/** @type {RoundView} */ one) => [one.number, mine(one), percent(one.accuracyBefore), percent(one.accuracyAfter),
    one.reward === null ? "–" : money(one.reward)];
  const measured = rounds.filter(({ accuracyBefore, accuracyAfter }) => accuracyBefore !== null || accuracyAfter !== null);
  const reasons = rounds.filter(({ why }) => why).map(({ number, why }) => h("li", null, `Round ${number}: ${sentence(why ?? "")}`));
  return [
    table("Round by round", ["Round", "Your update", "Before", "After", "Reward"], rounds.map(row), { numbers: [0, 2, 3, 4], empty: "No round yet." }),
    reasons.length > 0 && h("ul", null, ...reasons),
    h("p.soft", null, "Before and after: how often the shared model is right about recordings that your phone held back, before and after the round. Nobody else learns these numbers."),
    measured.length > 1 && plot("Accuracy on your own recordings", measured.map(({ number }) => number), [
      { name: "before the round", values: measured.map(({ accuracyBefore }) => accuracyBefore) },
      { name: "after the round", values: measured.map(({ accuracyAfter }) => accuracyAfter) },
    ], { xLabel: "round", yLabel: "accuracy", yRange: [0, 1], yFormat: percent }),
    states(rounds),
  ];
}

/** Of a task with a server step. @param {RoundView[]} rounds */
function states(rounds) {
  const known = rounds.filter(({ digest }) => digest);
  if (!known.length) return null;
  return h("details.card", { id: "states" }, h("summary", null, "Does everyone have the same model?"),
    h("p", null, "In this campaign each device makes the next model from the average itself. It comes to the same on all of them: these digits are equal for everyone who has read the same rounds. Compare them with another participant, or with whoever asked."),
    table("State of the model", ["After round", "Digits"], known.map(({ number, digest }) => [number, h("span.id", null, grouped((digest ?? "").slice(0, SHOWN)))]), { numbers: [0] }));
}

/** @param {RoundView} round */
function mine({ mine: update, state }) {
  return h("span", null, mineWord(update), state !== "rewarded" && h("span.soft", null, ` (round ${roundWord(state)})`));
}

/** @param {Campaign["receipts"]} receipts */
function proofs(receipts) {
  return h("section.card", { "aria-labelledby": "arrived" }, h("h2", { id: "arrived" }, "Your update arrived"),
    h("p", null, "The platform signed a receipt for each update. Keep it if you ever have to prove that you took part."),
    ...receipts.map(({ round, text }) => h("details", null, h("summary", null, `Receipt of round ${round}`),
      h("pre", { tabindex: 0, "aria-label": `Receipt of round ${round}` }, text))));
}
