// What SP may say about where a task stands. Rounds name what this device keeps, and each open one is trained for: a number that
// the task does not have would spoil what is kept, or cost a battery.

import { EnrolmentOver, TaskFull, TaskNotRunning } from "../protocol/errors.js";
import { unusable } from "./transport.js";

/** @typedef {import("./api.js").Status} Status */

const LONGEST_WORD = 2000; // characters
/** How a task ends, and by whom: the codes of roles/records.py. */
export const WHY = ["settled", "cancelled", "expired"];
export const BY = ["requester", "sp", "csp", "operator", "sp_operator", "csp_operator", "plan", "lifetime"];

/**
 * @param {Status} status @param {number} rounds How many the task has, as its requester signed it. @returns {Status}
 */
export function requireStatus(status, rounds) {
  if (!isShort(status.state) || !isOptional(status.ended, isEnding)) throw impossible("its state");
  if (!isOptional(status.claims_extended, isShort)) throw impossible("the last day of claims");
  if (!isOptional(status.next_round, isCount) || !isOptional(status.enrolment, isShort)) throw impossible("its next round");
  if (!isOptional(status.come_back, isCount)) throw impossible("when to look again");
  if (!isOptional(status.enrolled, isCount)) throw impossible("how many have joined");
  if (!isOptional(status.now, isCount)) throw impossible("its time");
  const known = new Set();
  for (const { number, state, last_call: until, uploads, drawn } of status.rounds.map(tableOf)) {
    if (!Number.isInteger(number) || number < 1 || number > rounds || known.has(number)) throw impossible("a round's number");
    if (!isCount(until) || !isOptional(uploads, isCount) || !isOptional(drawn, isCount)) throw impossible(`round ${number}`);
    if (!isShort(state)) throw impossible(`round ${number}`);
    known.add(number);
  }
  return status;
}

const CLOSE = 300; // seconds that a signature's time may differ from the platform's

/** How many seconds this device's clock is ahead of the platform's; 0 where that makes no difference, or is not known. @param {Status} status @param {number} now */
export function clockAhead({ now: theirs }, now) {
  const ahead = typeof theirs === "number" ? now - theirs : 0;
  return Math.abs(ahead) > CLOSE ? ahead : 0;
}

/** Why nobody can join, by what the platform says. @type {Record<string, string>} */
const NOT_OPEN = {
  full: "all places of this campaign are taken",
  over: "the time to join this campaign is over",
  ended: "this campaign has ended",
};
/** @type {Record<string, new (words: string) => Error>} */
const NO_ROOM = { full: TaskFull, over: EnrolmentOver, ended: TaskNotRunning };

/**
 * The platform's word for why nobody can join; null if somebody can.
 * @param {Status} status @param {boolean} takesPlace Of somebody who has a place already, with another phone: until the end.
 */
export function closedBy({ enrolment = "" }, takesPlace) {
  return Object.hasOwn(NOT_OPEN, enrolment) && (enrolment === "ended" || !takesPlace) ? enrolment : null;
}

/** Before the invitation is used up: a task that takes nobody says so. @param {Status} status @param {boolean} takesPlace */
export function requireRoom(status, takesPlace) {
  const closed = closedBy(status, takesPlace);
  if (closed) throw new NO_ROOM[closed](`${NOT_OPEN[closed]}; your invitation is not used up`);
}

/** @param {any} entry @returns {any} */
const tableOf = (entry) => (entry !== null && typeof entry === "object" ? entry : {});

/** @param {unknown} word */
const isShort = (word) => typeof word === "string" && word.length <= LONGEST_WORD;

/** @param {any} ending */
const isEnding = (ending) => WHY.includes(ending.why) && BY.includes(ending.by) && isShort(ending.reason);

/** @param {unknown} count */
const isCount = (count) => typeof count === "number" && count >= 0 && count <= Number.MAX_SAFE_INTEGER;

/** @param {unknown} value @param {(value: unknown) => boolean} fits */
const isOptional = (value, fits) => value === undefined || value === null || fits(value);

/** @param {string} what */
function impossible(what) {
  return unusable(`the platform says about the campaign what cannot be (${what}): it is asked again`);
}
