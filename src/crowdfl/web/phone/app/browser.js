// What this page asks of a browser: keys and storage, to be installed, and to open without a network.
import { button, notice } from "../../web/common/parts.js";

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
    throw new BrowserTooOld("This page was opened without encryption, and a browser then lets it make no keys. Open it by an address that begins with https.");
  }
  if (!globalThis.indexedDB) throw new BrowserTooOld("This browser stores nothing for pages. Leave the private window, or use another browser.");
  const keys = await Promise.all([canMake("Ed25519", ["sign", "verify"]), canMake("X25519", ["deriveBits"])]);
  if (!keys.every(Boolean)) {
    throw new BrowserTooOld("This browser is too old to make the keys that are needed. Update it: Chrome 137, Safari 18.4, Firefox 130 or newer.");
  }
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

/** Forget the page itself: its files, and the worker that serves them. Whoever opens it again gets it from the platform. */
export async function forgetOffline() {
  const workers = (await navigator.serviceWorker?.getRegistrations()) ?? [];
  const own = workers.filter(({ scope }) => scope === new URL("./", location.href).href);
  await Promise.all(own.map((worker) => worker.unregister())); // first: it would keep the files again
  const names = (await globalThis.caches?.keys()) ?? [];
  await Promise.all(names.filter((name) => name.startsWith("crowdfl page ")).map((name) => caches.delete(name)));
}

/** @param {ServiceWorkerRegistration} registration @param {HTMLElement} place */
function watch(registration, place) {
  const offer = () => {
    if (registration.waiting && navigator.serviceWorker.controller) show(registration.waiting, place);
  };
  offer();
  registration.addEventListener("updatefound", () =>
    registration.installing?.addEventListener("statechange", offer));
}

/** @param {ServiceWorker} worker @param {HTMLElement} place */
function show(worker, place) {
  const box = notice("good", "A new version of this page is here.");
  box.append(button("Use it", () => {
    navigator.serviceWorker.addEventListener("controllerchange", () => location.reload(), { once: true });
    worker.postMessage("take over");
  }));
  place.replaceChildren(box);
}
