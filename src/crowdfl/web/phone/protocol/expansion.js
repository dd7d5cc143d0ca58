// A seed as a stream of bytes by AES-256-CTR, as crypto/shares/expansion.py.

import { LengthMismatch } from "./errors.js";
import { SEED_BYTES } from "./limits.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/**
 * The first bytes of the stream of a seed and a context. A seed and a context serve one purpose ever.
 * @param {Bytes} seed @param {Bytes} context @param {number} length @returns {Promise<Bytes>}
 */
export async function expand(seed, context, length) {
  if (seed.length !== SEED_BYTES) throw new LengthMismatch(`a seed has ${SEED_BYTES} bytes, not ${seed.length}`);
  const input = await crypto.subtle.importKey("raw", seed, "HKDF", false, ["deriveKey"]);
  const derivation = { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(32), info: context };
  const key = await crypto.subtle.deriveKey(derivation, input, { name: "AES-CTR", length: 256 }, false, ["encrypt"]);
  const counter = { name: "AES-CTR", counter: new Uint8Array(16), length: 128 };
  return new Uint8Array(await crypto.subtle.encrypt(counter, key, new Uint8Array(length)));
}
