// News for screen readers, not more often than one can listen to.
import { t } from "../web/common/text.js";
import { eventText } from "./messages.js";

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
    this.waiting.push(...Object.values(change.news?.changed ?? {}).map(eventText));
    if ((this.uploads || this.waiting.length) && !this.timer) this.timer = window.setTimeout(() => this.say(), PAUSE);
  }

  say() {
    const news = this.waiting.slice(-MOST);
    if (this.waiting.length > MOST) news.unshift(t("news.others", { count: this.waiting.length - MOST }));
    if (this.uploads) news.push(t("news.uploads", { count: this.uploads }));
    this.place.textContent = `${news.join(". ")}.`;
    [this.waiting, this.uploads, this.timer] = [[], 0, 0];
  }
}
