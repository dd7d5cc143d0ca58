// What the phone's page needs of a browser. Each is tried by itself: true, or what went wrong.
import { Chacha20Poly1305, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "../web/vendor/hpke.js";
import { plot } from "../web/common/plot.js";

/** @typedef {{ signing: CryptoKeyPair, reading: CryptoKeyPair }} Keys */

/** @returns {Promise<IDBDatabase>} */
const opened = () => new Promise((done, failed) => {
  const asked = indexedDB.open("abilities", 1);
  asked.onupgradeneeded = () => asked.result.createObjectStore("keys");
  asked.onsuccess = () => done(asked.result);
  asked.onerror = () => failed(asked.error);
});

/** @param {(store: IDBObjectStore) => IDBRequest} work @returns {Promise<any>} */
const within = async (work) => {
  const database = await opened();
  return new Promise((done, failed) => {
    const transaction = database.transaction("keys", "readwrite");
    const asked = work(transaction.objectStore("keys"));
    transaction.oncomplete = () => done(asked.result);
    transaction.onabort = () => failed(transaction.error);
  });
};

/** @returns {Promise<Keys>} */
const newKeys = async () => ({
  signing: /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"])),
  reading: /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey("X25519", false, ["deriveBits"])),
});

/** @param {Keys} keys */
async function keysWork({ signing, reading }) {
  const text = new TextEncoder().encode("hello");
  const signature = await crypto.subtle.sign("Ed25519", signing.privateKey, text);
  if (!await crypto.subtle.verify("Ed25519", signing.publicKey, signature, text)) return "a signature was not accepted";
  const bits = await crypto.subtle.deriveBits({ name: "X25519", public: reading.publicKey }, reading.privateKey, 256);
  return bits.byteLength === 32 && !signing.privateKey.extractable && !reading.privateKey.extractable;
}

async function hpkeOpens() {
  const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Chacha20Poly1305() });
  const { reading } = await within((store) => store.get("keys"));
  const sent = await suite.seal({ recipientPublicKey: reading.publicKey }, new TextEncoder().encode("hello"));
  const read = await suite.open({ recipientKey: reading, enc: sent.enc }, sent.ct);
  return new TextDecoder().decode(read) === "hello";
}

async function workerAnswers() {
  const worker = new Worker("worker.js", { type: "module" });
  const answer = await new Promise((done, failed) => {
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = () => failed(new Error("the worker could not start"));
    worker.postMessage(20);
  });
  worker.terminate();
  return answer === 21;
}

async function inflates() {
  const squeezed = new Blob(["hello"]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return await new Response(squeezed.pipeThrough(new DecompressionStream("deflate-raw"))).text() === "hello";
}

async function draws() {
  document.querySelector("main")?.append(plot("Plot", [0, 1], [{ name: "one", values: [1, 2] }]));
  const end = performance.now() + 30_000;
  while (!document.querySelector("canvas") && performance.now() < end) await new Promise((done) => setTimeout(done, 20));
  return document.querySelector("canvas") !== null;
}

/** @type {Record<string, () => Promise<unknown>>} */
const ABILITIES = {
  "keys that cannot be taken out": async () => {
    const keys = await newKeys();
    await within((store) => store.put(keys, "keys"));
    return keysWork(keys);
  },
  "sealed messages": hpkeOpens,
  "a worker of modules": workerAnswers,
  "inflating": inflates,
  "locks": () => navigator.locks.request("test", async () => true),
  "a service worker": async () => Boolean(await navigator.serviceWorker.register("service-worker.js")),
  "a plot": draws,
  "typed arrays of big integers": async () => new BigInt64Array([-1n])[0] === -1n,
};

const tried = async () => {
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const [name, ability] of Object.entries(ABILITIES)) found[name] = await ability().catch((error) => String(error));
  return found;
};
const keysStillWork = async () => keysWork(await within((store) => store.get("keys")));
Object.assign(window, { tried, keysStillWork, ready: true });
