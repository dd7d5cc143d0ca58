// A participant's own keys. WebCrypto holds the private halves: no code of this page can read them.

import { concat, fromHex, hex, sha256, utf8 } from "./bytes.js";
import { InvalidKey, UnsupportedTask } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/**
 * Everything in it can be kept in IndexedDB as it is.
 * @typedef {object} Keys
 * @property {CryptoKeyPair} signing Ed25519.
 * @property {CryptoKeyPair} reading X25519.
 * @property {Bytes} signingPublic
 * @property {Bytes} readingPublic
 * @property {string} who The name that follows from the signing key.
 */

const NAME_DIGITS = 20;
const PKCS8 = fromHex("302e020100300506032b657004220420"); // before the 32 bytes of an Ed25519 private key

/** @param {boolean} [readable] To be wrapped at once, where a browser cannot keep them. @returns {Promise<Keys>} */
export async function newKeys(readable = false) {
  const signing = await pair("Ed25519", ["sign", "verify"], readable);
  return keysOf(signing, await pair("X25519", ["deriveBits"], readable));
}

/**
 * @param {CryptoKeyPair} signing
 * @param {CryptoKeyPair} reading
 * @returns {Promise<Keys>}
 */
export async function keysOf(signing, reading) {
  const signingPublic = await rawPublic(signing);
  return { signing, reading, signingPublic, readingPublic: await rawPublic(reading), who: await nameOf(signingPublic) };
}

/**
 * A participant's name in a task: a pseudonym that nobody else can take.
 * @param {Bytes} signing
 */
export async function nameOf(signing) {
  return hex(await sha256(concat(utf8("crowdfl participant 1"), signing))).slice(0, NAME_DIGITS);
}

/**
 * A key that was given to this phone, both halves as they travel: an invitation's.
 * @param {Bytes} secret @param {Bytes} publicHalf @returns {Promise<CryptoKeyPair>}
 */
export async function signingPair(secret, publicHalf) {
  try {
    const privateKey = await crypto.subtle.importKey("pkcs8", concat(PKCS8, secret), { name: "Ed25519" }, false, ["sign"]);
    return { privateKey, publicKey: await crypto.subtle.importKey("raw", publicHalf, { name: "Ed25519" }, true, ["verify"]) };
  } catch {
    throw new InvalidKey("this is not a valid Ed25519 key");
  }
}

/**
 * The key of an invitation, which this phone makes where SP recruits; its private half stays with it, as a link's would.
 * @returns {Promise<{ secret: Bytes, open: string }>} The public half in hex.
 */
export async function newTicketKey() {
  const made = await pair("Ed25519", ["sign", "verify"], true);
  const secret = new Uint8Array(await crypto.subtle.exportKey("pkcs8", made.privateKey)).slice(-32);
  return { secret, open: hex(await rawPublic(made)) };
}

/**
 * @param {string} name
 * @param {KeyUsage[]} usages
 * @param {boolean} readable
 * @returns {Promise<CryptoKeyPair>}
 */
async function pair(name, usages, readable) {
  if (!globalThis.crypto?.subtle) {
    throw new UnsupportedTask("this page was not loaded over HTTPS, so that the browser makes no keys: open it with https://");
  }
  try {
    return /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey({ name }, readable, usages));
  } catch {
    throw new UnsupportedTask(`this browser cannot make ${name} keys: update it, then open the link again`);
  }
}

/** @param {CryptoKeyPair} keys */
async function rawPublic(keys) {
  return new Uint8Array(await crypto.subtle.exportKey("raw", keys.publicKey));
}
