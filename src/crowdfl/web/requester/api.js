// The console's own API on this machine: the session is a cookie that no script reads, and a half that this origin alone keeps.
import { Api, Refusal } from "../web/common/api.js";
import { h } from "../web/common/dom.js";
import { said } from "../web/common/said.js";
import { t } from "../web/common/text.js";

const HALF = "crowdfl-console-half";
const POLL_MS = 400;
const api = new Api("api/", () => localStorage.getItem(HALF) ?? "-", () => t("page.away"));

/** @typedef {{ job: string, state: "running" | "done" | "failed", done: number, of: number, words: string, result: any, error: import("../web/common/api.js").Problem | null }} Job */

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, signal) => api.call("GET", path, { signal });

/** @param {string} path @param {unknown} [body] @param {AbortSignal} [signal] @returns {Promise<any>} */
export const post = (path, body, signal) => api.call("POST", path, { body, signal });

/** @param {string} secret From the printed address: good once. */
export async function openSession(secret) {
  const { half } = await post("session", { secret });
  localStorage.setItem(HALF, half);
}

/**
 * Follow an action to its end, and show in a place how far it has come.
 * @param {Job} job @param {HTMLElement} place @param {AbortSignal} signal @returns {Promise<any>} Its result.
 */
export async function follow(job, place, signal) {
  let now = job;
  while (now.state === "running") {
    place.replaceChildren(progress(now));
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    signal.throwIfAborted();
    now = await get(`jobs/${job.job}`, signal);
  }
  if (now.state === "failed") throw new Refusal(0, now.error);
  place.replaceChildren();
  return now.result;
}

/** @param {Job} job */
function progress(job) {
  const known = job.of > 0 ? { max: job.of, value: job.done } : {};
  const words = said(job.words) || t("page.working");
  return h("div", { role: "status" }, h("p.soft", null, words), h("progress", { "aria-label": words, ...known }));
}

/** Fetch a file with the session and hand it to the browser. @param {string} path @param {string} name */
export async function download(path, name) {
  const response = await api.fetch("GET", path);
  const url = URL.createObjectURL(await response.blob());
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
