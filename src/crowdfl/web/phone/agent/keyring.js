// A participant's keys in a browser that cannot keep them: some versions of Safari write an X25519 key, and read nothing back. Its
// private keys are then kept wrapped, under an AES key that the browser does keep. No code can read that key out; but whatever code this
// page runs can unwrap with it, and so copy the private keys.

import { KeysLost } from "../protocol/errors.js";
import { newKeys } from "../protocol/keys.js";

/** @typedef {import("../protocol/keys.js").Keys} Keys */
/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */
/** @typedef {{ iv: Bytes, bytes: ArrayBuffer }} Wrapped */
/** @typedef {{ wrapping: CryptoKey, signing: Wrapped, reading: Wrapped, signingPublic: Bytes, readingPublic: Bytes, who: string }} WrappedKeys */
/** @typedef {(value: unknown) => Promise<unknown>} Round Writes something to where keys are kept, and reads it back. */

const AES = "AES-GCM";
const KINDS = /** @type {const} */ ({ signing: ["Ed25519", ["sign"], ["verify"]], reading: ["X25519", ["deriveBits"], []] });

/** @param {unknown} value @returns {value is WrappedKeys} */
export const isWrapped = (value) => value !== null && typeof value === "object" && "wrapping" in value;

/** Made to be wrapped: once they are, nothing readable is left of them. @param {Keys} keys @returns {Promise<WrappedKeys>} */
export async function wrap({ signing, reading, ...rest }) {
  const wrapping = await crypto.subtle.generateKey({ name: AES, length: 256 }, false, ["wrapKey", "unwrapKey"]);
  const hide = async (/** @type {CryptoKeyPair} */ { privateKey }) => {
    const iv = crypto.getRandomValues(new Uint8Array(12));
    return { iv, bytes: await crypto.subtle.wrapKey("pkcs8", privateKey, wrapping, { name: AES, iv }) };
  };
  return { wrapping, signing: await hide(signing), reading: await hide(reading), ...rest };
}

/** @param {WrappedKeys} kept @returns {Promise<Keys>} As other browsers keep them. */
export async function unwrap({ wrapping, signing, reading, ...rest }) {
  const show = async (/** @type {keyof typeof KINDS} */ kind, /** @type {Wrapped} */ { iv, bytes }, /** @type {Bytes} */ own) => {
    const [name, privately, publicly] = KINDS[kind];
    const privateKey = await crypto.subtle.unwrapKey("pkcs8", bytes, wrapping, { name: AES, iv }, { name }, false, [...privately]);
    return { privateKey, publicKey: await crypto.subtle.importKey("raw", own, { name }, true, [...publicly]) };
  };
  return { signing: await show("signing", signing, rest.signingPublic), reading: await show("reading", reading, rest.readingPublic), ...rest };
}

/**
 * How this browser keeps keys: new ones are written, read back and used. Throws where it can in neither way.
 * @param {Round} round @returns {Promise<"plain" | "wrapped">}
 */
export async function keeping(round) {
  if (await works(async () => /** @type {Keys} */ (await round(await newKeys())))) return "plain";
  if (await works(async () => unwrap(/** @type {WrappedKeys} */ (await round(await wrap(await newKeys(true))))))) return "wrapped";
  throw new KeysLost("this browser does not keep keys: leave the private window or the lockdown mode, or use another browser");
}

/** Whether keys that were read can be used; a store that is not there is another matter. @param {() => Promise<Keys>} read */
async function works(read) {
  try {
    const { signing, reading } = await read();
    const message = new Uint8Array(1);
    const signature = await crypto.subtle.sign("Ed25519", signing.privateKey, message);
    const shared = await crypto.subtle.deriveBits({ name: "X25519", public: reading.publicKey }, reading.privateKey, 256);
    return shared.byteLength === 32 && (await crypto.subtle.verify("Ed25519", signing.publicKey, signature, message));
  } catch (wrong) {
    if (wrong instanceof DOMException || wrong instanceof TypeError) return false; // not written, or nothing there, or another key
    throw wrong;
  }
}
