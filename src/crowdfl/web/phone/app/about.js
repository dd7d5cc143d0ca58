// A task's definition in the words of someone who is asked to take part: plain text, no markup.

import { duration, formatTime } from "../../web/common/format.js";

/** @typedef {import("./types.js").DefinitionBody} DefinitionBody */

/** In a smaller crowd an average says too much about one person; the Python participant has the same number. */
export const LEAST_PARTICIPANTS = 5;

/** @param {DefinitionBody} definition */
export function sensorsOf({ training }) {
  const channels = training.channels ?? 6;
  if (channels === 3) return "the accelerometer: how the phone is moved";
  if (channels === 6) return "the accelerometer and the gyroscope: how the phone is moved and turned";
  return `${channels} channels, which a phone's motion sensors do not give: only files can be used`;
}

/** @param {DefinitionBody} definition */
export const recordsWithSensors = ({ training }) => [3, 6].includes(training.channels ?? 6);

/** The least seconds of a recording that some is trained on and some held back. @param {DefinitionBody} definition */
export function leastSeconds({ training }) {
  const { window = 100, hertz = 50, held_out: held = 0.3 } = training;
  const gap = training.gap ?? window;
  return Math.ceil(Math.max(window / (1 - held), (window + gap) / held) / hertz) + 1;
}

/** @param {DefinitionBody} definition */
export function durationWords({ settings, plan }) {
  const { rounds, window, min_participants: least } = settings;
  const early = [plan.goal !== null && `with ${plan.goal} updates`, plan.closes === "everyone" && "once everyone has sent"].filter(Boolean);
  const pace = plan.daily !== null ? ` They begin at ${plan.daily}, one a day at most.` : plan.every !== null ? ` They begin ${duration(plan.every)} apart.` : "";
  const first = [plan.start_at !== null && `on ${momentOf(plan.start_at)} or later`, `once ${plan.start_with ?? least} people have joined`].filter(Boolean);
  return [
    plan.enrol_until !== null && `You can join until ${momentOf(plan.enrol_until)}.`,
    `The first round begins ${first.join(", ")}.`,
    rounds === 1 ? "There is one round." : `There are ${rounds} rounds.${pace}`,
    `A round is open for up to ${duration(window)}${early.length ? `, and closes early ${early.join(" or ")}` : ""}.`,
    settings.per_round == null
      ? "In each round the phone trains and sends once, while this page is open."
      : `For each round ${settings.per_round} people are drawn. A phone that is drawn trains and sends once, while this page is open.`,
  ].filter((words) => words !== false);
}

/** @param {string} text A moment with its offset. */
const momentOf = (text) => formatTime(Date.parse(text) / 1000);

/** @param {DefinitionBody} definition */
export function paymentWords({ settings, claim_window: claimWindow }) {
  if (settings.budget === null || settings.budget === undefined || settings.pay === "none") return ["Nothing is paid for this campaign."];
  return [
    `${settings.budget} for each round, for all who take part together. ${shareWords(settings.pay ?? "equal")}`,
    `You claim it once, after the last round, within ${duration(claimWindow)}. After that it goes back to the requester.`,
    "A claim shows both servers what you earned in each round.",
  ];
}

/** @param {string} pay */
function shareWords(pay) {
  if (pay === "equal") return "Everyone whose update is in the round's average gets the same.";
  if (pay === "samples") return "Your share follows how much you recorded.";
  if (pay === "distance") return "Your share follows how much you recorded, and how close your update is to the average.";
  return "";
}

/** How people count in an average. @param {DefinitionBody} definition */
export function countingWords({ settings }) {
  if (settings.weighting === "equal") {
    return "Everyone counts once, however much they recorded. How much you recorded stays on your phone.";
  }
  return "Whoever recorded more counts more. How much you recorded is shared between the two servers, and can be told from two rounds if you come or go.";
}

/** @param {DefinitionBody} definition */
export function crowdWords({ settings }) {
  const fewest = settings.min_participants;
  const words = [`An average is made of at least ${fewest} people's updates, or not at all.`];
  if (fewest < LEAST_PARTICIPANTS) words.push(`Fewer than ${LEAST_PARTICIPANTS} is little: an average of few people says more about each of them.`);
  return words;
}

/** @param {DefinitionBody} definition */
export const isSmallCrowd = ({ settings }) => settings.min_participants < LEAST_PARTICIPANTS;

/** How an upload leaves the phone. Who learns what of it is in disclosures.js. */
export const HALVES = "Two servers get one half each of what your phone sends. A half alone looks like noise.";

export const SERVED_CODE = [
  "This page comes from the platform. A dishonest platform could send you other code, and then none of this would hold.",
  "The documentation says how anyone can compare the code that is served with the code that is published.",
];
