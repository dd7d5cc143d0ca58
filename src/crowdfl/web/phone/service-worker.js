// Keeps the page on the phone, so that it opens without a network.
//
// The files of one version are kept together and served from there: a page is never made of two versions. Each is compared with its
// hash when it is fetched, so that a half-finished update of the server, or a hotel's login page, is not kept. A new version is fetched
// when this file changes, and takes over once no page of the old one is open, or its reader says so. Nothing else is touched:
// answers of the platform (/v1/) are never kept, and requests to others are not seen here.

/** @type {[string, [string, string][]]} This version; every file's address, and the hash of what is there. web/pages.py writes them. */
const [VERSION, FILES] = ["", []];
const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const PATIENCE = 3000; // milliseconds
const NAMED = "crowdfl page ";
const CACHE = `${NAMED}${VERSION}`;
const addresses = new Set(FILES.map(([file]) => addressOf(file)));

/** @param {string} file @returns {string} */
function addressOf(file) {
  return new URL(file, worker.location.href).href;
}

async function fetchAll() {
  const cache = await caches.open(CACHE);
  await Promise.all(FILES.map(async ([file, integrity]) => {
    const answer = await fetch(addressOf(file), { integrity, cache: "no-cache", redirect: "error" });
    if (!answer.ok) throw new Error(`${file} was not served`);
    await cache.put(addressOf(file), answer);
  }));
}

async function forgetOthers() {
  const names = await caches.keys();
  await Promise.all(names.filter((name) => name.startsWith(NAMED) && name !== CACHE).map((name) => caches.delete(name)));
  await worker.clients.claim();
}

/** @param {string} address */
async function kept(address) {
  const found = await caches.match(address, { cacheName: CACHE }); // unlike `open`, this makes none where all was forgotten
  return found ?? fetch(address); // a browser may have cleared it
}

/**
 * The page itself is asked for each time: its headers say whom it may call, and that may have changed. Its text must be the kept one.
 * @param {string} address
 */
async function page(address) {
  const [, integrity] = FILES[0];
  try {
    const answer = await fetch(address, { integrity, cache: "no-cache", signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) return kept(address);
    await (await caches.open(CACHE)).put(address, answer.clone());
    return answer;
  } catch {
    return kept(address);
  }
}

worker.addEventListener("install", (event) => event.waitUntil(fetchAll()));
worker.addEventListener("activate", (event) => event.waitUntil(forgetOthers()));
worker.addEventListener("message", (event) => {
  if (event.data === "take over") void worker.skipWaiting();
});
/** What a reminder says, as the page has kept it in its reader's language (agent/reminders.js). @param {string} message */
async function remind(message) {
  const found = await caches.match("words.json", { cacheName: "crowdfl words" });
  const words = found ? await found.json() : {};
  const { title = "CrowdFL", body = "" } = words[message] ?? {};
  await worker.registration.showNotification(title, { body, tag: "round", icon: addressOf("icons/icon-192.png") });
}

async function openPage() {
  const [open] = await worker.clients.matchAll({ type: "window" });
  await (open ? open.focus() : worker.clients.openWindow(addressOf("./")));
}

worker.addEventListener("push", (event) => event.waitUntil(remind(event.data?.text() ?? "")));
worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openPage());
});
worker.addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  const address = origin + pathname;
  if (event.request.method !== "GET" || !addresses.has(address)) return;
  event.respondWith(event.request.mode === "navigate" ? page(addressOf("./")) : kept(address));
});
