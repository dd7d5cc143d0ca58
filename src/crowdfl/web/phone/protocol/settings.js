// What a phone needs of a task's settings, with the bounds of crowdfl/settings.py. Other profiles are refused with words.

import { isEnough, privacyOf } from "./accounting.js";
import { claimsEarly, toMillionths } from "./amounts.js";
import { DocumentError, RewardsOff, TooFewParticipants, UnsupportedTask } from "./errors.js";
import { MOST_DEVICES, SAMPLES_BYTES } from "./limits.js";

/** @typedef {import("./documents.js").Definition} Definition */
/** @typedef {[name: string, sides: number[]]} ArrayShape */
/**
 * @typedef {object} SharesTask
 * @property {string} task
 * @property {string} initial SHA-256 of the initial weights, in hex.
 * @property {number} parameters
 * @property {ArrayShape[]} shape
 * @property {number} decimals
 * @property {number} unit 10^decimals.
 * @property {number} clip
 * @property {number | null} maxNorm
 * @property {number} maxSamples
 * @property {boolean} hasReference Whether uploads are compared with one of the requester's: then honest ones may be left out.
 * @property {boolean} hasCounts Whether people count by their samples; if not, everyone counts once, and no number leaves the phone.
 * @property {number} countBytes Of a share of a number of samples; 0 where there are none.
 * @property {number} minParticipants
 * @property {number} maxParticipants In one round.
 * @property {boolean} recruits Whether SP lets people in, and may be everybody else.
 * @property {boolean} hasNoise
 * @property {boolean} draws Whether people are drawn for each round; if not, everyone is in it.
 * @property {number} rounds
 * @property {bigint} payment Millionths that every round pays; 0 in a task without rewards.
 * @property {bigint} each Millionths that a round of fixed pay pays each; else 0.
 * @property {bigint} bonus Millionths, once, for who was in every round that asked them; 0: there is none.
 * @property {number} mostDevices That can join.
 * @property {number} roundsUntil The last day of rounds; seconds since 1970.
 * @property {number} claimsUntil The last day of claims, unless it is extended.
 * @property {boolean} claimsEarly Whether a round's reward can be claimed while the task runs: what anyone can compute from CSP's record.
 * @property {number} window Seconds in which a round takes uploads.
 * @property {string} pay What rewards follow: fixed, equal, samples, distance or none.
 * @property {string} check Whether uploads out of bounds are left out.
 * @property {ServerStep | null} step What readers make of a round's average; null: they take it as it is.
 */
/**
 * @typedef {object} ServerStep
 * @property {"fedavgm" | "fedadagrad" | "fedadam" | "fedyogi"} kind
 * @property {number} rate
 * @property {number} momentum
 * @property {number} squares
 * @property {number} floor
 */

export const LEAST_PARTICIPANTS = 5; // in a smaller crowd an average says too much about one
const LARGEST = 1e15; // of any setting
const LARGEST_SCALED = 2 ** 53;
// What a browser can hold; more is refused before anyone joins.
const MOST_PARAMETERS = 10_000_000;
const MOST_PEOPLE = 1_000_000;
const MOST_ROUNDS = 10_000;

const isAmount = (/** @type {unknown} */ value) => typeof value === "string" || typeof value === "number";

/** What takes part in a round, by words: the rest is refused. */
const PROFILES = new Map([
  ["hardened", "this task encrypts every weight, which a browser cannot do in useful time: take part with the CrowdFL program"],
  ["paper", "this task follows the paper as printed, for experiments only: take part with the CrowdFL program"],
]);

/** @type {Record<string, (value: unknown) => boolean>} */
const FITS = {
  total: (value) => value === "shown",
  decimals: within(0, 12, Number.isInteger),
  clip: above(0, LARGEST),
  max_participants: within(3, LARGEST, Number.isInteger),
  max_samples: within(1, LARGEST, Number.isInteger),
  mask_bits: optional(within(20, 256, Number.isInteger)),
  distance_floor: optional(within(0, LARGEST)),
  lanes: within(0, 2 ** 16, Number.isInteger),
  pay: optional((value) => ["none", "fixed", "equal", "samples", "distance"].includes(String(value))),
  each: optional(isAmount),
  bonus: optional(isAmount),
  weighting: (value) => value === "samples" || value === "equal",
  check: (value) => value === "bounds" || value === "none",
  max_norm: optional(above(0, LARGEST)),
  epsilon: optional(above(0, 1000)),
  delta: optional(within(1e-12, 0.01)),
  noise: optional((value) => value === "any"),
  sigma: optional(within(1, 2 ** 24, Number.isInteger)),
  reference: (value) => typeof value === "boolean",
  window: above(0, LARGEST),
  late: within(0, LARGEST),
  min_participants: within(3, LARGEST, Number.isInteger),
  per_round: optional(within(3, LARGEST, Number.isInteger)),
  cohort: within(2, LARGEST, Number.isInteger),
  rounds: within(1, LARGEST, Number.isInteger),
  budget: optional(isAmount),
  currency: (value) => /^[A-Z]{3}$/.test(String(value)),
  key_bits: within(2, 16384, Number.isInteger),
  server_step: (value) => ["none", "fedavgm", "fedadagrad", "fedadam", "fedyogi"].includes(String(value)),
  server_rate: above(0, 1000),
  server_momentum: within(0, 1, (value) => value < 1),
  server_squares: within(0, 1, (value) => value < 1),
  server_floor: within(1e-12, 1000),
};

