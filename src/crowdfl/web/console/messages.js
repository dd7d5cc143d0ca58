// What happened, in words, and news for screen readers: not more often than one can listen to.
import { plural } from "../web/common/format.js";

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
const PAUSE = 5000; // milliseconds
const MOST = 3; // events that are said one by one

/** @param {Row} row */
export const eventText = (row) => EVENTS[row.event]?.(row) ?? String(row.event);

export class Announcer {
  /** @param {HTMLElement} place An element with aria-live. */
  constructor(place) {
    this.place = place;
    /** @type {string[]} */
    this.waiting = [];
    this.uploads = 0;
    this.timer = 0;
  }

  /** @param {Record<string, { changed: Record<string, Row> }>} change */
  hear(change) {
    this.uploads += Object.keys(change.arrivals?.changed ?? {}).length;
    this.waiting.push(...Object.values(change.news?.changed ?? {}).map(eventText));
    if ((this.uploads || this.waiting.length) && !this.timer) this.timer = window.setTimeout(() => this.say(), PAUSE);
  }

  say() {
    const news = this.waiting.slice(-MOST);
    if (this.waiting.length > MOST) news.unshift(plural(this.waiting.length - MOST, "other event"));
    if (this.uploads) news.push(`${plural(this.uploads, "upload")} arrived`);
    this.place.textContent = `${news.join(". ")}.`;
    [this.waiting, this.uploads, this.timer] = [[], 0, 0];
  }
}
