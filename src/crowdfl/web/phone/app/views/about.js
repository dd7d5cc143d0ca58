// The invitation on one screen: who asks, for what, how long, for how much. Join, or learn more, or not.

import { h } from "../../../web/common/dom.js";
import { duration, formatTime } from "../../../web/common/format.js";
import { between, learntRows, listOf, t, together, withNodes, written } from "../../../web/common/text.js";
import { missingSensors } from "../sensors.js";
import * as about from "../about.js";
import { actionButton, ask, button, facts, notice, part, title } from "../../../web/common/parts.js";
import { FARTHEST } from "../../agent/transport.js";
import { picture } from "../picture.js";
import { go } from "../router.js";
import { grouped, plainly, sentence } from "../messages.js";
import { textsOf, theirs, theirWords } from "../theirs.js";

/** @typedef {import("../types.js").Model} Model */
/** @typedef {import("../types.js").Campaign} Campaign */
/** @typedef {import("../types.js").DefinitionBody} DefinitionBody */

const PROFILE = "shares"; // phones take part in no other

/** @param {Model} model @param {string} task */
export function aboutView(model, task) {
  const trouble = h("div");
  const answer = part("div.answer", null, (/** @type {Answer} */ shown) => shown ? [answering(model, shown, trouble)] : []);
  const paper = part("div", null, (/** @type {Shown | undefined} */ campaign) => papers(model, campaign));
  const waits = part("div", null, (/** @type {string | null} */ why) => why ? [notice("warn", why, "\n", t("invite.again"))] : []);
  const heading = title(t("invite.title"));
  const element = h("div.invitation", null, heading, paper.element, waits.element, answer.element);
  const update = () => {
    const campaign = model.get(task);
    const invited = !campaign || campaign.phase === "invited";
    heading.textContent = t(invited ? "invite.title" : "about.title");
    heading.className = invited ? "kicker" : "";
    paper.show(campaign && pick(campaign));
    answer.show(canAnswer(campaign));
    waits.show(campaign?.now.kind === "waiting" ? campaign.now.why : null);
  };
  update();
  return { element, update };
}

/** @typedef {ReturnType<typeof pick>} Shown */

/** What is shown of it: the rest may change without this page being made again. @param {Campaign} campaign */
const pick = ({ task, phase, definition, refusal, closed, ahead = 0, problem, expires, place = "", replaces = false, sp, noise }) =>
  ({ task, phase, definition, refusal, closed, ahead, problem, expires, place, replaces, sp, others: noise?.others ?? 0 });

/** @typedef {{ task: string, fewest: number, small: boolean, back: boolean, recruits: string, alone: boolean, replaces: string | null, consent: import("../../protocol/texts.js").Texts["consent"], language: string } | null} Answer */

/** @param {Campaign | undefined} campaign @returns {Answer} */
function canAnswer(campaign) {
  if (!campaign?.definition || campaign.refusal || campaign.stopped || (campaign.closed && campaign.phase === "invited")) return null;
  if (Math.abs(campaign.ahead ?? 0) > FARTHEST) return null;
  if (!["invited", "left"].includes(campaign.phase)) return null;
  const fewest = campaign.definition.settings.min_participants;
  const back = campaign.phase === "left"; // who has agreed before
  const texts = textsOf(campaign.definition);
  const consent = back ? null : texts.consent;
  const recruits = about.isRecruited(campaign.definition) ? about.recruitingWords(campaign.definition) : "";
  const alone = about.needsAllTheSame(campaign.definition);
  const replaces = campaign.replaces && !back ? campaign.place ?? "" : null;
  return { task: campaign.task, fewest, small: about.isSmallCrowd(campaign.definition), back, recruits, alone, replaces, consent, language: texts.languages.consent };
}

