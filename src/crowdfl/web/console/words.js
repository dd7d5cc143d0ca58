// What happened, in words.

/** @typedef {import("./live.js").Row} Row */

/** @type {Record<string, (row: Row) => string>} By the event's name. */
const EVENTS = {
  "task added": () => "A task was added",
  "task running": () => "The task goes on",
  "task paused": () => "The requester paused the task",
  "task cancelled": () => "The task was cancelled",
  "task finished": () => "All rounds are done: rewards can be claimed",
  "task settled": () => "The task is settled: its books are closed",
  "participant joined": () => "A participant joined",
  "participant left": () => "A participant left",
  "participant refused by CSP": () => "CSP refused a participant",
  "round open": (row) => `Round ${row.number} opened`,
  "round extended": (row) => `Round ${row.number} was extended: too few uploads so far`,
  "round closed": (row) => `Round ${row.number} closed`,
  "round weighed": (row) => `Round ${row.number}: uploads are checked, rewards are computed`,
  "round rewarded": (row) => `Round ${row.number} is published and rewarded`,
  "round aborted": (row) => `Round ${row.number} was aborted`,
  "round void": (row) => `Round ${row.number} is void (${row.error ?? "no reason was given"})`,
  "average published": (row) => `Round ${row.number}: the average is computed`,
  "uploads rejected": (row) => `Round ${row.number}: ${plural(row.uploads, "upload")} rejected`,
  "uploads damaged": (row) => `Round ${row.number}: ${plural(row.uploads, "upload")} damaged on SP's disk, and dropped`,
  "deposit announced": (row) => `Deposit ${row.name} was announced`,
  "deposit confirmed": (row) => `Deposit ${row.name} was confirmed`,
  "deposit rejected": (row) => `Deposit ${row.name} was rejected`,
  "payment pending": () => "A payment is due",
  "payment running": () => "A payment is being made",
  "payment paid": () => "A payment was made",
  "payment unknown": () => "A payment may or may not have been made: check with your bank",
};

/** @param {Row} row */
export function eventWords(row) {
  return EVENTS[row.event]?.(row) ?? String(row.event);
}

/** @param {number} count @param {string} word */
export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** The part of a long name that people compare. @param {string} id */
export function short(id) {
  return id.slice(0, 8);
}

/** @type {Record<string, string>} Classes for a state. */
const LOOKS = { running: "good", paused: "warn", cancelled: "bad", aborted: "bad", unknown: "bad", rejected: "bad", confirmed: "good", paid: "good", pending: "warn" };

/** @param {string} state */
export function stateClass(state) {
  const look = LOOKS[state];
  return look ? `span.state.${look}` : "span.state";
}
