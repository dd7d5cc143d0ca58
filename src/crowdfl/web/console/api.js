// Calls to SP, as the console's own page: no token is kept here, the session is a cookie that scripts cannot read.

/** Who made the page call: a session lasts while the operator does something, not while a page is open. */
const HEADER = "X-CrowdFL-Console";

/** A refusal in words that the server made to be shown. */
export class Refused extends Error {
  /** @param {number} status @param {string} words */
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

/**
 * @param {string} method
 * @param {string} path Below /console/.
 * @param {object | null} [body]
 * @param {"operator" | "page"} [by]
 * @returns {Promise<any>} What the answer holds, or null.
 */
export async function call(method, path, body = null, by = "operator") {
  const headers = { [HEADER]: by, ...(body ? { "Content-Type": "application/json" } : {}) };
  const sent = { method, headers, credentials: /** @type {const} */ ("same-origin"), body: body && JSON.stringify(body) };
  const answer = await fetch(path, sent).catch(() => {
    throw new Refused(0, "SP cannot be reached: look whether it runs, and try again");
  });
  const text = await answer.text();
  const found = text ? parsed(text) : null;
  if (!answer.ok) throw new Refused(answer.status, words(answer.status, found));
  return found;
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** @param {number} status @param {any} problem */
function words(status, problem) {
  const wrong = (problem?.errors ?? []).map((/** @type {any} */ one) => `${one.at}: ${one.what}`).join("; ");
  return problem?.detail || [problem?.title, wrong].filter(Boolean).join(" ") || `the server answered with status ${status}`;
}

/** Whose session this is, or null. @returns {Promise<{ name: string, host: string, left: number } | null>} */
export async function session() {
  try {
    return await call("GET", "session", null, "page");
  } catch (refusal) {
    if (refusal instanceof Refused && refusal.status === 401) return null;
    throw refusal;
  }
}

/** @param {string} task */
export const taskPath = (task) => `tasks/${encodeURIComponent(task)}`;
/** @param {{ task: string, name: string }} one */
export const depositPath = (one) => `${taskPath(one.task)}/deposits/${encodeURIComponent(one.name)}`;
/** @param {{ task: string, who: string }} one */
export const paymentPath = (one) => `${taskPath(one.task)}/payments/${encodeURIComponent(one.who)}`;
