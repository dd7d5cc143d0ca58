// Keeps the page on the phone, so that it opens without a network.
//
// The files of one version are kept together and served from there: a page is never made of two versions. Each is compared with its
// hash when it is fetched, so that a half-finished update of the server, or a hotel's login page, is not kept. A new version is fetched
// when this file changes, and takes over once no page of the old one is open, or its reader says so. Nothing else is touched:
// answers of the platform (/v1/) are never kept, and requests to others are not seen here.

/** @type {[string, string][]} Addresses, and the hashes of what is there; tools/phone_shell.py writes them. */
const FILES = [
  ["./", "sha256-vbf2tIAQZ/SI/4MfmCuLerZzmVED21txKtM9Am9Wzgk="],
  ["agent/affairs.js", "sha256-5xNzd8JW/3z1IEus0kYG7IXAiAD65IlXwwb+xiTjjPI="],
  ["agent/agent.js", "sha256-cXOEKaogCs7vm7rl4T7dq17z7AcKDHwb2zAWQSYUsZ4="],
  ["agent/api.js", "sha256-BKHjZ2aD2TJ0ZxmClSwVvbdEeR3erF5APlqVGUHv1TE="],
  ["agent/claiming.js", "sha256-G/CWQKZU7fx0RCTyh/A+5CnjllJRzRqeBskZcV7BkCI="],
  ["agent/errors.js", "sha256-mZ1VAbc8LAiCvF+FOekV83L5KGVCIajqFG6U9VQrFQg="],
  ["agent/holdings.js", "sha256-Gdpy9HmkIDQPTJQhx+UeiZDRHqqDc4yJWTEG53xY4Ow="],
  ["agent/model.js", "sha256-mRNpbi/ZEZGVg5JwVEWCMwSHgxJlhzzQrviblwWSoCE="],
  ["agent/participant.js", "sha256-efq7LmGSDHKQpmng++Up728YxcsKZzMkUns8KboOa5Y="],
  ["agent/protocol.js", "sha256-QW0U6vTO6ZKlb7YrgnKhgs/upSXW1xlVhwvy3T4sqYs="],
  ["agent/retry.js", "sha256-2VKwkLePhTVzwZhfoOfkTwe2KSZx4GTExxMNu3KT4/4="],
  ["agent/rewards.js", "sha256-FSBz8ytcAk3lQ6Kf43roTgFgybYOLty9QfHEYE7VmSk="],
  ["agent/state.js", "sha256-VAYzhcBk1u4cBYEPNeE/9aAyOsvq/H29sdHsApP3u0U="],
  ["agent/store.js", "sha256-0Xnbq6eF7RW/2YDgu06cMSczomAZr9JKlaSSOo5fe/M="],
  ["agent/tables.js", "sha256-nXSVFi5YsfpD+J4j9VRNP1SjeFeJNEVaQ8s8xCwRhSY="],
  ["agent/tabs.js", "sha256-JEUGiRksbw3tNEDIOWN9OtoqkHqbueLYmeSWDyuyn/U="],
  ["agent/transport.js", "sha256-JOc9BXiF8eqlsVRW1K2aahGk4cgdBPOiEv2mBbPAvmQ="],
  ["agent/uploads.js", "sha256-zUVo383O4XDKoa6xKhzoEYknRVDbB8v2HIYR1LELsSE="],
  ["app/about.js", "sha256-hxN31zPZg5Qg96FbRnZYF2brjbhHv3EeS4K/xhnCl2M="],
  ["app/imports.js", "sha256-izOWynWaxTNbaDsVPmz45FX8nsLEPAeYM9k8MUAr99A="],
  ["app/install.js", "sha256-BnXXHsHz96BSbkP22K0PJrlcWQntHFRcnCUJin7mXd8="],
  ["app/link.js", "sha256-ohK8LIsqwtWpN8+Ff7h3vTO6ZSDXA+GsEhUfH3Pv61E="],
  ["app/main.js", "sha256-L5ybmk+RWEDq+vTkZoZFgXXHowcWeSKO3f+pjO9KIsE="],
  ["app/model.js", "sha256-+qCXuyzZhxjurzuacqk4T5/sqCyxW/W0Fl71VmCysv4="],
  ["app/needs.js", "sha256-3MSe498KxWLOh0GADqn0qg14tK//YGUQs96iBGSGkXU="],
  ["app/offline.js", "sha256-EZTYtrwLITRWShcAI5ZSrbWW0TFKb57XuNdFc2CPZtA="],
  ["app/parts.js", "sha256-ciLK7dvdCmnPaOsYrYS8FJnK1L86ROOsZtSOv3MZKew="],
  ["app/picture.js", "sha256-dLpEhyYaYnxma4rPryOEDNf0v9Loor/GyQChbemK83M="],
  ["app/router.js", "sha256-l2uAvAq19w4+Bi00aikCiqF1TeeDZLg8SF64b3bGjsU="],
  ["app/sensors.js", "sha256-rg0kpql7fN+8y/4Fvh+DFbL4EnBGCZquiufUpSdLIa0="],
  ["app/session.js", "sha256-D2Ejp46YgJdIiJzcI+AtUJGuQ77jJp0tHVMFo7d9dmc="],
  ["app/trace.js", "sha256-Iwf5fqP6GIb2k+tPqIAYKYJnmfgY65jUVdwQZktlIug="],
  ["app/trainer.js", "sha256-/g4TSVeW0wvLonlvj28cbw5dBfGYNhJbnOpDJKwYi4Q="],
  ["app/types.js", "sha256-0Ae3YKSYcxHT6OPf7YX6CqZ4AQH4N0QzBEPuhZJqjhc="],
  ["app/views/about.js", "sha256-7gSlw36NrLAOf3Oy+6/B/pLyZqm5+27g+uw3j7BTVYY="],
  ["app/views/campaigns.js", "sha256-3IWHfuVN2JQ3scoNKkK5a8olkH1qo+f+ksSZ49Wed/o="],
  ["app/views/device.js", "sha256-a6P6vktI6oRwbxj7HSTqdgm1NftrSTlynsXMx5TnSOQ="],
  ["app/views/record.js", "sha256-rc3Awff+MjhBHhxwdVpjURiWdfzqIKh0R7sSa8kTyHY="],
  ["app/views/rewards.js", "sha256-knoZSqYF9E8MgLuhZQMJ1hywzx4DZAIX+acO50dg03E="],
  ["app/views/rounds.js", "sha256-IuUBVWNicRJ5s+4FtwC5cf8/5LnStEgRw0VPKbTxSIA="],
  ["app/views/settings.js", "sha256-P1xEDD3weDD61y+lv/bPLrRUZmw4jjnyc8YbznKqTro="],
  ["app/words.js", "sha256-PFTYOBGFSScbd5fAUIQNbBBGrV4WkbaodJyOAohRHNs="],
  ["icons/icon-192.png", "sha256-GQMvtA9hzEQXpFktno2fPfO9LfhqGQ5HURwfJ9GG7EI="],
  ["icons/icon-512.png", "sha256-tGrjMHeK7tDQ3lR07XVfVCHP/m1oDh4a2e5mja2MA/Q="],
  ["icons/maskable-512.png", "sha256-x9XHk9b5J0wdEhV2+XX6Jya1syMcdiVhsejSexe0z2o="],
  ["index.html", "sha256-vbf2tIAQZ/SI/4MfmCuLerZzmVED21txKtM9Am9Wzgk="],
  ["learning/client.js", "sha256-TuaRiulmR1oTTTnNUx/2OiI99sn/arsfL8gyUbYKTYo="],
  ["learning/csv-text.js", "sha256-d1A4sLSEYNeZtt6UYtJlLhAmDQ73Ck4n8yaFTtotv18="],
  ["learning/csv.js", "sha256-I9y+4AtPl8h3P5pM2JqTG760PAALIByr/4Rqb87kbig="],
  ["learning/features.js", "sha256-SxEH29oQPu6OOD/+qsRZxnwGRID7fD1ZMVttlnvjqoM="],
  ["learning/jobs.js", "sha256-X3RXOmoaU63P2uZjcQgA1/+FfWmkRblTiWjS+51d+aI="],
  ["learning/layers.js", "sha256-PSSJ/LwGvg64xI/qZvd98YPLJW60SOAju/HqU3FGgqs="],
  ["learning/learners.js", "sha256-i+3ZDZ1WsY7sWMIiLk+NEOcB7YypjswwuI95zohII7c="],
  ["learning/network.js", "sha256-7Xxj2GtHZ7wggnXKXiKXVAMu/iHIBoxRG11ji5r6U6s="],
  ["learning/networks.js", "sha256-8wniV71pmX6ZV/ezjhECezPpADJNkPh7gIxin4HTVYg="],
  ["learning/random.js", "sha256-rcE43FxE6ETxSEVS1ngKEJguT5dMH3xkUnn4KceQ7J0="],
  ["learning/recipe.js", "sha256-jQwAFkoxPHWz0w9A0dexe+lrvpkmrkDJjfaKJ5kZXMk="],
  ["learning/recordings.js", "sha256-24oQox0Yxuw+5z0yZTjxICMzJHOc7KuUhh695e4r/e4="],
  ["learning/softmax.js", "sha256-OHKIvF6KkPo98OWcWZUHPcxZffDTsHjCygurqrGipAY="],
  ["learning/training.js", "sha256-F1+9b9O63sHUOFIvGJEwdu13QxmhsTbJqA+vpB26dYw="],
  ["learning/worker.js", "sha256-kEc3Y6Jw9sDP4Wk/i4j9XzvFzVFSJBX9qBEzvXP7eiY="],
  ["manifest.webmanifest", "sha256-N8WN8Lqb2mWaCk4llDJSfTGzbE/Zzgl4zT/fDws4FT8="],
  ["phone.css", "sha256-7hMu6NLFwxqfcJoRH74NXunj6l1Po+EJnuEYU4/doSg="],
  ["protocol/average.js", "sha256-FnC+ZYp+SkVq9NOZpDoqCMMrG/LUO3zAK1MsxeCTtcU="],
  ["protocol/bundle.js", "sha256-hLCdm2Esodej7zJ9B8KGXEaMfmRha2WzUUEIuao+k4Y="],
  ["protocol/bytes.js", "sha256-MgBJf2efwhcz9oYWqHLFhUYdJ+1YqeCzrMKGoHRSymQ="],
  ["protocol/chain.js", "sha256-f+6iq40kbRUG4rvhVRf46uXn95JDh+E6J5k8ZGCkh20="],
  ["protocol/documents.js", "sha256-ZhDS/0Np+2hTxmcAI9k0q1H8PV5DG80YY50XywDI1Ms="],
  ["protocol/enrolment.js", "sha256-L+hX5oRGj9gUNZPDbXAovP13hP/bSInfqbLLn7Akpjc="],
  ["protocol/errors.js", "sha256-r93+5mjacZJ6SWzaJ5oGl2mLelgE4P7wMdL+XlH98Hs="],
  ["protocol/invitation.js", "sha256-Tatx0lgVs1ALUBs0/39Op8iJw5wBpn48Tj8VJ6uzytU="],
  ["protocol/json.js", "sha256-Ji8vVY8QNQdC93icRFtk7SEwAHGyd9pArayN2Fd6fK4="],
  ["protocol/keys.js", "sha256-NyZHC9+Ysy21CkosL6j12+6vvYRBGE9sXO6nx4X3c/4="],
  ["protocol/messages.js", "sha256-58hRGnm1Pw7cgWd1QL72dDWqzXdtjRzd4CBpKDrcI00="],
  ["protocol/npz.js", "sha256-hnabVPoNlxVYSQHxN9dAIk/ozMyBzR8qZoDA46RE5/w="],
  ["protocol/request.js", "sha256-/C6PQAnk8791puRN2cdyq/6gs5obvY/wOyWzZP+wjWk="],
  ["protocol/rewards.js", "sha256-UcsjN/QVBXrJyIUMb+XnYdZvOMKCpmmDP6ZTw0Wp8Nc="],
  ["protocol/ring.js", "sha256-QXaYGZIPqApx0ULial1bxrup6HToLdWXeqTOnearVGc="],
  ["protocol/seal.js", "sha256-GZFQS82Ja9wb5Ym2q0WFFDcq/WL6ShZRP0mF9NnVwU4="],
  ["protocol/settings.js", "sha256-YMqhj6bprMbYrOGBePhl04Sm8Rk2xcE4FssZyIyWkn8="],
  ["protocol/upload.js", "sha256-hhdDEjNjQXkaBGUArIORKRIG0xSl3hJDs22DWQgUfWo="],
  ["../web/common/dom.js", "sha256-SPfSzxfPPHDp+8eE8Ydp99Ofd4LnioZkSMYPWrGpXy8="],
  ["../web/common/format.js", "sha256-Mme7tuGvIAeI+kh2D16wv/7uemIweVIK1W43rMzkqjk="],
  ["../web/common/plot.js", "sha256-cYcv9wEtSBQ5Z0Tg9VfU0rcE5MFY197F7iTIRfsSbf8="],
  ["../web/common/style.css", "sha256-M0WM3GlyylbEyMKUHyJ8jfWXQ1LZ1EPqMYDgSqADU5I="],
  ["../web/vendor/hpke.js", "sha256-h35eAyiGJMAG2znoJpptxQzqGpPHELNFRIH/c4MojaY="],
  ["../web/vendor/uplot.css", "sha256-j6zv+mp7QMFsh4RbzOnAVNFIInNIDaMNnsmk67IQkk8="],
  ["../web/vendor/uplot.js", "sha256-24RuSne/74vTXy1w7xU9PgjImzS+542YbyMY0PaX2mc="],
];
const VERSION = "8fea473cb490eae0";

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
