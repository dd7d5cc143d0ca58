// A task's definition in the words of someone who is asked to take part: plain text, no markup.

import { duration } from "../../web/common/format.js";

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
export function durationWords({ settings }) {
  const { rounds, window, grace, strategy } = settings;
  const longest = rounds * (2 * window + (strategy === "retransmit" ? grace : 0));
  const each = rounds === 1 ? "There is one round. It" : `There are ${rounds} rounds. Each`;
  return [
    `${each} is open for up to ${duration(window)}, and closes early once everyone has sent.`,
    `With all its waiting it takes ${duration(longest)} at most, once there are enough people.`,
    settings.per_round == null
      ? "In each round the phone trains and sends once, while this page is open."
      : `For each round ${settings.per_round} people are drawn. A phone that is drawn trains and sends once, while this page is open.`,
  ];
}

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
