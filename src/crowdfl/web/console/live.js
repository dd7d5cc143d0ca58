// What SP tells by server-sent events: a snapshot, then changes. After a break there is a snapshot again.

/** @typedef {Record<string, any>} Row */
/** @typedef {{ id: string, needs: readonly string[], draw: () => Node[] }} Panel Drawn again when a section that it `needs` changes. */
/** @typedef {"connecting" | "live" | "trouble" | "ended"} Link */

const RETRY = 5000; // milliseconds, after an answer that was a refusal: the browser itself tries again after a break only

export class Live {
  /**
   * @param {(names: string[], change: Record<string, { changed: Record<string, Row>, gone: string[] }> | null) => void} onChange
   *   The sections that are new; `change` is null after a snapshot.
   * @param {(link: Link) => void} onLink
   * @param {() => Promise<boolean>} hasSession
   */
  constructor(onChange, onLink, hasSession) {
    this.onChange = onChange;
    this.onLink = onLink;
    this.hasSession = hasSession;
    /** @type {Map<string, Map<string, Row>>} */
    this.sections = new Map();
    /** @type {EventSource | null} */
    this.source = null;
    this.open();
  }

  /** Rows of a section, in the server's order; new ones come last. @param {string} name @returns {Row[]} */
  rows(name) {
    return [...(this.sections.get(name)?.values() ?? [])];
  }

  /** @param {string} name @param {string} key @returns {Row | undefined} */
  row(name, key) {
    return this.sections.get(name)?.get(key);
  }

  open() {
    this.onLink("connecting");
    const source = this.source = new EventSource("events");
    source.addEventListener("open", () => this.onLink("live"));
    source.addEventListener("snapshot", (event) => this.replace(JSON.parse(event.data)));
    source.addEventListener("change", (event) => this.apply(JSON.parse(event.data)));
    source.addEventListener("trouble", () => this.onLink("trouble"));
    source.addEventListener("ended", () => this.end());
    source.addEventListener("error", () => this.broken(source));
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  /** @param {Record<string, Record<string, Row>>} found */
  replace(found) {
    this.onLink("live");
    this.sections = new Map(Object.entries(found).map(([name, rows]) => [name, new Map(Object.entries(rows))]));
    this.onChange([...this.sections.keys()], null);
  }

  /** @param {Record<string, { changed: Record<string, Row>, gone: string[] }>} change */
  apply(change) {
    for (const [name, { changed, gone }] of Object.entries(change)) {
      const rows = this.sections.get(name) ?? new Map();
      for (const key of gone) rows.delete(key);
      for (const [key, row] of Object.entries(changed)) rows.set(key, row);
      this.sections.set(name, rows);
    }
    this.onChange(Object.keys(change), change);
  }

  end() {
    this.close();
    this.onLink("ended");
  }

  /** @param {EventSource} source */
  async broken(source) {
    if (source !== this.source) return;
    this.onLink("connecting");
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    const here = await this.hasSession().catch(() => true);
    if (source !== this.source) return;
    if (here) setTimeout(() => source === this.source && this.open(), RETRY);
    else this.end();
  }
}