const MOMENT = /^[0-9T:.+Z-]{10,40}$/;
const DAILY = /^day at [0-2][0-9]:[0-5][0-9]( [A-Za-z0-9_+/-]{1,60})?$/;
const isMoment = optional((value) => MOMENT.test(String(value)) && !Number.isNaN(Date.parse(String(value))));

/** When people join and when rounds are. @type {Record<string, (value: unknown) => boolean>} */
const PLAN_FITS = {
  enrol_until: isMoment,
  start_at: isMoment,
  start_with: optional(within(3, LARGEST, Number.isInteger)),
  every: optional((value) => typeof value === "string" ? DAILY.test(value) : above(0, 1e9)(value)),
  closes: (value) => value === "everyone" || value === "deadline",
  goal: optional(within(3, LARGEST, Number.isInteger)),
  unused_pay: optional(isAmount),
  room: within(0, 1e9),
};

const isLine = (/** @type {unknown} */ value) => typeof value === "string" && value.length <= 400;

/** Who asks, in their own words. @type {Record<string, (value: unknown) => boolean>} */
const WHO_FITS = {
  name: isLine,
  institution: isLine,
  contact: isLine,
  approval: isLine,
  logo: (value) => typeof value === "string" && value.length <= 44_000 && /^(iVBORw0KGgo[A-Za-z0-9+/]*={0,2})?$/.test(value) && (!value || isSmall(value)),
};

/** @param {number} most @returns {(value: unknown) => boolean} */
const isProse = (most) => (value) => typeof value === "string" && value.length <= 2 * most;

/** What people sign. @type {Record<string, (value: unknown) => boolean>} */
const CONSENT_FITS = { version: isLine, text: isProse(20_000) };

const isWords = (/** @type {any} */ value) =>
  typeof value === "object" && value !== null && Object.entries(value).every(([own, word]) => isLine(own) && isLine(word));

