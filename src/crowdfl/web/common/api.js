// A console's calls to its own service. No token is kept here: the session is a cookie that scripts cannot read.
import { said, translated } from "./said.js";
import { t } from "./text.js";

const HEADER = "X-CrowdFL-Console"; // no form of another page can send it
const PROBLEM = "urn:crowdfl:problem:";

/** @typedef {{ type?: string, title?: string, detail?: string, errors?: { at: string, what: string }[], faults?: Record<string, string> }} Problem */

/** A refusal in words that the service made to be shown; `kind` is its code, `faults` are by field. */
export class Refusal extends Error {
  /** @param {number} status 0: nobody answered. @param {Problem | null} problem */
  constructor(status, problem) {
    super(wordsOf(problem ?? {}) || t("shell.status", { status }));
    this.status = status;
    this.kind = (problem?.type ?? "").replace(PROBLEM, "");
    this.faults = problem?.faults ?? {};
  }
}

/** The detail, if its sentence is known; else that of the code, and what only an operator may need, in English. @param {Problem} problem */
function wordsOf({ title = "", detail, errors = [] }) {
  const more = detail || errors.map(({ at, what }) => `${at}: ${what}`).join("; ");
  if (!more) return said(title);
  const code = translated(title); // in English there is none
  return translated(more) ?? (code ? [code, t("shell.detail", { words: more })].join("\n") : detail || `${title} ${more}`);
}

/** @typedef {{ body?: unknown, mark?: string, signal?: AbortSignal }} Options `mark`: what the page's header says. */

export class Api {
  /** @param {string} base What paths are below. @param {() => string} mark @param {() => string} away What to say when nobody answers. */
  constructor(base, mark, away) {
    this.base = base;
    this.mark = mark;
    this.away = away;
  }

  /** @param {string} method @param {string} path @param {Options} [options] @returns {Promise<Response>} One that is no refusal. */
  async fetch(method, path, { body, mark = this.mark(), signal } = {}) {
    const headers = { [HEADER]: mark, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
    const sent = { method, headers, credentials: /** @type {const} */ ("same-origin"), body: JSON.stringify(body), signal };
    const answer = await fetch(this.base + path, sent).catch((failure) => {
      if (signal?.aborted) throw failure;
      throw new Refusal(0, { detail: this.away() });
    });
    if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => null));
    return answer;
  }

  /** @param {string} method @param {string} path @param {Options} [options] @returns {Promise<any>} What the answer holds, or null. */
  async call(method, path, options) {
    const answer = await this.fetch(method, path, options);
    return answer.status === 204 ? null : answer.json();
  }
}
