// Whether the platform answers. A browser's word is not enough: it may call a page online that its service worker has served
// without a network.

const PATIENCE = 10_000; // milliseconds
const AGAIN = 15_000;
const NEVER_KEPT = "service-worker.js"; // of this page's files, the one that always comes from the platform

let reached = true;
/** @type {(() => void)[]} */
const listeners = [];
/** @type {number | undefined} */
let waiting;

export const isReached = () => reached;

/** @param {boolean} yes What somebody has just found out. */
export function noteReach(yes) {
  clearTimeout(waiting);
  if (!yes) waiting = setTimeout(probe, AGAIN);
  if (yes === reached) return;
  reached = yes;
  for (const listener of listeners) listener();
}

/** Find out now. */
export async function probe() {
  const asked = { method: "HEAD", cache: /** @type {const} */ ("no-store"), signal: AbortSignal.timeout(PATIENCE) };
  noteReach(navigator.onLine && (await fetch(NEVER_KEPT, asked).then(() => true, () => false)));
}

/** @param {() => void} listener Called now, and when it changes. */
export function watchReach(listener) {
  listeners.push(listener);
  listener(); // somebody may have found out already
  addEventListener("offline", () => noteReach(false));
  addEventListener("online", probe);
  if (!navigator.onLine || navigator.serviceWorker?.controller) void probe(); // else the page itself has just come from the platform
}
