// The console's own API on this machine: the session is a cookie that no script reads, and a half that this origin alone keeps.
import { Api, Refusal } from "../web/common/api.js";
import { h } from "../web/common/dom.js";
import { said } from "../web/common/said.js";
import { t } from "../web/common/text.js";

const HALF = "crowdfl-console-half";
const POLL_MS = 400;
const api = new Api("api/", () => localStorage.getItem(HALF) ?? "-", () => t("page.away"));

/** @typedef {{ job: string, state: "running" | "done" | "failed", done: number, of: number, words: string, result: any, error: import("../web/common/api.js").Problem | null }} Job */
/**
 * @typedef {object} Task
 * @property {string} task @property {string} purpose @property {string} profile @property {number} rounds
 * @property {number} parameters @property {number} budget @property {number} whole @property {number} least @property {number} most
 * @property {boolean} recruits Whether SP lets people in too.
 * @property {string} [currency] @property {string} step @property {string} consent @property {string[]} labels @property {string} folder
 */
/** @typedef {{ number: number, state: string, uploads: number, drawn: number | null, last_call: number }} Round */
/** @typedef {{ state: string, ended: import("../web/common/text.js").Ending | null, enrolled: number, listed?: number | null, dropped: number, claim_seconds_left: number | null, rounds: Round[] }} Status */
/** @typedef {{ name: string, amount: number, state: string }} Deposit */
/** @typedef {{ name: string, source: string, target: string, amount: number }} Movement */
/** @typedef {{ pending: number, paid_in: number, offered: number, earned: number | null, returned: number, attested: number | null, attested_complete: boolean | null, difference: number | null, sp_word: number, deposits: Deposit[], movements: Movement[] }} Report */
/** @typedef {{ status: Status, report: Report, waits: import("../web/common/parts.js").Wait[], unpaid: number, now: number }} Standing `unpaid`: what all rounds cost and nobody has announced. */

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (path, signal) => api.call("GET", path, { signal });

/** @param {string} path @param {AbortSignal} [signal] */
export const getText = async (path, signal) => (await api.fetch("GET", path, { signal })).text();

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
