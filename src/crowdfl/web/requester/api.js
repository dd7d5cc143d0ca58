// @ts-check
// The console's own API on this machine. The session is a cookie that no script reads, and a half that this origin alone keeps.

const HEADER = "X-CrowdFL-Console";
const HALF = "crowdfl-console-half";
const POLL_MS = 400;

/** @typedef {{ job: string, state: "running" | "done" | "failed", done: number, of: number, words: string, result: any, error: Told | null }} Job */
/** @typedef {{ error: string, detail: string, faults?: Record<string, string> }} Told */

/** What the console refused, in its words; `faults` by field. */
export class Refusal extends Error {
  /** @param {Told} told @param {number} status */
  constructor(told, status) {
    super(told.detail);
    this.name = told.error;
    this.faults = told.faults ?? {};
    this.status = status;
  }
}

/** @param {string} secret From the printed address: good once. */
export async function openSession(secret) {
  const { half } = await call("POST", "session", { secret });
  localStorage.setItem(HALF, half);
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, signal) => call("GET", path, undefined, signal);

/** @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const post = (path, body, signal) => call("POST", path, body, signal);

/** @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
async function call(method, path, body, signal) {
  const response = await ask(method, path, body, signal);
  return response.status === 204 ? null : response.json();
}

/** @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] */
async function ask(method, path, body, signal) {
  /** @type {Record<string, string>} */
  const headers = { [HEADER]: localStorage.getItem(HALF) ?? "-" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(`api/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (failure) {
    if (signal?.aborted) throw failure;
    throw new Refusal({ error: "NoAnswer", detail: "The console does not answer. Does `crowdfl task console` still run?" }, 0);
  }
  if (response.ok) return response;
  throw new Refusal(await told(response), response.status);
}

/** @param {Response} response @returns {Promise<Told>} */
async function told(response) {
  try {
    return await response.json();
  } catch {
    return { error: "Fault", detail: "The console failed: the terminal that it runs in says more." };
  }
}

/**
 * Follow an action to its end.
 * @param {Job} job @param {(job: Job) => void} onProgress @param {AbortSignal} signal @returns {Promise<any>} Its result.
 */
export async function follow(job, onProgress, signal) {
  let now = job;
  while (now.state === "running") {
    onProgress(now);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    signal.throwIfAborted();
    now = await get(`jobs/${job.job}`, signal);
  }
  if (now.state === "failed") throw new Refusal(now.error ?? { error: "Fault", detail: "The action failed." }, 0);
  return now.result;
}

/** Fetch a file with the session and hand it to the browser. @param {string} path @param {string} name */
export async function download(path, name) {
  const response = await ask("GET", path);
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
