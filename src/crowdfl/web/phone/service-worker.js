// Keeps the page on the phone, so that it opens without a network.
//
// The files of one version are kept together and served from there: a page is never made of two versions. Each is compared with its
// hash when it is fetched, so that a half-finished update of the server, or a hotel's login page, is not kept. A new version is fetched
// when this file changes, and takes over once no page of the old one is open, or its reader says so. Nothing else is touched:
// answers of the platform (/v1/) are never kept, and requests to others are not seen here.

/** @type {[string, string][]} Addresses, and the hashes of what is there; tools/phone_shell.py writes them. */
const FILES = [
  ["./", "sha256-PCl8Ulaqs9ImEPwZWzNj9MAz0k+smtYVSsb8huFKFcM="],
  ["agent/affairs.js", "sha256-+u6ibFaiNjwJtgnpOQi/+rP0ura/I2DMs7wPdV9ffxw="],
  ["agent/agent.js", "sha256-uiyHZ2TECoTEbths7/hC3dtPnMiAHLpOBnzZLr0WKqM="],
  ["agent/api.js", "sha256-w3QQqK2ropOBeyuyZ3DU98SA8roRm838raOoILtgV4E="],
  ["agent/claiming.js", "sha256-oquWjnhta90bV4l+D/G/CzGi6z/LfdXO7BapuoxBL1k="],
  ["agent/errors.js", "sha256-mZ1VAbc8LAiCvF+FOekV83L5KGVCIajqFG6U9VQrFQg="],
  ["agent/holdings.js", "sha256-Gdpy9HmkIDQPTJQhx+UeiZDRHqqDc4yJWTEG53xY4Ow="],
  ["agent/model.js", "sha256-yaj48n8dQ6uJwgOXF9VtIUaYbAM3ZLFhRJZZlbICQoE="],
  ["agent/participant.js", "sha256-AnH8GWPijC7lYl/U9TXMMjv25pFgaDn9cKBpWuzIWqI="],
  ["agent/protocol.js", "sha256-c3+RyBnE0vAH/SOcQODGBB+nGTHRra7lhaaR1xv3qEU="],
  ["agent/retry.js", "sha256-BhorlZtBCUR0AArTu2ozE1HVXk93NLu72LuFL1I8hjM="],
  ["agent/rewards.js", "sha256-YcJjg86JFiQvQ9Qmzp4W2qiLr6cSFwoDxXry45nXIVk="],
  ["agent/state.js", "sha256-vNEVuWxYT7VuYtTrFG9uIV5Dj4c6r2N6fxtTkgHAggE="],
  ["agent/status.js", "sha256-ufVoOvaKjV111LTHCod8xPcsYbr8OvoudEGDkNyQTzw="],
  ["agent/store.js", "sha256-0Xnbq6eF7RW/2YDgu06cMSczomAZr9JKlaSSOo5fe/M="],
  ["agent/tables.js", "sha256-nXSVFi5YsfpD+J4j9VRNP1SjeFeJNEVaQ8s8xCwRhSY="],
  ["agent/tabs.js", "sha256-JEUGiRksbw3tNEDIOWN9OtoqkHqbueLYmeSWDyuyn/U="],
  ["agent/transport.js", "sha256-NQqLlIbtsy69ub2aRi3b8gOjFfYq5er8B7Ee/I0DQK8="],
  ["agent/uploads.js", "sha256-L+KOyqUW66dP8CChsUs5iC2O46UFvZH8vLUBDAau4qc="],
  ["app/about.js", "sha256-vTgJezW2X60YVEaoeeEwFKa/j6SoeFRmEzyKrsvbSPI="],
  ["app/accepting.js", "sha256-G0i9zFVxsnPSr7Ng8I3H4PVhKUUdnNK3ICktaU8ER/k="],
  ["app/disclosures.js", "sha256-NuQh4nyhtnhBIwoKwo6iUgrVLy7zfteZVMSql4mnbuk="],
  ["app/enough.js", "sha256-iDD9ego3W1lUIu9KL6adnej5TYAaVHjBRFNA5gQ4DM0="],
  ["app/imports.js", "sha256-FBKeIma6FBd7kMj05QbB+yPskb3rxKm8qQVx2aj6qGo="],
  ["app/install.js", "sha256-BnXXHsHz96BSbkP22K0PJrlcWQntHFRcnCUJin7mXd8="],
  ["app/link.js", "sha256-t0L0tFI22cr0M+mEDLqyVQRiLxFX1c5nzHuPyMfRJVU="],
  ["app/main.js", "sha256-8buKG6VN9+MllEB/OSrIxrwhCk/lN8hY/bl9Mub1rNg="],
  ["app/model.js", "sha256-0IOQBbrzzpme2xtmsbEgdvQBuYUkUjI7al1mSBKC+7I="],
  ["app/needs.js", "sha256-3MSe498KxWLOh0GADqn0qg14tK//YGUQs96iBGSGkXU="],
  ["app/offline.js", "sha256-cm/zY7YyCULTXruZLz/Dzy8nowPO6Wjw4/S1Exi5SmI="],
  ["app/parts.js", "sha256-ciLK7dvdCmnPaOsYrYS8FJnK1L86ROOsZtSOv3MZKew="],
  ["app/picture.js", "sha256-dLpEhyYaYnxma4rPryOEDNf0v9Loor/GyQChbemK83M="],
  ["app/router.js", "sha256-l2uAvAq19w4+Bi00aikCiqF1TeeDZLg8SF64b3bGjsU="],
  ["app/sensors.js", "sha256-rg0kpql7fN+8y/4Fvh+DFbL4EnBGCZquiufUpSdLIa0="],
  ["app/session.js", "sha256-rvAGGAjuOvZOc7njdBLYCQTr7z7ou4/OxJ4yZanqy8c="],
  ["app/trace.js", "sha256-Iwf5fqP6GIb2k+tPqIAYKYJnmfgY65jUVdwQZktlIug="],
  ["app/trainer.js", "sha256-bhIyKSa9QtVctm7M+vDYVe64+mJH30C7X4n+iIZQhtY="],
  ["app/types.js", "sha256-jEhVUkUnI/ovg1eZkemIT42spqaNjm2VE9UBze4Zf/M="],
  ["app/views/about.js", "sha256-1+y88KW2MgrUSwL0DaBjPFB/uMN/AQNths86fLXcUuQ="],
  ["app/views/campaigns.js", "sha256-KrQFgnFasUv1W1/ns3vs2uvL7ZaMtxBMDosrhPhMlb8="],
  ["app/views/device.js", "sha256-a6P6vktI6oRwbxj7HSTqdgm1NftrSTlynsXMx5TnSOQ="],
  ["app/views/record.js", "sha256-SVQt7DDGIIfGabR7w4CYDW2LYadabE6BAGti8CA2+eo="],
  ["app/views/rewards.js", "sha256-EIPe6shwjDa3LAItrTGWp/Uk9sm2hrLScDTWWw5xl8c="],
  ["app/views/rounds.js", "sha256-cwJeyphhW1oBi0QWEokbOblg3IEanTws+z2vJYNHqM8="],
  ["app/views/settings.js", "sha256-eBja+WWtwguanbt3HageiyBK1bfMeXSGs+r+M+8uTqA="],
  ["app/words.js", "sha256-hiKmYQxNr5NbEgLGPkqJAA0TvO8ZeCxXfTbWMEhmqo4="],
  ["icons/icon-192.png", "sha256-GQMvtA9hzEQXpFktno2fPfO9LfhqGQ5HURwfJ9GG7EI="],
  ["icons/icon-512.png", "sha256-tGrjMHeK7tDQ3lR07XVfVCHP/m1oDh4a2e5mja2MA/Q="],
  ["icons/maskable-512.png", "sha256-x9XHk9b5J0wdEhV2+XX6Jya1syMcdiVhsejSexe0z2o="],
  ["index.html", "sha256-PCl8Ulaqs9ImEPwZWzNj9MAz0k+smtYVSsb8huFKFcM="],
  ["learning/client.js", "sha256-WL+fNOyBeINrsG/EQnG4e/WBkLctG+qyP1udntVTxoQ="],
  ["learning/csv-text.js", "sha256-FXxlSilb4aDlyUoMkyX4GY1wARahZYzLJII7CxXJVtg="],
  ["learning/csv.js", "sha256-RhXbY8LQc+7CY/WoQKAWvf6S9UQ8p2lnaIoNWaH18G0="],
  ["learning/features.js", "sha256-nCnDNOHYHQTk0VKsfbKMoyEUSb+0C2vZSG1FEZRReXk="],
  ["learning/jobs.js", "sha256-UKHt6vkPVdhuZib//Z1wnDND5GZkyrlO1pwPi4blHDQ="],
  ["learning/layers.js", "sha256-aYjOh47ewUnA4Z2iOQ3QSY4lx6l+UkrZbJgT0i5Br10="],
  ["learning/learners.js", "sha256-i+3ZDZ1WsY7sWMIiLk+NEOcB7YypjswwuI95zohII7c="],
  ["learning/network.js", "sha256-M/Q1ehlBsSTwnY6li5QY9iyXg9eH8Yi9tZpquqwyWnE="],
  ["learning/networks.js", "sha256-uR65HQWBsUpkaXRWGINNclJDAYR/PQq6witC8OkZIwE="],
  ["learning/random.js", "sha256-h7Ek9IN8vqAHfMXiwNstJpM2iHTRSuFYht5qzdadRGM="],
  ["learning/recipe.js", "sha256-ifX0zHKrQO6EiBxT4UdlxkFxIQEGPX/eLZHlDWkpHVM="],
  ["learning/recordings.js", "sha256-okWfyNoqalgWVrSEmusFpQqkP1rqQdBDVcnRpOZ+iBM="],
  ["learning/softmax.js", "sha256-gAdMYAv88MqwwG6/L9wu8afjyYCPA/xl+nGAlKQpy+g="],
  ["learning/training.js", "sha256-FpEHsRBQEUw62RtGiAzBVHElT4OQ6y+dIr16LY/RWxw="],
  ["learning/worker.js", "sha256-kEc3Y6Jw9sDP4Wk/i4j9XzvFzVFSJBX9qBEzvXP7eiY="],
  ["manifest.webmanifest", "sha256-/iWQDoojrFCdQIpCt64mS5hqiH4T3Kp0wyC4OvWaRWQ="],
  ["phone.css", "sha256-B30HDqjVHSOpOab8pkzC+2r0z3dzRtZ42OPXz/ugHeE="],
  ["protocol/average.js", "sha256-ReToUbYVVi3QYcWRpOzvg3+VcAMtrEG8PNMDXQCsePI="],
  ["protocol/bundle.js", "sha256-hLCdm2Esodej7zJ9B8KGXEaMfmRha2WzUUEIuao+k4Y="],
  ["protocol/bytes.js", "sha256-MgBJf2efwhcz9oYWqHLFhUYdJ+1YqeCzrMKGoHRSymQ="],
  ["protocol/chain.js", "sha256-JF49tXVBL1j89PjRBf0aTpx6eAJJbqAeIbekH79zGH0="],
  ["protocol/documents.js", "sha256-GoELpLmk5Vr1DbEQZUxAcUXEDprrML2YTvzZlSQPUa8="],
  ["protocol/enrolment.js", "sha256-N1EnLxRaQrNGQ+giJ1J9eWb/t52RmgljmQ90/jbC5t0="],
  ["protocol/errors.js", "sha256-ADr6z+mJ9KXNd+GF6aPJVoQuHkMyrEqFOa8MoqI6fFU="],
  ["protocol/invitation.js", "sha256-Eqly68DpQ73h1K4M40POu2peHLSK1fHOBAOpV1+s+9g="],
  ["protocol/json.js", "sha256-Ji8vVY8QNQdC93icRFtk7SEwAHGyd9pArayN2Fd6fK4="],
  ["protocol/keys.js", "sha256-NyZHC9+Ysy21CkosL6j12+6vvYRBGE9sXO6nx4X3c/4="],
  ["protocol/messages.js", "sha256-gwyuKjU3iss7fbGsqJENkyLc0d236qXewOztB17Kq2A="],
  ["protocol/request.js", "sha256-/C6PQAnk8791puRN2cdyq/6gs5obvY/wOyWzZP+wjWk="],
  ["protocol/rewards.js", "sha256-UcsjN/QVBXrJyIUMb+XnYdZvOMKCpmmDP6ZTw0Wp8Nc="],
  ["protocol/ring.js", "sha256-Jml3UYqsTFf+jVqIXgemMg5fJ2oo/MEB0nR9y6PnACc="],
  ["protocol/safetensors.js", "sha256-D5wlfciFf8GUut8nmhMWqMeplPTqJZ4B9qXvhk+nWMM="],
  ["protocol/seal.js", "sha256-Pd3DMAGk+jXsCI/fEP2ShQ4RapIvZvlLmz+jTzqQdF8="],
  ["protocol/settings.js", "sha256-xgWWalzViTXjzC9h1I1tJ479oKIOddXKHNPeemAixew="],
  ["protocol/steps.js", "sha256-myW3tXSRV6AeI1jdgnY9jKIbpYW+IAUOZG36BHrtkto="],
  ["protocol/upload.js", "sha256-lxR0ivts8PijQzXhXCKMc0QqqQ6yF/6ITOuHYeFACWU="],
  ["../web/common/blocked.js", "sha256-CQk2i4IDSS0HRNhkcY7CFwQ6JpEjAyGm2fSt1aUQGdc="],
  ["../web/common/dom.js", "sha256-SPfSzxfPPHDp+8eE8Ydp99Ofd4LnioZkSMYPWrGpXy8="],
  ["../web/common/format.js", "sha256-7AyagZ/oLrDyR/qRptTxQugYMfwaGEQxAppXPkvXLYA="],
  ["../web/common/plot.css", "sha256-F1s0j2TquuFq0l1xemVaK1gBmTiq9kX49bPDvPxXDRA="],
  ["../web/common/plot.js", "sha256-SuIUMYTNeOGN0Tl0wl3BDpJ4M42ms5t54BKj89uqsb0="],
  ["../web/common/style.css", "sha256-M0WM3GlyylbEyMKUHyJ8jfWXQ1LZ1EPqMYDgSqADU5I="],
  ["../web/vendor/hpke.js", "sha256-h35eAyiGJMAG2znoJpptxQzqGpPHELNFRIH/c4MojaY="],
  ["../web/vendor/uplot.css", "sha256-j6zv+mp7QMFsh4RbzOnAVNFIInNIDaMNnsmk67IQkk8="],
  ["../web/vendor/uplot.js", "sha256-24RuSne/74vTXy1w7xU9PgjImzS+542YbyMY0PaX2mc="],
];
const VERSION = "2eb677c08cfc3ce1";

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
worker.addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  const address = origin + pathname;
  if (event.request.method !== "GET" || !addresses.has(address)) return;
  event.respondWith(event.request.mode === "navigate" ? page(addressOf("./")) : kept(address));
});
