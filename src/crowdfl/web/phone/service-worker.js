// Keeps the page on the phone, so that it opens without a network.
//
// The files of one version are kept together and served from there: a page is never made of two versions. Each is compared with its
// hash when it is fetched, so that a half-finished update of the server, or a hotel's login page, is not kept. A new version is fetched
// when this file changes, and takes over once no page of the old one is open, or its reader says so. Nothing else is touched:
// answers of the platform (/v1/) are never kept, and requests to others are not seen here.

/** @type {[string, string][]} Addresses, and the hashes of what is there; tools/phone_shell.py writes them. */
const FILES = [
  ["./", "sha256-vbf2tIAQZ/SI/4MfmCuLerZzmVED21txKtM9Am9Wzgk="],
  ["app/about.js", "sha256-hxN31zPZg5Qg96FbRnZYF2brjbhHv3EeS4K/xhnCl2M="],
  ["app/install.js", "sha256-BnXXHsHz96BSbkP22K0PJrlcWQntHFRcnCUJin7mXd8="],
  ["app/link.js", "sha256-ohK8LIsqwtWpN8+Ff7h3vTO6ZSDXA+GsEhUfH3Pv61E="],
  ["app/main.js", "sha256-L5ybmk+RWEDq+vTkZoZFgXXHowcWeSKO3f+pjO9KIsE="],
  ["app/needs.js", "sha256-3MSe498KxWLOh0GADqn0qg14tK//YGUQs96iBGSGkXU="],
  ["app/offline.js", "sha256-EZTYtrwLITRWShcAI5ZSrbWW0TFKb57XuNdFc2CPZtA="],
  ["app/parts.js", "sha256-ciLK7dvdCmnPaOsYrYS8FJnK1L86ROOsZtSOv3MZKew="],
  ["app/picture.js", "sha256-kVDP4zyV3Qm1kWud7iGQjBK7Ci757pUycCvRZi1XoH4="],
  ["app/router.js", "sha256-l2uAvAq19w4+Bi00aikCiqF1TeeDZLg8SF64b3bGjsU="],
  ["app/sensors.js", "sha256-Qnvj2YEoOONNQwdec89SWpW59H0SnBHp2/0U4y8vdyg="],
  ["app/session.js", "sha256-0sQjbGkGfCki6I40hY1LCXpBc+YyJIaTH65XI2ggkXM="],
  ["app/trace.js", "sha256-Iwf5fqP6GIb2k+tPqIAYKYJnmfgY65jUVdwQZktlIug="],
  ["app/types.js", "sha256-OrSnoVXEZxMB13DPGtvHDVhyqaJ8VZLdLEPuq/TzFuw="],
  ["app/views/about.js", "sha256-76GDXGcyfDeyDYvWz26ZpNiQgTUpX9AFdllHX73juiA="],
  ["app/views/campaigns.js", "sha256-3IWHfuVN2JQ3scoNKkK5a8olkH1qo+f+ksSZ49Wed/o="],
  ["app/views/device.js", "sha256-a6P6vktI6oRwbxj7HSTqdgm1NftrSTlynsXMx5TnSOQ="],
  ["app/views/record.js", "sha256-7HVLvBfOleyGIi2tRhW2PUIu5WyFkbbUbVfUyG3a7bc="],
  ["app/views/rewards.js", "sha256-L4zmpexaA07IUFQCuTFDoqvdAECVVpySkcw0/k3Kfk8="],
  ["app/views/rounds.js", "sha256-b8XXf4f+7auLBPbI7JMHEgLOnfoxKsYNQE0rUw2tEiE="],
  ["app/views/settings.js", "sha256-osw3T7+L6B42AyZ43cENV4ozuLmSB+wN8EJLfoS2ifE="],
  ["app/words.js", "sha256-PFTYOBGFSScbd5fAUIQNbBBGrV4WkbaodJyOAohRHNs="],
  ["icons/icon-192.png", "sha256-GQMvtA9hzEQXpFktno2fPfO9LfhqGQ5HURwfJ9GG7EI="],
  ["icons/icon-512.png", "sha256-tGrjMHeK7tDQ3lR07XVfVCHP/m1oDh4a2e5mja2MA/Q="],
  ["icons/maskable-512.png", "sha256-x9XHk9b5J0wdEhV2+XX6Jya1syMcdiVhsejSexe0z2o="],
  ["index.html", "sha256-vbf2tIAQZ/SI/4MfmCuLerZzmVED21txKtM9Am9Wzgk="],
  ["manifest.webmanifest", "sha256-N8WN8Lqb2mWaCk4llDJSfTGzbE/Zzgl4zT/fDws4FT8="],
  ["phone.css", "sha256-89noWimTkqMDZjzlOnrFdEfBFmGg4uozUybFWzipgUY="],
  ["../web/common/dom.js", "sha256-SPfSzxfPPHDp+8eE8Ydp99Ofd4LnioZkSMYPWrGpXy8="],
  ["../web/common/format.js", "sha256-Mme7tuGvIAeI+kh2D16wv/7uemIweVIK1W43rMzkqjk="],
  ["../web/common/plot.js", "sha256-cYcv9wEtSBQ5Z0Tg9VfU0rcE5MFY197F7iTIRfsSbf8="],
  ["../web/common/style.css", "sha256-M0WM3GlyylbEyMKUHyJ8jfWXQ1LZ1EPqMYDgSqADU5I="],
  ["../web/vendor/hpke.js", "sha256-h35eAyiGJMAG2znoJpptxQzqGpPHELNFRIH/c4MojaY="],
  ["../web/vendor/uplot.css", "sha256-j6zv+mp7QMFsh4RbzOnAVNFIInNIDaMNnsmk67IQkk8="],
  ["../web/vendor/uplot.js", "sha256-24RuSne/74vTXy1w7xU9PgjImzS+542YbyMY0PaX2mc="],
];
const VERSION = "35ed0268c688467c";

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
  const cache = await caches.open(CACHE);
  return (await cache.match(address)) ?? fetch(address); // a browser may have cleared it
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
worker.addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  const address = origin + pathname;
  if (event.request.method !== "GET" || !addresses.has(address)) return;
  event.respondWith(event.request.mode === "navigate" ? page(addressOf("./")) : kept(address));
});
