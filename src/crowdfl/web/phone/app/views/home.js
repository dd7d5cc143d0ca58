// A campaign's page: what happens now, the next round, how far it is, what was earned.

import { h } from "../../../web/common/dom.js";
import { formatTime, money } from "../../../web/common/format.js";
import { button, notice, part, title } from "../../../web/common/parts.js";
import { between, t, together } from "../../../web/common/text.js";
import { isPaid } from "../../protocol/amounts.js";
import { short } from "../about.js";
import { differenceWords } from "../messages.js";
import { isReached } from "../reach.js";
import { hashOf } from "../router.js";
import { nameLanguage, nameOf, paidOf, roundsOf, standingOf, sumsOf } from "../standing.js";
import { reminding } from "./reminding.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */

const TWICE = 2; // contributions left out, until their owner is asked to look at the recordings
const MOST_STEPS = 20; // rounds that are drawn one by one

/** @param {Model} model @param {string} task */
export function homeView(model, task) {
  const words = part("div", { role: "status", "aria-live": "polite" }, (/** @type {{ text: string, more: string }} */ { text, more }) =>
    [h("p.headline", null, text), h("p.soft", null, more)]);
  const bar = part("div.bar", null, (/** @type {Campaign["now"]} */ now) => progress(now));
  const trouble = part("div", null, (/** @type {{ problem: string | null, waits: string | null }} */ wrong) => troubles(model, task, wrong));
  const mixed = part("div", null, (/** @type {boolean} */ twice) => twice ? [notice("warn", t("home.mixedUp"), between(), h("a", { href: hashOf("record", task), id: "to-check" }, t("home.check")))] : []);
  const differing = part("div", null, (/** @type {Campaign["differences"]} */ found) => found.length ? [differs(task, found)] : []);
  const doing = part("div.buttons", null, (/** @type {Doing} */ shown) => buttons(task, shown));
  const tiles = part("dl.tiles", null, (/** @type {Figures} */ figures) => tilesOf(task, figures));
  const reminders = reminding(model, task);
  const element = h("div.home", null, title(nameOf(model.get(task)), nameLanguage(model.get(task))),
    h("section.card", { "aria-label": t("home.now") }, words.element, bar.element, trouble.element, differing.element, mixed.element, doing.element), tiles.element, reminders.element,
    h("p", null, h("a", { href: hashOf("details", task), id: "to-details" }, t("home.details"))));
  const update = () => {
    const campaign = model.get(task);
    if (!campaign) return;
    const { act, ...said } = standingOf(campaign, isReached());
    const { now, problem, phase } = campaign;
    words.show(said);
    bar.show(now);
    trouble.show({ problem, waits: now.kind === "waiting" && isReached() ? now.why : null });
    differing.show(campaign.differences);
    mixed.show(campaign.rounds.filter(({ leftOut }) => leftOut === "not_in_line").length >= TWICE);
    doing.show({ act, records: phase === "joined" && now.kind !== "elsewhere" && !campaign.stopped });
    tiles.show(figuresOf(campaign));
    reminders.update(campaign);
  };
  update();
  return { element, update };
}

/** The platform's word and the signed record, of the last round in which they differ. @param {string} task @param {Campaign["differences"]} found */
function differs(task, found) {
  const { round, said, signed } = found[found.length - 1];
  return notice("bad", together(differenceWords(round, said, signed), t("evidence.counts")), between(),
    h("a", { href: hashOf("details", task), id: "to-evidence" }, t("evidence.show")));
}

/** @param {Campaign["now"]} now */
function progress({ kind, done, of }) {
  if (kind !== "training" && kind !== "sending") return [];
  return [h("progress", { max: Math.max(of, 1), value: done, "aria-label": t(kind === "training" ? "home.training" : "home.sending") })];
}

/** @param {Model} model @param {string} task @param {{ problem: string | null, waits: string | null }} wrong */
function troubles(model, task, { problem, waits }) {
  return [
    waits && notice("warn", `${t("home.away")}\n${waits}`),
    problem && notice("bad", problem),
    problem && button(t("home.again"), () => model.retry(task), { id: "retry" }),
  ];
}

/** @typedef {{ act: import("../standing.js").Act, records: boolean }} Doing */

/** @param {string} task @param {Doing} shown */
function buttons(task, { act, records }) {
  const link = (/** @type {string} */ place, /** @type {string} */ words, /** @type {boolean} */ main) =>
    h(main ? "a.button.main" : "a.button", { href: hashOf(place, task), id: `to-${place}` }, words);
  return [
    act === "earnings" && link("earnings", t("home.toEarnings"), true),
    records && link("record", t(act === "record" ? "home.record" : "home.recordMore"), act === "record"),
  ];
}

/** @typedef {ReturnType<typeof figuresOf>} Figures */

/** @param {Campaign} campaign */
function figuresOf(campaign) {
  const { rounds, next, enrolled, rewards, definition, phase, noise } = campaign;
  const done = rounds.filter(({ state }) => state === "rewarded" || state === "aborted").length;
  return { of: roundsOf(campaign), begun: rounds.length, done, mine: rounds.map(({ mine }) => mine === "arrived"), next: phase === "joined" ? next : null,
    enrolled, earned: isPaid(definition) ? money(rewards, definition?.settings.currency) : null, pay: sumsOf(paidOf(campaign), definition?.settings.currency), noise };
}

/** @param {string} task @param {Figures} figures */
function tilesOf(task, { of, begun, done, mine, next, enrolled, earned, pay, noise }) {
  return [
    tile(t("home.rounds"), h("span.figure", null, begun ? t("home.roundOf", { round: begun, of }) : t("home.roundsAhead", { count: of })),
      of <= MOST_STEPS && steps(of, done, mine)),
    next !== null && tile(t("home.next"), h("span.figure", null, formatTime(next))),
    enrolled !== null && tile(t("home.people"), h("span.figure", null, t("home.joined", { count: enrolled }))),
    earned !== null && tile(t("home.earned"), h("span.figure", null, earned), h("span.soft", { id: "pay" }, together(...pay)), h("a", { href: hashOf("earnings", task), id: "earned" }, t("home.earnings"))),
    noise !== null && tile(t("home.epsilon"), h("span.figure", null, short(noise.charged ? noise.epsilon : 0)), h("span.soft", { id: "spent" }, chargedWords(noise))),
  ];
}

/** @param {NonNullable<Campaign["noise"]>} noise */
function chargedWords({ epsilon, charged, spent, others }) {
  if (!charged) return t("home.uncharged", { epsilon: short(epsilon) });
  return together(t("home.spent", { spent: short(spent) }), t("home.withOthers", { sum: short(epsilon + others) }));
}

/** @param {string} name @param {...(Node | string | false)} about */
const tile = (name, ...about) => h("div.card.tile", null, h("dt.soft", null, name), h("dd", null, ...about));

/** A mark for each round: over with a contribution of this phone's, over without, and to come. @param {number} of @param {number} done @param {boolean[]} mine */
function steps(of, done, mine) {
  const look = (/** @type {number} */ place) => (mine[place] ? "mine" : place < done ? "over" : "ahead");
  return h("span.steps", { "aria-hidden": "true" }, ...Array.from({ length: of }, (_, place) => h(`span.${look(place)}`)));
}
