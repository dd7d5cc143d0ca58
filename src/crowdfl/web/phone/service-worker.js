// Keeps the page on the phone, so that it opens without a network, in the version that its owner has accepted.
//
// The files of one version are kept together and served from there: a page is never made of two versions. Each is compared with its
// hash when it is fetched, so that a half-finished update of the server, or a hotel's login page, is not kept. A new version is fetched
// when this file changes. A browser starts the new worker by itself once no page of the old one is open: it then goes on serving the
// version that was accepted, until its owner says "Use it". The first one is accepted by being opened. Nothing else is touched:
// answers of the platform (/v1/) are never kept, and requests to others are not seen here.

/** @type {[string, [string, string][]]} This worker's version; every file's address, and the hash of what is there. web/pages.py writes them. */
const [VERSION, FILES] = ["", []];
const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const PATIENCE = 3000; // milliseconds
const NAMED = "crowdfl page ";
const ACCEPTED = "crowdfl version"; // a cache of one entry: the version that is served, as FILES has it
const ENTRY = "version.json";
const PLACES = ["./", "../web/"].map(addressOf);

/** @typedef {{ version: string, hashes: Map<string, string> }} Version Hashes by address. */

/** @param {string} file @returns {string} */
function addressOf(file) {
  return new URL(file, worker.location.href).href;
}

/** @param {[string, [string, string][]]} list @returns {Version} */
const versionOf = ([version, files]) => ({ version, hashes: new Map(files.map(([file, integrity]) => [addressOf(file), integrity])) });

/** @type {Promise<Version> | null} Looked up once. */
let served = null;

/** What its owner has accepted, if all of it is still there. @returns {Promise<Version>} */
async function lookUp() {
  const found = await caches.match(ENTRY, { cacheName: ACCEPTED }); // unlike `open`, this makes none where all was forgotten
  const accepted = found ? versionOf(await found.json()) : null;
  return accepted && (await caches.has(NAMED + accepted.version)) ? accepted : versionOf([VERSION, FILES]);
}

const running = () => (served ??= lookUp());

/** From now on this worker's version is served. */
async function accept() {
  await (await caches.open(ACCEPTED)).put(ENTRY, new Response(JSON.stringify([VERSION, FILES])));
  served = Promise.resolve(versionOf([VERSION, FILES]));
}

async function fetchAll() {
  const cache = await caches.open(NAMED + VERSION);
  await Promise.all(FILES.map(async ([file, integrity]) => {
    const answer = await fetch(addressOf(file), { integrity, cache: "no-cache", redirect: "error" });
    if (!answer.ok) throw new Error(`${file} was not served`);
    await cache.put(addressOf(file), answer);
  }));
}

async function forgetOthers() {
  const [{ version }, names] = [await running(), await caches.keys()];
  const needed = [NAMED + version, NAMED + VERSION];
  await Promise.all(names.filter((name) => name.startsWith(NAMED) && !needed.includes(name)).map((name) => caches.delete(name)));
}

async function takeOver() {
  served = null; // it may have been looked up before the owner said something
  if ((await running()).version === VERSION) await accept();
  await forgetOthers();
  await worker.clients.claim();
}

/** @param {string} address @param {Version} from */
async function kept(address, { version, hashes }) {
  const found = await caches.match(address, { cacheName: NAMED + version });
  return found ?? fetch(address, { integrity: hashes.get(address) }); // a browser may have cleared it
}

/**
 * The page itself is asked for each time: its headers say whom it may call, and that may have changed. Its text must be the kept one.
 * @param {Version} from
 */
async function page(from) {
  const address = addressOf("./");
  try {
    const answer = await fetch(address, { integrity: from.hashes.get(address), cache: "no-cache", signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) return kept(address, from);
    await (await caches.open(NAMED + from.version)).put(address, answer.clone());
    return answer;
  } catch {
    return kept(address, from);
  }
}

/** What no version has is asked for where it is. @param {Request} request @param {string} address */
async function answerTo(request, address) {
  const from = await running();
  if (!from.hashes.has(address)) return fetch(request);
  return request.mode === "navigate" ? page(from) : kept(address, from);
}

worker.addEventListener("install", (event) => event.waitUntil(fetchAll()));
worker.addEventListener("activate", (event) => event.waitUntil(takeOver()));
/** The page asks which version is served, or its owner accepts this worker's. */
worker.addEventListener("message", (event) => event.waitUntil((async () => {
  if (event.data === "accept") {
    await accept();
    await (worker.registration.waiting ? worker.skipWaiting() : forgetOthers());
  }
  event.ports[0]?.postMessage({ running: (await running()).version, newest: VERSION });
})()));
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
  if (event.request.method !== "GET" || !PLACES.some((place) => address.startsWith(place))) return;
  event.respondWith(answerTo(event.request, address));
});
