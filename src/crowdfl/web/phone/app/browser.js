// What this page asks of a browser: keys and storage, to be installed, and to open without a network.
import { button, notice } from "../../web/common/parts.js";
import { t } from "../../web/common/text.js";

class BrowserTooOld extends Error {
  name = "BrowserTooOld";
}

/** @param {string} algorithm @param {KeyUsage[]} usages */
async function canMake(algorithm, usages) {
  try {
    await crypto.subtle.generateKey({ name: algorithm }, false, usages);
    return true;
  } catch {
    return false;
  }
}

/** Throws what is missing, with what to do. */
export async function requireBrowser() {
  if (!globalThis.isSecureContext) {
    throw new BrowserTooOld(t("browser.plain"));
  }
  if (!globalThis.indexedDB) throw new BrowserTooOld(t("browser.noStorage"));
  const keys = await Promise.all([canMake("Ed25519", ["sign", "verify"]), canMake("X25519", ["deriveBits"])]);
  if (!keys.every(Boolean)) {
    throw new BrowserTooOld(t("browser.old"));
  }
}

/** What apps call themselves whose own browsers keep nothing, or lack sensors. */
const APPS = {
  Facebook: /\bFBA[NV]\b|FB_IAB/, Instagram: /\bInstagram\b/, WhatsApp: /\bWhatsApp\b/, WeChat: /\bMicroMessenger\b/, TikTok: /musical_ly|BytedanceWebview|TikTok/,
  LinkedIn: /\bLinkedInApp\b/, Snapchat: /\bSnapchat\b/, LINE: /\bLine\//, Google: /\bGSA\//, X: /\bTwitter\b/, Telegram: /\bTelegram\b/, "": /; wv\)/,
};

/** The app whose own browser shows this page, "" for one that does not say its name; null in a browser. @param {string} agent */
export const appOf = (agent) => Object.entries(APPS).find(([, mark]) => mark.test(agent))?.[0] ?? null;

/**
 * A link by which Android opens another one in the phone's browser, with its fragment: what is behind the last # is for Android.
 * @param {string} link @param {string} agent @returns {string | null} null elsewhere.
 */
export function wayOut(link, agent) {
  const { protocol, host, pathname, hash } = new URL(link);
  return /Android/.test(agent) ? `intent://${host}${pathname}${hash}#Intent;scheme=${protocol.slice(0, -1)};action=android.intent.action.VIEW;end` : null;
}

/** @typedef {Event & { prompt(): Promise<unknown> }} InstallEvent */

/** @type {InstallEvent | null} */
let offered = null;

globalThis.addEventListener?.("beforeinstallprompt", (event) => {
  event.preventDefault(); // asked when the person wants to, not in between
  offered = /** @type {InstallEvent} */ (event);
});
globalThis.addEventListener?.("appinstalled", () => (offered = null));

export const canInstall = () => offered !== null;
export const isInstalled = () => matchMedia("(display-mode: standalone)").matches;

export async function install() {
  const event = offered;
  offered = null;
  await event?.prompt();
}

/** @param {HTMLElement} place Where a new version is offered. */
export async function keepForOffline(place) {
  if (!("serviceWorker" in navigator)) return;
  try {
    const registration = await navigator.serviceWorker.register("service-worker.js", { updateViaCache: "none" });
    watch(registration, place);
  } catch {
    // Without it the page works as long as there is a network; private windows may refuse it.
  }
}

/** Forget the page itself: its files, the worker that serves them, what a reminder says, and the language. Whoever opens it again gets it from the platform. */
export async function forgetOffline() {
  const workers = (await navigator.serviceWorker?.getRegistrations()) ?? [];
  const own = workers.filter(({ scope }) => scope === new URL("./", location.href).href);
  await Promise.all(own.map((worker) => worker.unregister())); // first: it would keep the files again
  const names = (await globalThis.caches?.keys()) ?? [];
  await Promise.all(names.filter((name) => name.startsWith("crowdfl ")).map((name) => caches.delete(name)));
  for (const name of Object.keys(localStorage).filter((one) => one.startsWith("crowdfl"))) localStorage.removeItem(name);
}

/** @typedef {{ running: string, newest: string }} Versions What a worker serves, and its own: digests of all files. */

/** What serves this page; null where nothing does, as in a private window or at the first visit. @returns {Promise<Versions | null>} */
export async function versions() {
  const worker = globalThis.navigator?.serviceWorker?.controller;
  return worker ? asked(worker, "which") : null;
}

/** @param {ServiceWorker} worker @param {"which" | "accept"} message @returns {Promise<Versions>} */
function asked(worker, message) {
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise((resolve) => { port1.onmessage = ({ data }) => resolve(data); });
  worker.postMessage(message, [port2]);
  return answer;
}

/** A version that its owner has not accepted: of a worker that waits, or of the one that serves the accepted version meanwhile. @param {ServiceWorkerRegistration} registration @param {HTMLElement} place */
function watch(registration, place) {
  const offer = async () => {
    const { controller } = navigator.serviceWorker;
    if (!controller) return;
    if (registration.waiting) return show(registration.waiting, place);
    const { running, newest } = await asked(controller, "which");
    if (running !== newest) show(controller, place);
  };
  void offer();
  registration.addEventListener("updatefound", () =>
    registration.installing?.addEventListener("statechange", offer));
}

/** @param {ServiceWorker} worker @param {HTMLElement} place */
function show(worker, place) {
  const box = notice("good", t("browser.newVersion"));
  box.append(button(t("browser.useIt"), async () => {
    navigator.serviceWorker.addEventListener("controllerchange", () => location.reload(), { once: true }); // by one that has waited
    const already = worker.state === "activated";
    await asked(worker, "accept");
    if (already) location.reload();
  }));
  place.replaceChildren(box);
}