/** @param {Model} model @param {Shown | undefined} campaign */
function papers(model, campaign) {
  if (!campaign) return [notice("bad", t("invite.unknown"))];
  const { task, phase, definition, refusal, problem } = campaign;
  const invited = phase === "invited";
  if (refusal) return [notice("bad", h("strong", null, t("invite.refused")), "\n", refusal), invited && deleting(model, task)];
  if (!definition) return [waiting(model, campaign), problem && deleting(model, task)];
  const closed = invited && campaign.closed;
  const lacking = missingSensors(definition);
  return [
    closed && notice("warn", h("strong", null, t("invite.closed")), between(), together(t(`enrolment.${closed}`), t("invite.nothingSent"))),
    closed && deleting(model, task),
    invited && campaign.ahead !== 0 && notice("warn", t(campaign.ahead > 0 ? "invite.clockAhead" : "invite.clockBehind", { by: duration(Math.abs(campaign.ahead)) })),
    invited && lacking.length > 0 && notice("warn", t("about.lacking", { sensors: listOf(lacking.map((name) => t(`sensor.${name}`))) })),
    invited && campaign.replaces && notice("warn", t("invite.replaces", { place: grouped(campaign.place) })),
    brief(definition, campaign.others),
    invited ? h("details", { id: "more" }, h("summary", null, t("invite.more")), ...more(campaign, definition), !closed && deleting(model, task))
      : h("div", null, ...more(campaign, definition)),
  ];
}

/** @param {Model} model @param {Shown} campaign */
function waiting(model, { task, problem, sp }) {
  const place = h("div");
  const again = actionButton(t("invite.tryAgain"), place, () => model.look(task));
  return h("div.card", null,
    h("p.said", { role: "status" }, problem ? `${t("invite.notLoaded")}\n${problem}` : t("invite.asking", { place: new URL(sp).host })),
    problem && again, place);
}

/** What fits a screen. @param {DefinitionBody} definition @param {number} others Epsilon of other campaigns. */
function brief(definition, others) {
  const { who, training, settings: { epsilon } } = definition;
  const texts = textsOf(definition);
  return h("section.brief", null,
    h("div.asker", null, logo(who), h("div", null,
      h("strong", { dir: "auto" }, plainly(who.name) || t("invite.nobody")), h("div.soft", { dir: "auto" }, plainly(who.institution)))),
    theirs("p.headline", texts.languages.purpose, texts.purpose),
    h("ul.points", null,
      h("li", null, h("strong", null, about.effortWords(definition)), h("div.soft", null, ...theirWords(texts, training.labels ?? []))),
      h("li", null, h("strong", null, about.payLine(definition))),
      h("li", null, about.roundsLine(definition)),
      about.extraSensors(definition) && h("li", { id: "extra-sensors" }, about.extraSensors(definition)),
      h("li", null, together(t("invite.stays"), epsilon != null && t("invite.epsilon", { epsilon: about.short(epsilon), sum: about.short(epsilon + others) })))));
}

/** @param {Record<string, string>} who */
const logo = (who) => who.logo && h("img.logo", { src: `data:image/png;base64,${who.logo}`, alt: "", width: 56, height: 56 });

/** @param {readonly string[]} words */
const lines = (words) => words.map((text) => h("p", null, text));

/** Everything else. @param {Shown} campaign @param {DefinitionBody} definition */
function more(campaign, definition) {
  const texts = textsOf(definition);
  const labels = h("span", null, ...theirWords(texts, definition.training.labels ?? []));
  const [noise, compared] = [about.privacyWords(definition, campaign.others), about.referenceWords(definition)];
  return [
    h("div.card", null, facts([
      [t("about.who"), ...asker(definition)],
      [t("about.readers"), h("p", written(texts.languages.readers), sentence(texts.readers))],
      [t("about.doing"), ...withNodes("about.doingWords", { labels, count: about.leastSeconds(definition) })],
      [t("about.sensors"), about.sensorsOf(definition)],
      [t("about.howLong"), ...lines(about.durationWords(definition))],
      [t("about.people"), ...lines(about.crowdWords(definition))],
      [t("about.counting"), about.countingWords(definition)],
      compared.length > 0 && [t("about.reference"), ...lines(compared)],
      noise.length > 0 && [t("about.privacy"), ...lines(noise)],
      [t("about.pay"), ...lines(about.paymentWords(definition))],
      [t("about.terms"), h("p", written(texts.languages.terms), sentence(texts.terms))],
      campaign.expires !== null && campaign.phase === "invited" && [t("about.invitation"), invitationWords(campaign.expires)],
    ])),
    leaving(definition),
    h("div.card", null, h("h2", null, t("about.trust")), ...lines([t("about.served"), t("about.compare")])),
  ];
}

