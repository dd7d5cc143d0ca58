// What the tests of the protocol share: vectors, keys from given bytes, and SP's half of an upload.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { limitsOf } from "#web/phone/protocol/bundle.js";
import { bind, equal, fromHex, sha256, u32, utf8 } from "#web/phone/protocol/bytes.js";
import { placeOf } from "#web/phone/protocol/chain.js";
import * as errors from "#web/phone/protocol/errors.js";
import { keysOf } from "#web/phone/protocol/keys.js";
import { leavesOf, u64 } from "#web/phone/protocol/leaves.js";
import { decode } from "#web/phone/protocol/messages.js";
import { verify } from "#web/phone/protocol/signing.js";

/** @typedef {import("#web/phone/protocol/bytes.js").Bytes} Bytes */
/** @typedef {import("#web/phone/protocol/bundle.js").Bundle} Bundle */
/** @typedef {import("#web/phone/protocol/settings.js").SharesTask} SharesTask */

const PKCS8 = { Ed25519: "302e020100300506032b657004220420", X25519: "302e020100300506032b656e04220420" };
/** @type {Record<string, KeyUsage[]>} */
const USAGES = { Ed25519: ["sign"], X25519: ["deriveBits"] };

/** @param {string} name @returns {any} */
export function vectors(name) {
  return JSON.parse(readFileSync(new URL(`../../../vectors/${name}.json`, import.meta.url), "utf8"));
}

/**
 * A pair of given bytes whose private half cannot be exported, as a phone's.
 * @param {"Ed25519" | "X25519"} name @param {string} digits @returns {Promise<CryptoKeyPair>}
 */
export async function pairOf(name, digits) {
  const bytes = fromHex(PKCS8[name] + digits);
  const readable = await crypto.subtle.importKey("pkcs8", bytes, { name }, true, USAGES[name]);
  const { x } = await crypto.subtle.exportKey("jwk", readable);
  const usages = /** @type {KeyUsage[]} */ (name === "Ed25519" ? ["verify"] : []);
  const publicKey = await crypto.subtle.importKey("jwk", { kty: "OKP", crv: name, x }, { name }, true, usages);
  return { privateKey: await crypto.subtle.importKey("pkcs8", bytes, { name }, false, USAGES[name]), publicKey };
}

/** @param {CryptoKeyPair} pair @returns {Promise<Bytes>} */
export async function publicOf(pair) {
  return new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
}

/** @param {string} signing @param {string} reading */
export async function keysFrom(signing, reading) {
  return keysOf(await pairOf("Ed25519", signing), await pairOf("X25519", reading));
}

/**
 * The call fails with an error of exactly this name, and of none of the page's own mistakes.
 * @param {string} name @param {() => unknown} call
 */
export async function refuses(name, call) {
  await assert.rejects(async () => call(), (/** @type {Error} */ error) => {
    assert.ok(error instanceof errors.CrowdFLError, error.message);
    assert.equal(error.name, name);
    return true;
  });
}

/**
 * A task as vectors give it: settings that they do not name are the platform's.
 * @param {{ task: string, settings: Record<string, any>, parameters: number }} given
 */
export function definitionOf({ task, settings, parameters }) {
  const whole = {
    total: "shown", decimals: 6, clip: 16, max_participants: 36, max_samples: 100, mask_bits: null, distance_floor: null, lanes: 1024,
    pay: null, weighting: "samples", check: "bounds", max_norm: null, epsilon: null, delta: null, noise: null, sigma: null, reference: false, window: 3600, late: 0, min_participants: 3, per_round: null, cohort: 4096, rounds: 5, currency: "EUR",
    budget: null, each: null, bonus: null, key_bits: 2048, server_step: "none", server_rate: 1, server_momentum: 0.9, server_squares: 0.99,
    server_floor: 0.001, ...settings,
  };
  const plan = { enrol_until: null, start_at: null, start_with: null, every: null, closes: "everyone", goal: null, unused_pay: null, room: 0 };
  const body = { arrays: [["w", [parameters]]], initial: "", settings: whole, plan, who: { name: "", institution: "", contact: "", approval: "", logo: "" }, language: "en", consent: { version: "", text: "" }, texts: {}, rounds_until: 1_800_000_000, claims_until: 1_800_604_800 };
  return { task, body, requester: new Uint8Array(32) };
}

/**
 * What SP checks of an upload, in its order.
 * @param {SharesTask} task @param {Bundle} bundle @param {Bytes} bytes
 * @param {{ round: number, base: Bytes, signing: (who: string) => Bytes }} standing
 */
export async function receiveUpload(task, bundle, bytes, { round, base, signing }) {
  /** @type {import("#web/phone/protocol/messages.js").FieldType[]} */
  const types = ["text", "bytes", "bytes", "text", "bytes", "bytes", "bytes", "bytes", "bytes", "bytes", "bytes"];
  const fields = decode(53, types, bytes, limitsOf(task, bundle).upload);
  const [name, number, from, who, digest, sealed, signature, salt, samples, leaves, shares] = fields;
  const lengths = [shares, samples, sealed, number, digest, signature, salt].map((field) => field.length);
  const expected = [(task.parameters * bundle.ringBits) / 8, task.countBytes, 80, 4, 32, 64, 32];
  if (lengths.join() !== expected.join()) throw new errors.LengthMismatch("a field has another length");
  if (name !== task.task) throw new errors.DocumentError("another task");
  if (!equal(number, u32(round))) throw new errors.RoundNotOpen("another round");
  if (!equal(from, base)) throw new errors.WrongBase("another model");
  if (!equal(leaves, leavesOf(shares))) throw new errors.BadSignature("other leaves");
  const hashed = await sha256(bind("crowdfl shares 1", salt, samples, u64(shares.length), leaves));
  if (!equal(digest, hashed)) throw new errors.BadSignature("another hash");
  await verify(signing(who), placeOf(task, round, base)("crowdfl upload 1", utf8(who), digest, sealed), signature);
  return { who, digest, sealed, signature, samples, shares };
}

/** @param {Bytes} bytes @param {number} place @param {number} [flip] */
export function altered(bytes, place, flip = 1) {
  const copy = bytes.slice();
  copy[place] ^= flip;
  return copy;
}

