// Below a campaign's page: round by round, receipts, digits to compare, names and addresses.

import { h, table } from "../../../web/common/dom.js";
import { formatTime, percent } from "../../../web/common/format.js";
import { plot } from "../../../web/common/plot.js";
import { actionButton, card, facts, part, title } from "../../../web/common/parts.js";
import { endingWords, t } from "../../../web/common/text.js";
import { download } from "../download.js";
import { differenceWords, grouped, mineWord, plainly, reasonWords, roundWord, sentence } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").RoundView} RoundView */

const SHOWN = 16; // digits of a digest, as the Python program shows them

/** @param {Model} model @param {string} task */
export function detailsView(model, task) {
  const results = part("div", null, (/** @type {RoundView[]} */ rounds) => outcome(rounds));
  const agreed = part("div", null, (/** @type {Campaign["consent"]} */ consent) => consent ? [consented(model, task, consent)] : []);
  const receipts = part("div", null, (/** @type {Campaign["receipts"]} */ found) => found.length ? [proofs(found)] : []);
  const differing = part("div", null, (/** @type {Differing} */ found) => found.differences.length ? [differences(model, task, found)] : []);
  const papers = part("div", null, (/** @type {Names} */ known) => [names(known)]);
  const look = h("link", { rel: "stylesheet", href: "../web/common/plot.css" });
  const element = h("div", null, look, title(t("details.title")), differing.element, results.element, agreed.element, receipts.element, papers.element);
  const update = () => {
    const campaign = model.get(task);
    if (!campaign) return;
    results.show(campaign.rounds);
    agreed.show(campaign.consent);
    receipts.show(campaign.receipts);
    const { who, sp, kgc, definition, ended, place = "" } = campaign;
    differing.show({ differences: campaign.differences, contact: definition?.who?.contact ?? "", payer: definition?.payer ?? "" });
    papers.show({ task, who, place, sp, kgc, requester: definition?.requester ?? null, ended });
  };
  update();
  return { element, update };
}

/** @param {RoundView[]} rounds */
function outcome(rounds) {
  const row = (/** @type {RoundView} */ one) => [one.number, mine(one), percent(one.accuracyBefore), percent(one.accuracyAfter)];
  const columns = [t("details.round"), t("details.yours"), t("details.before"), t("details.after")];
  const measured = rounds.filter(({ accuracyBefore, accuracyAfter }) => accuracyBefore !== null || accuracyAfter !== null);
  const reasons = rounds.filter(isExplained).map((one) => h("li", null, t("details.why", { round: one.number, words: whyOf(one) })));
  return [
    table(t("details.table"), columns, rounds.map(row), { numbers: [0, 2, 3], empty: t("details.none") }),
    reasons.length > 0 && h("ul", null, ...reasons),
    h("p.soft", null, t("details.accuracy")),
    measured.length > 1 && plot(t("details.plot"), measured.map(({ number }) => number), [
      { name: t("details.plotBefore"), values: measured.map(({ accuracyBefore }) => accuracyBefore) },
      { name: t("details.plotAfter"), values: measured.map(({ accuracyAfter }) => accuracyAfter) },
    ], { xLabel: t("details.round"), yLabel: t("details.right"), yRange: [0, 1], yFormat: percent }),
    digests(rounds),
  ];
}

/** In the reader's words where there are some. @param {RoundView} round */
const whyOf = ({ why, reason }) => reason && reason !== "no_pay" ? reasonWords(reason) : t("errors.detail", { words: sentence(why ?? "") });

/** @param {RoundView} round */
const isExplained = ({ why, leftOut, reason, receipt }) => why || leftOut || (reason === "void" && receipt);

/** @param {RoundView} round */
function mine({ mine: update, state }) {
  return h("span", null, mineWord(update), state !== "rewarded" && h("span.soft", null, ` (${roundWord(state)})`));
}

/** Of a task with a server step. @param {RoundView[]} rounds */
function digests(rounds) {
  const known = rounds.filter(({ digest }) => digest);
  if (!known.length) return null;
  const rows = known.map(({ number, digest }) => [number, h("span.id", null, grouped((digest ?? "").slice(0, SHOWN)))]);
  return h("details.card", { id: "states" }, h("summary", null, t("details.same")), h("p", null, t("details.sameWhy")),
    table(t("details.state"), [t("details.afterRound"), t("details.digits")], rows, { numbers: [0] }));
}

/** @param {Campaign["receipts"]} receipts */
function proofs(receipts) {
  return h("section.card", { "aria-labelledby": "receipts" }, h("h2", { id: "receipts" }, t("details.receipts")), h("p", null, t("details.receiptsWhy")),
    ...receipts.map(({ round, text }) => h("details", { id: `receipt-${round}` }, h("summary", null, t("details.receipt", { round })),
      h("pre", { tabindex: 0, "aria-label": t("details.receipt", { round }) }, text))));
}

/** @param {Model} model @param {string} task @param {NonNullable<Campaign["consent"]>} consent */
function consented(model, task, { version, at }) {
  const trouble = h("div");
  const save = actionButton(t("details.copy"), trouble, async () => {
    const copy = await model.consentCopy(task);
    if (copy) download(copy.name, copy.text, "application/json");
  });
  return card(t("details.consent"), h("p", null, t("details.agreed", { version, when: formatTime(at) })), save, trouble);
}

/** @typedef {{ differences: Campaign["differences"], contact: string, payer: string }} Differing */

/** What each said, and whom to show it to. @param {Model} model @param {string} task @param {Differing} found */
function differences(model, task, { differences: found, contact, payer }) {
  const trouble = h("div");
  const save = actionButton(t("evidence.save"), trouble, async () => {
    const copy = await model.evidence(task);
    if (copy) download(copy.name, copy.text, "application/json");
  });
  const lines = found.map(({ round, said, signed }) => h("li", null, differenceWords(round, said, signed)));
  return card(t("evidence.title"), h("ul", null, ...lines), h("p", null, t("evidence.keep")), facts([
    contact !== "" && [t("evidence.contact"), plainly(contact)],
    payer !== "" && [t("evidence.payer"), h("code.wrap", null, payer)],
  ]), save, trouble);
}

/** @typedef {{ task: string, who: string | null, place: string, sp: string, kgc: string, requester: string | null, ended: import("../../../web/common/text.js").Ending | null }} Names */

/** @param {Names} known */
function names({ task, who, place, sp, kgc, requester, ended }) {
  const code = (/** @type {string} */ text) => h("code.wrap", null, text);
  return h("details.card", { id: "names" }, h("summary", null, t("details.names")), facts([
    ended !== null && [t("details.ended"), sentence(endingWords(ended, plainly))],
    [t("details.campaign"), code(task)],
    who !== null && [t("details.pseudonym"), code(who)],
    place !== "" && [t("details.place"), code(grouped(place))],
    requester !== null && [t("details.asker"), code(requester)],
    [t("details.platform"), code(sp)],
    [t("details.keyCentre"), code(kgc)],
  ]));
}