/** @param {DefinitionBody} definition */
function asker({ who, requester }) {
  const said = [who.name, who.institution, who.contact, who.approval].filter(Boolean);
  const key = grouped(requester.slice(0, 16));
  return [...said.map((text) => h("p", { dir: "auto" }, plainly(text))), h("p.soft", null, t(said.length ? "about.soTheySay" : "about.keyOnly", { key }))];
}

/** @param {number} expires Seconds. */
const invitationWords = (expires) => t(expires * 1000 > Date.now() ? "about.usable" : "about.expired", { when: formatTime(expires) });

/** @param {DefinitionBody} definition */
function leaving(definition) {
  return h("section.card", { "aria-labelledby": "leaves" },
    h("h2", { id: "leaves" }, t("picture.title")),
    picture(definition.settings.min_participants),
    h("p", null, t("about.halves")),
    h("p", null, t("common.kgc")),
    h("details", { id: "learnt" }, h("summary", null, t("about.learnt")), h("ul", null, ...learntRows(PROFILE, about.isRecruited(definition)).map(({ party, learns }) => h("li", null, h("strong", null, party), h("div", null, learns))))));
}

/** @param {Model} model @param {NonNullable<Answer>} answer @param {HTMLElement} trouble */
function answering(model, { task, fewest, small, back, recruits, alone, replaces, consent, language }, trouble) {
  const allTheSame = alone ? choice("all-the-same", t("invite.allTheSame")) : null;
  const few = small ? choice("accept-few", t("invite.few", { count: fewest })) : null;
  const agrees = consent ? choice("agree", t("invite.agree", { version: plainly(consent.version) })) : null;
  const takes = replaces === null ? null : choice("replaces", t("invite.takesPlace"));
  const choices = [allTheSame, takes, few, agrees].filter((one) => one !== null);
  const join = actionButton(t(back ? "invite.joinAgain" : "invite.join"), trouble, async () => {
    await model.join(task, small ? fewest : about.LEAST_PARTICIPANTS, consent?.language, alone);
    go("record", task);
  }, { kind: "main" });
  const decide = () => (join.disabled = choices.some(({ input }) => !input.checked));
  choices.forEach(({ input }) => input.addEventListener("change", decide));
  decide();
  const text = consent && h("details", { id: "consent" }, h("summary", null, t("invite.consent")), theirs("p.said", language, consent.text), agrees?.element ?? null);
  const warned = recruits && h("p.warn", { id: "recruits" }, recruits);
  return h("div", null, warned, allTheSame?.element, takes?.element, few?.element, text, h("div.joining", null, trouble, h("div.buttons", null, button(t("common.notNow"), () => go("campaigns")), join)));
}

/** Something to agree to. @param {string} id @param {string} words */
function choice(id, words) {
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id }));
  return { input, element: h("label.choice", null, input, words) };
}

/** @param {Model} model @param {string} task */
function deleting(model, task) {
  const question = { title: t("invite.deleteAsk"), text: [t("invite.deleteText")], action: t("invite.deleteDo") };
  return button(t("invite.delete"), () => ask(question, async () => {
    await model.forget(task);
    go("campaigns");
  }), { kind: "danger" });
}
