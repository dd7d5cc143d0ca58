// Sealing to whoever reads, by HPKE, as crypto/sealing.py.

import { concat } from "./bytes.js";
import { InvalidKey, SealBroken } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./keys.js").Keys} Keys */

const KEY_BYTES = 32;

/** Fetched with the first seal: whoever reads an invitation needs none. */
async function loadedSuite() {
  const { Chacha20Poly1305, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } = await import("../../web/vendor/hpke.js");
  return new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Chacha20Poly1305() });
}

/**
 * HPKE to whoever owns this X25519 public key: 32 bytes of encapsulated key, then the ciphertext.
 * @param {Bytes} reader @param {Bytes} plaintext @param {Bytes} context
 * @param {CryptoKeyPair} [ephemeral] For vectors only: a fresh one is drawn for each seal. @returns {Promise<Bytes>}
 */
export async function sealTo(reader, plaintext, context, ephemeral) {
  const sender = await senderTo(reader, context, ephemeral);
  return concat(new Uint8Array(sender.enc), new Uint8Array(await sender.seal(plaintext)));
}

/** @param {Bytes} reader @param {Bytes} info @param {CryptoKeyPair} [ekm] */
async function senderTo(reader, info, ekm) {
  const suite = await loadedSuite();
  try {
    const recipientPublicKey = await suite.kem.deserializePublicKey(reader);
    return await suite.createSenderContext({ recipientPublicKey, info, ekm });
  } catch {
    throw new InvalidKey("this is not a valid X25519 public key"); // of another length, or of low order
  }
}

/**
 * @param {CryptoKeyPair} reading The private half never leaves WebCrypto. @param {Bytes} sealed @param {Bytes} context
 * @returns {Promise<Bytes>}
 */
export async function openSealed(reading, sealed, context) {
  const suite = await loadedSuite();
  try {
    const enc = sealed.slice(0, KEY_BYTES);
    const recipient = await suite.createRecipientContext({ recipientKey: reading, enc, info: context });
    return new Uint8Array(await recipient.open(sealed.slice(KEY_BYTES)));
  } catch {
    throw new SealBroken("this was sealed to another reader or another place, or it was altered");
  }
}

/**
 * The key pair of an audience, from what KGC deals: both halves as they travel.
 * @param {Bytes} secret @param {Bytes} publicHalf @returns {Promise<CryptoKeyPair>}
 */
export async function readingPair(secret, publicHalf) {
  const suite = await loadedSuite();
  try {
    const privateKey = await suite.kem.deserializePrivateKey(secret);
    return { privateKey, publicKey: await suite.kem.deserializePublicKey(publicHalf) };
  } catch {
    throw new InvalidKey("this is not a valid X25519 key");
  }
}
