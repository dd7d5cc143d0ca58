// What states and errors are called when a person reads them.

/** @typedef {import("./types.js").RoundView} RoundView */
/** @typedef {import("./types.js").Campaign} Campaign */

/** @type {Record<string, string>} */
const ROUNDS = {
  open: "open",
  closed: "being added up",
  weighed: "being added up",
  rewarded: "finished",
  aborted: "given up",
  unknown: "not known",
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
  "not drawn": "not this time",
};

/** @type {Record<Campaign["phase"], string>} */
const PHASES = { invited: "invited", joined: "taking part", left: "left", ended: "ended" };

/** @param {string} state */
export const roundWord = (state) => ROUNDS[state] ?? state;
/** @param {RoundView["mine"]} mine */
export const mineWord = (mine) => MINE[mine] ?? mine;
/** @param {Campaign["phase"]} phase */
export const phaseWord = (phase) => PHASES[phase] ?? phase;

/** What to do about an error whose message does not say it, by its name. @type {Record<string, string>} */
const ADVICE = {
  InvitationRefused: "If you have joined before, go on in the browser that you joined with.",
  BadSignature: "Do not go on. Tell whoever invited you.",
  DocumentError: "Do not go on. Tell whoever invited you.",
  UnknownTask: "Ask whoever invited you whether the campaign is over.",
  TaskFull: "All places are taken.",
};

/** Whether the same may succeed in a while. @param {unknown} wrong */
function isAway(wrong) {
  return wrong instanceof Error && /** @type {{ passes?: boolean }} */ (wrong).passes === true;
}

/** What happened, and what to do. @param {unknown} wrong */
export function explain(wrong) {
  if (isAway(wrong) && !navigator.onLine) return "Your phone is offline. Connect it, then try again.";
  const error = wrong instanceof Error ? wrong : new Error(String(wrong));
  const advice = ADVICE[error.name] ?? (isAway(wrong) ? "Try again in a minute." : "");
  return [sentence(error.message), advice].filter(Boolean).join(" ");
}

/** The same of a link that cannot be read: only what is said about a link is for people. @param {unknown} wrong */
export function explainLink(wrong) {
  const isBytes = wrong instanceof Error && BYTES.includes(wrong.name) && !wrong.message.startsWith("this link");
  const text = isBytes ? "The link is damaged, perhaps a part of it is missing." : explain(wrong);
  return `${text} Open it again from the message that you got, or scan the code once more.`;
}

const BYTES = ["FormatError", "Truncated", "TrailingBytes", "LimitExceeded"]; // errors about them

const TURNING = /[\u202a-\u202e\u2066-\u2069]|(?!\n)\p{Cc}/gu;

/** What a stranger wrote, without marks that turn the text around it. @param {string} text */
export const plainly = (text) => text.replace(TURNING, "");

/** @param {string} text */
export function sentence(text) {
  const plain = plainly(text).trim();
  if (!plain) return "";
  const whole = plain[0].toUpperCase() + plain.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

/** A long key in groups, as people compare it. @param {string} key */
export const grouped = (key) => (key.match(/.{1,4}/g) ?? []).join(" ");
