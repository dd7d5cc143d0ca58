// Signatures by Ed25519, as crypto/signing.py.

import { BadSignature } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

const SIGNING = { name: "Ed25519" };

/**
 * Throws `BadSignature` unless the owner of `key` signed this message.
 * @param {Bytes} key @param {Bytes} message @param {Bytes} signature
 */
export async function verify(key, message, signature) {
  if (!(await isSigned(key, message, signature))) {
    throw new BadSignature("the signature does not fit the message and its claimed signer");
  }
}

/** @param {Bytes} key @param {Bytes} message @param {Bytes} signature */
export async function isSigned(key, message, signature) {
  try {
    const signer = await crypto.subtle.importKey("raw", key, SIGNING, false, ["verify"]);
    return await crypto.subtle.verify(SIGNING, signer, signature, message);
  } catch {
    return false; // a key or a signature of another length, or not a point of the curve
  }
}

/** @param {{ signing: CryptoKeyPair }} keys @param {Bytes} message @returns {Promise<Bytes>} */
export async function sign(keys, message) {
  return new Uint8Array(await crypto.subtle.sign(SIGNING, keys.signing.privateKey, message));
}
