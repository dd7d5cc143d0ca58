// The service worker: the page opens without a network, and a new version waits until the person takes it.

import { button, notice } from "../../web/common/parts.js";

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
