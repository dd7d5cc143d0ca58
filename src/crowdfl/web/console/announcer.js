// News for screen readers: in a few words, and not more often than one can listen to.
import { eventWords, plural } from "./words.js";

/** @typedef {import("./live.js").Row} Row */

const PAUSE = 5000; // milliseconds
const MOST = 3; // events that are said one by one

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
    this.waiting.push(...Object.values(change.news?.changed ?? {}).map(eventWords));
    if ((this.uploads || this.waiting.length) && !this.timer) this.timer = window.setTimeout(() => this.say(), PAUSE);
  }

  say() {
    const said = this.waiting.slice(-MOST);
    if (this.waiting.length > MOST) said.unshift(plural(this.waiting.length - MOST, "other event"));
    if (this.uploads) said.push(`${plural(this.uploads, "upload")} arrived`);
    this.place.textContent = `${said.join(". ")}.`;
    [this.waiting, this.uploads, this.timer] = [[], 0, 0];
  }
}