/** The requester's texts in another language. @type {Record<string, (value: unknown) => boolean>} */
const TEXTS_FIT = { purpose: isProse(2000), terms: isProse(2000), readers: isProse(2000), consent: isProse(20_000), words: isWords };
const LANGUAGE = /^[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?$/;

/** @param {Record<string, any>} texts @param {string} own */
function requireTexts(texts, own) {
  for (const [language, found] of Object.entries({ ...texts, [own]: null })) {
    if (!LANGUAGE.test(language)) throw refused("a language of its texts is none");
    if (found !== null) requireEach(found, TEXTS_FIT);
  }
}

/**
 * @param {number} least
 * @param {number} most
 * @param {(value: number) => boolean} [also]
 */
function within(least, most, also = () => true) {
  return (/** @type {unknown} */ value) => typeof value === "number" && value >= least && value <= most && also(value);
}

/**
 * @param {number} bound
 * @param {number} most
 */
function above(bound, most) {
  return (/** @type {unknown} */ value) => typeof value === "number" && value > bound && value <= most;
}

/** @param {(value: unknown) => boolean} fits */
function optional(fits) {
  return (/** @type {unknown} */ value) => value === null || fits(value);
}

/**
 * A task of the profile `shares` as a phone computes with it; `UnsupportedTask` for any other profile.
 * @param {Definition} definition
 * @returns {SharesTask}
 */
export function sharesTask({ task, body }) {
  const settings = body.settings;
  requireShares(settings.profile);
  requireSettings(settings);
  requireEach(body.plan, PLAN_FITS);
  requireEach(body.who, WHO_FITS);
  requireEach(body.consent, CONSENT_FITS);
  requireTexts(body.texts, body.language);
  const step = serverStep(settings);
  requireMoving(settings, step);
  const shape = /** @type {ArrayShape[]} */ (body.arrays);
  const pay = settings.pay ?? "equal";
  const hasCounts = settings.weighting === "samples";
  const budget = budgetOf(settings);
  return {
    task,
    initial: body.initial,
    parameters: countParameters(shape),
    shape,
    decimals: settings.decimals,
    unit: 10 ** settings.decimals,
    clip: settings.clip,
    maxNorm: settings.max_norm,
    maxSamples: settings.max_samples,
    hasCounts,
    hasReference: settings.reference,
    countBytes: hasCounts ? SAMPLES_BYTES : 0,
    minParticipants: settings.min_participants,
    maxParticipants: settings.per_round ?? settings.max_participants,
    recruits: Boolean(body.recruiter),
    hasNoise: privacyOf(settings) !== null,
    draws: settings.per_round !== null,
    rounds: settings.rounds,
    payment: pay === "none" ? 0n : budget,
    each: pay === "fixed" ? toMillionths(settings.each) : 0n,
    bonus: pay === "fixed" && settings.bonus !== null ? toMillionths(settings.bonus) : 0n,
    mostDevices: settings.max_participants * MOST_DEVICES,
    roundsUntil: body.rounds_until,
    claimsUntil: body.claims_until,
    claimsEarly: claimsEarly(settings),
    window: settings.window,
    pay,
    check: settings.check,
    step,
  };
}

/**
 * @param {Record<string, any>} settings
 * @returns {ServerStep | null}
 */
function serverStep(settings) {
  if (settings.server_step === "none") return null;
  const { server_step: kind, server_rate: rate, server_momentum: momentum, server_squares: squares, server_floor: floor } = settings;
  const usesSquares = kind === "fedadam" || kind === "fedyogi";
  if (usesSquares && squares <= momentum * momentum) throw refused("`server_squares` is not above the square of `server_momentum`");
  return { kind, rate, momentum, squares, floor };
}

/** @param {unknown} profile */
function requireShares(profile) {
  if (profile === "shares") return;
  const unknown = "this task is of a kind that this page does not know: use the newest version of the page, or ask the requester";
  throw new UnsupportedTask(PROFILES.get(String(profile)) ?? unknown);
}

/** @param {Record<string, any>} settings @param {Record<string, (value: unknown) => boolean>} rules */
function requireEach(settings, rules) {
  for (const [name, fits] of Object.entries(rules)) {
    if (!Object.hasOwn(settings, name) || !fits(settings[name])) throw refused(`\`${name}\` is missing or out of bounds`);
  }
  const unknown = Object.keys(settings).filter((name) => name !== "profile" && !Object.hasOwn(rules, name));
  if (unknown.length) throw refused("it has a setting that this page does not know: use the newest version of the page");
}

/** @param {Record<string, any>} settings */
function requireSettings(settings) {
  requireEach(settings, FITS);
  if (settings.min_participants > settings.max_participants) throw refused("`min_participants` is above `max_participants`");
  const drawn = settings.per_round ?? settings.min_participants;
  if (drawn < settings.min_participants || drawn > settings.max_participants) throw refused("`per_round` is out of bounds");
  if (settings.clip * 10 ** settings.decimals >= LARGEST_SCALED) throw refused("`clip` is too large for its decimals");
  if (settings.max_participants > MOST_PEOPLE || settings.rounds > MOST_ROUNDS) {
    throw new UnsupportedTask("this task has more people or rounds than a browser keeps account of: take part with the CrowdFL program");
  }
  const paid = settings.budget !== null && settings.pay !== "none";
  if (settings.check === "none" && paid) throw refused('check = "none" pays nobody, and it has a budget');
  if (settings.weighting === "equal") {
    if (settings.max_norm === null) throw refused('weighting = "equal" needs `max_norm`');
    if (["samples", "distance"].includes(settings.pay)) throw refused(`pay = "${settings.pay}" needs weighting = "samples"`);
  }
  if (settings.check === "bounds" && settings.lanes === 0) throw refused("without lanes no upload can be checked");
  if (settings.pay === "fixed" && (settings.each === null || budgetOf(settings) !== toMillionths(settings.each) * BigInt(drawnOf(settings)) || !budgetOf(settings))) {
    throw refused('with pay = "fixed", its `budget` does not follow from `each`');
  }
  requirePrivacy(settings);
  requireReference(settings);
}

/** @param {Record<string, any>} settings */
const budgetOf = ({ budget }) => (budget === null ? 0n : toMillionths(budget));

/** How many people a round can have. @param {Record<string, any>} settings */
const drawnOf = ({ per_round: drawn, max_participants: most }) => drawn ?? most;

const LEAST_LANES = 1024; // of a sketch by which uploads are compared

/** @param {Record<string, any>} settings */
function requireReference({ reference, weighting, check, lanes, epsilon }) {
  if (!reference) return;
  if (epsilon !== null) throw refused("`reference` lets the requester ask about each person, which `epsilon` rules out");
  if (weighting !== "equal" || check !== "bounds" || lanes < LEAST_LANES) throw refused(`\`reference\` needs everyone to count once, and checks with ${LEAST_LANES} lanes`);
}

const LONGEST_UPDATE = 2 ** 16; // whole units, where noise is added

/** Less noise than the promise needs is refused here too. @param {Record<string, any>} settings */
function requirePrivacy(settings) {
  const privacy = privacyOf(settings);
  if (privacy === null) {
    if ([settings.delta, settings.noise, settings.sigma].some((value) => value !== null)) throw refused("it has noise and no `epsilon`");
    return;
  }
  if (settings.weighting !== "equal") throw refused("`epsilon` needs everyone to count once");
  if (settings.pay !== null && !["none", "equal", "fixed"].includes(settings.pay)) throw refused("its pay shows more than `epsilon` allows");
  if (settings.sigma === null || privacy.length > LONGEST_UPDATE || !isEnough(privacy, settings.rounds)) {
    throw refused("its noise is too little for its `epsilon`");
  }
}

/**
 * Refuse a model that stands still whatever is uploaded: two rounds of it would show who came or went.
 * @param {Record<string, any>} settings @param {ServerStep | null} step
 */
function requireMoving(settings, step) {
  const change = Math.min(settings.clip, settings.max_norm ?? settings.clip);
  if (furthest(step, change) * 10 ** settings.decimals < 0.5) throw refused("its model would stand still, whatever is uploaded");
}

/** How far a round can move a weight, as Python's `ServerStep.furthest`. @param {ServerStep | null} step @param {number} change */
function furthest(step, change) {
  if (step === null) return change;
  const { kind, rate, momentum, squares, floor } = step;
  if (kind === "fedavgm") return (rate * change) / (1 - momentum);
  return Math.min(rate * (1 - momentum) * most(kind, momentum, squares), (rate * change) / floor);
}

/** Of |m| / sqrt(v), over 1 - momentum. @param {ServerStep["kind"]} kind @param {number} momentum @param {number} squares */
function most(kind, momentum, squares) {
  if (kind === "fedadagrad") return 1 / Math.sqrt(1 - momentum * momentum);
  const adam = 1 / Math.sqrt((1 - squares) * (1 - (momentum * momentum) / squares));
  return kind === "fedadam" ? adam : adam + (Math.sqrt(squares) + momentum) / (squares - momentum * momentum);
}

/** @param {string} why */
function refused(why) {
  return new DocumentError(`this definition does not stand: ${why}`);
}

/** @param {ArrayShape[]} shape */
function countParameters(shape) {
  const count = shape.reduce((sum, [, sides]) => sum + sides.reduce((product, side) => product * side, 1), 0);
  if (count < 1) throw refused("its model has no weights");
  if (count > MOST_PARAMETERS) {
    throw new UnsupportedTask(`the model of this task has ${count} numbers, which is too large for a browser: take part with the CrowdFL program`);
  }
  return count;
}

/** @param {SharesTask} task */
export function requireRewards(task) {
  if (!task.payment) throw new RewardsOff('the task pays no rewards: it has no budget, or pay = "none"');
}

/**
 * Refuse a task whose averages may be of fewer people than this participant accepts.
 * @param {SharesTask} task
 * @param {number} [least]
 * @param {boolean} [allTheSame] The owner takes part where SP lets people in, and may be everybody else.
 */
export function requireCompany(task, least = LEAST_PARTICIPANTS, allTheSame = false) {
  if (task.recruits && !task.hasNoise && !allTheSame) {
    throw new TooFewParticipants("the platform may be everybody else in this task, and no noise hides anyone: its owner must accept that");
  }
  if (task.minParticipants >= least) return;
  throw new TooFewParticipants(
    `this task averages as few as ${task.minParticipants} participants, and you take part from ${least} on: ` +
      "ask the requester to raise min_participants",
  );
}

const WIDEST = 512; // pixels: a small file may be a picture of gigabytes

/** @param {string} logo A PNG in base 64, by what its header says. */
function isSmall(logo) {
  const head = atob(logo.slice(0, 32).padEnd(32, "A"));
  const [wide, high] = [16, 20].map((at) => [...head.slice(at, at + 4)].reduce((sum, one) => sum * 256 + one.charCodeAt(0), 0));
  return head.slice(12, 16) === "IHDR" && wide > 0 && wide <= WIDEST && high > 0 && high <= WIDEST;
}
