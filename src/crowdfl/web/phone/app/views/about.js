// The invitation: who asks, for what, what leaves the phone, what is paid. Join, or not.

import { h } from "../../../web/common/dom.js";
import { formatTime } from "../../../web/common/format.js";
import * as about from "../about.js";
import { LEARNT } from "../disclosures.js";
import { actionButton, ask, button, facts, notice, part, title } from "../../../web/common/parts.js";
import { picture } from "../picture.js";
import { go } from "../router.js";
import { grouped, plainly, sentence } from "../messages.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").DefinitionBody} DefinitionBody */

/** @param {Model} model @param {string} task */
export function aboutView(model, task) {
  const trouble = h("div");
  const answer = part("div", null, (/** @type {Answer} */ shown) => shown ? [answering(model, shown, trouble)] : []);
  const paper = part("div", null, (/** @type {Shown | undefined} */ campaign) => papers(model, campaign));
  const waits = part("div", null, (/** @type {string | null} */ why) => why ? [notice("warn", `${sentence(why)} The page tries again by itself.`)] : []);
  const heading = title("You are invited");
  const element = h("div", null, heading, paper.element, answer.element, waits.element, trouble);
  const update = () => {
    const campaign = model.get(task);
    heading.textContent = campaign?.phase === "invited" ? "You are invited" : "About this campaign";
    paper.show(campaign && pick(campaign));
    answer.show(canAnswer(campaign));
    waits.show(campaign?.now.kind === "waiting" ? campaign.now.why : null);
  };
  update();
  return { element, update };
}

/** @typedef {ReturnType<typeof pick>} Shown */

/** What is shown of it: the rest may change without this page being made again. @param {Campaign} campaign */
const pick = ({ task, phase, definition, refusal, closed, problem, expires, sp }) =>
  ({ task, phase, definition, refusal, closed, problem, expires, sp });

/** @typedef {{ task: string, fewest: number, small: boolean, back: boolean } | null} Answer */

/** @param {Campaign | undefined} campaign @returns {Answer} */
function canAnswer(campaign) {
  if (!campaign?.definition || campaign.refusal || campaign.stopped || (campaign.closed && campaign.phase === "invited")) return null;
  if (!["invited", "left"].includes(campaign.phase)) return null;
  const fewest = campaign.definition.settings.min_participants;
  return { task: campaign.task, fewest, small: about.isSmallCrowd(campaign.definition), back: campaign.phase === "left" };
}

/** @param {Model} model @param {Shown | undefined} campaign */
function papers(model, campaign) {
  if (!campaign) return [notice("bad", "This phone does not know the campaign. Open the invitation link again.")];
  const refused = campaign.refusal && notice("bad", h("strong", null, "This page cannot take part. "), campaign.refusal);
  if (refused) return [refused, campaign.phase === "invited" && deleting(model, campaign.task)];
  if (!campaign.definition) return [waiting(model, campaign), campaign.problem && deleting(model, campaign.task)];
  const closed = campaign.phase === "invited" && campaign.closed;
  return [
    closed && notice("warn", h("strong", null, "You cannot join any more. "), `${sentence(closed)} Nothing of yours was sent.`),
    closed && deleting(model, campaign.task),
    h("div.card", null, h("p.headline", null, plainly(campaign.definition.purpose)), factsOf(campaign, campaign.definition)),
    leaving(campaign.definition),
    h("div.card", null, h("h2", null, "Pay and terms"), paid(campaign.definition)),
    served(),
  ];
}

/** @param {Model} model @param {Shown} campaign */
function waiting(model, { task, problem, sp }) {
  const place = h("div");
  const again = actionButton("Try again", place, () => model.look(task));
  return h("div.card", null,
    h("p", { role: "status" }, problem ? `The campaign could not be loaded. ${problem}` : `Asking ${hostOf(sp)} about the campaign.`),
    problem && again, place);
}

/** @param {string[]} words */
const lines = (words) => words.map((text) => h("p", null, text));

/** @param {Shown} campaign @param {DefinitionBody} definition */
function factsOf(campaign, definition) {
  const labels = (definition.training.labels ?? []).join(", ");
  const least = about.leastSeconds(definition);
  return facts([
    ["Who asks", ...asker(definition)],
    ["Who reads the result", sentence(definition.readers)],
    ["What you do", h("p", null, `You record yourself during these activities: ${labels}. At least ${least} seconds each; some minutes are better.`)],
    ["Which sensors", h("p", null, `${sentence(about.sensorsOf(definition))} Only while you record.`)],
    ["How long", ...lines(about.durationWords(definition))],
    ["How many people", ...lines(about.crowdWords(definition))],
    ["How people count", about.countingWords(definition)],
    campaign.expires !== null && campaign.phase === "invited" && ["Invitation", invitationWords(campaign.expires)],
  ]);
}

/** @param {DefinitionBody} definition */
function asker({ who, requester }) {
  const said = [who.name, who.institution, who.contact, who.approval].filter(Boolean);
  const key = `the key that begins with ${grouped(requester.slice(0, 16))}`;
  return [
    who.logo && h("img.logo", { src: `data:image/png;base64,${who.logo}`, alt: "", width: 96 }),
    ...said.map((text) => h("p", null, plainly(text))),
    h("p", null, said.length ? `So they say. Nothing on this page proves it, but that they hold ${key}: ask them.`
      : `Whoever holds ${key}. Nothing on this page proves who that is: ask them.`),
  ].filter(Boolean);
}

/** @param {number} expires Seconds. */
function invitationWords(expires) {
  const when = formatTime(expires);
  return expires * 1000 > Date.now() ? `It can be used until ${when}.` : `It could be used until ${when}. Ask for a new one.`;
}

/** @param {DefinitionBody} definition */
function leaving(definition) {
  return h("section.card", { "aria-labelledby": "leaves" },
    h("h2", { id: "leaves" }, "What leaves your phone"),
    picture(definition.settings.min_participants),
    h("p", null, about.HALVES),
    h("h3", null, "Who learns what"),
    h("ul", null, ...LEARNT.map((sentence) => h("li", null, sentence))));
}

/** @param {DefinitionBody} definition */
const paid = (definition) =>
  facts([["What is paid", ...lines(about.paymentWords(definition))], ["Terms", sentence(definition.terms)]]);

function served() {
  return h("details.card", null, h("summary", null, "Can I trust this page?"), ...lines(about.SERVED_CODE));
}

/** @param {Model} model @param {NonNullable<Answer>} answer @param {HTMLElement} trouble */
function answering(model, { task, fewest, small, back }, trouble) {
  const accepted = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id: "accept-few" }));
  const join = actionButton(back ? "Join again" : "Join", trouble, async () => {
    await model.join(task, small ? fewest : about.LEAST_PARTICIPANTS);
    go("record", task);
  }, { kind: "main" });
  join.disabled = small;
  accepted.addEventListener("change", () => (join.disabled = !accepted.checked));
  const few = small && h("label.choice", null, accepted, `I accept averages of as few as ${fewest} people.`);
  const later = button("Not now", () => go("campaigns"));
  return h("div", null, few, h("div.buttons", null, join, later, !back && deleting(model, task)));
}

/** @param {Model} model @param {string} task */
function deleting(model, task) {
  const question = { title: "Delete this invitation?", text: ["To see it again you need the link."], action: "Delete" };
  return button("Delete this invitation", () => ask(question, async () => {
    await model.forget(task);
    go("campaigns");
  }), { kind: "danger" });
}

/** @param {string} url */
function hostOf(url) {
  try {
    return new URL(url).host;
  } catch {
    return "the platform";
  }
}
