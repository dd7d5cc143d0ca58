// @ts-check
// What states and errors are called when a person reads them.

/** @typedef {import("./types.js").RoundView} RoundView */
/** @typedef {import("./types.js").Campaign} Campaign */

/** @type {Record<string, string>} */
const ROUNDS = {
  open: "open",
  closed: "closed",
  checking: "being checked",
  checked: "checked",
  averaging: "being averaged",
  averaged: "averaged",
  published: "published",
  rewarded: "finished",
  aborted: "given up",
};

/** @type {Record<RoundView["mine"], string>} */
const MINE = {
  none: "not sent",
  training: "training",
  sending: "sending",
  arrived: "arrived",
  late: "arrived late",
  refused: "refused",
  nothing: "nothing to send",
};

/** @type {Record<Campaign["phase"], string>} */
const PHASES = { invited: "invited", joined: "taking part", left: "left", ended: "ended" };

/** @param {string} state */
export const roundWord = (state) => ROUNDS[state] ?? state;
/** @param {RoundView["mine"]} mine */
export const mineWord = (mine) => MINE[mine] ?? mine;
/** @param {Campaign["phase"]} phase */
export const phaseWord = (phase) => PHASES[phase] ?? phase;

/** What to do about an error, by its name. @type {Record<string, string>} */
const ADVICE = {
  FormatError: "The link is damaged. Open it again from the message that you got, or scan the code once more.",
  Truncated: "The link is not complete. Copy all of it, or scan the code once more.",
  TrailingBytes: "The link is damaged. Open it again from the message that you got, or scan the code once more.",
  UnsupportedVersion: "The link was made by another version of CrowdFL. Ask for a new one.",
  InvitationRefused: "Ask whoever invited you for a new link.",
  TooFewParticipants: "Take part only if that is enough for you.",
  UnsupportedTask: "This page cannot take part. Whoever invited you can tell you about the program that can.",
  BadSignature: "Do not go on. Tell whoever invited you.",
  DocumentError: "Do not go on. Tell whoever invited you.",
  QuotaExceededError: "Your phone has no room left. Delete recordings or other data, then try again.",
};

/** @param {unknown} wrong */
function isAway(wrong) {
  const known = wrong instanceof Error ? /** @type {{ passes?: boolean }} */ (wrong) : {};
  return known.passes === true || (wrong instanceof TypeError && /fetch|network|load failed/i.test(wrong.message));
}

/**
 * What happened, and what to do.
 * @param {unknown} wrong
 */
export function explain(wrong) {
  const error = wrong instanceof Error ? wrong : new Error(String(wrong));
  if (!navigator.onLine) return "Your phone is offline. Connect it, then try again.";
  if (wrong instanceof TypeError && isAway(wrong)) return "The platform cannot be reached. Try again in a minute.";
  const advice = ADVICE[error.name] ?? (isAway(wrong) ? "Try again in a minute." : "");
  return [sentence(error.message), advice].filter(Boolean).join(" ");
}

/** @param {string} text */
export function sentence(text) {
  const said = text.trim();
  if (!said) return "";
  const whole = said[0].toUpperCase() + said.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

/** A long key in groups, as people compare it. @param {string} key */
export const grouped = (key) => (key.match(/.{1,4}/g) ?? []).join(" ");
