// Reminders by Web Push, where the owner agrees: the browser's subscription, and what the service worker says when one comes.
//
// A message says "opened" or "closing" and nothing else. The worker has no catalogue: the page keeps the sentences for it, in the
// reader's language, where it looks (service-worker.js).

import { base64url, fromBase64url } from "../protocol/bytes.js";
import { UnsupportedTask } from "../protocol/errors.js";

/** @typedef {Record<"opened" | "closing", {title: string, body: string}>} Words */
/** @typedef {"on" | "off" | "denied" | "needs-install" | "unsupported"} ReminderState */
/** @typedef {{endpoint: string, p256dh: string, auth: string}} Subscription */

const KEPT = "crowdfl words"; // a cache of one entry, as in service-worker.js
const ENTRY = "words.json";

/** @returns {Promise<ReminderState>} What this browser allows now; "needs-install": on an iPhone, once it is on the home screen. */
export async function reminderState() {
  const { navigator, Notification, PushManager } = globalThis;
  if (!PushManager || !Notification || !navigator.serviceWorker) {
    const apple = "standalone" in (navigator ?? {});
    return apple && !(/** @type {any} */ (navigator).standalone) ? "needs-install" : "unsupported";
  }
  if (Notification.permission === "denied") return "denied";
  const registration = await navigator.serviceWorker.getRegistration();
  return (await registration?.pushManager.getSubscription()) ? "on" : "off";
}

/** What the worker will say. @param {Words} words */
export async function keepWords(words) {
  const cache = await caches.open(KEPT);
  await cache.put(ENTRY, new Response(JSON.stringify(words), { headers: { "Content-Type": "application/json" } }));
}

/**
 * Ask the owner, then the browser; from a tap. `null`: the owner does not want to.
 * @param {string} platformKey The platform's, in base64url. @returns {Promise<Subscription | null>}
 */
export async function subscribe(platformKey) {
  if ((await Notification.requestPermission()) !== "granted") return null;
  const registration = await navigator.serviceWorker.ready;
  const key = fromBase64url(platformKey);
  const before = await registration.pushManager.getSubscription();
  const other = before && base64url(new Uint8Array(before.options.applicationServerKey ?? new ArrayBuffer(0))) !== platformKey;
  if (other) await before.unsubscribe(); // of a platform that was set up anew
  const made = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = made.toJSON();
  if (!endpoint || !keys?.p256dh || !keys.auth) throw new UnsupportedTask("this browser's reminders cannot be sent to");
  return { endpoint, p256dh: keys.p256dh, auth: keys.auth };
}

/** The browser's own, which all tasks of this platform share. */
export async function unsubscribe() {
  const registration = await navigator.serviceWorker?.getRegistration();
  await (await registration?.pushManager.getSubscription())?.unsubscribe();
}
