// What KGC deals to a participant: CSP's two public keys, both audiences', the participants' private one, and the ring.

import { concat, sha256, utf8 } from "./bytes.js";
import { FormatError, KeyMismatch } from "./errors.js";
import { leavesBytes } from "./leaves.js";
import { limitsFor, SAMPLES_BYTES } from "./limits.js";
import { decode } from "./messages.js";
import { elementBytes } from "./ring.js";
import { readingPair } from "./seal.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./settings.js").SharesTask} SharesTask */
/**
 * @typedef {object} Bundle
 * @property {Bytes} cspSigning
 * @property {Bytes} cspSealing
 * @property {CryptoKeyPair} reading The participants': what averages are sealed to.
 * @property {number} ringBits
 * @property {Bytes} fingerprint Must be the appointment's (`requireKey`).
 */

const KIND = 52;
const KEY_BYTES = 32;

/**
 * @param {Bytes} bytes
 * @returns {Promise<Bundle>}
 */
export async function openBundle(bytes) {
  /** @type {import("./messages.js").FieldType[]} */
  const types = ["bytes", "bytes", "bytes", "bytes", "bytes", "number"];
  const [cspSigning, cspSealing, participants, requester, secret, bits] = decode(KIND, types, bytes);
  const publics = [cspSigning, cspSealing, participants, requester];
  if ([...publics, secret].some((key) => key.length !== KEY_BYTES)) {
    throw new FormatError(`a key in KGC's bundle does not have ${KEY_BYTES} bytes`);
  }
  const ringBits = Number(bits);
  elementBytes(ringBits);
  const fingerprint = await sha256(concat(utf8("crowdfl shares keys 2"), ...publics));
  return { cspSigning, cspSealing, reading: await readingPair(secret, participants), ringBits, fingerprint };
}

/** Where everyone counts once, the largest length of an update in whole units, as Python's `length_bound`. @param {SharesTask} task */
export function lengthBound({ maxNorm, unit }) {
  return Math.ceil((maxNorm ?? 0) * unit);
}

/**
 * Refuse a ring in which the sum of honest uploads could wrap around: the average would be another one.
 * @param {SharesTask} task
 * @param {Bundle} bundle
 */
export function requireRing(task, bundle) {
  const entry = Math.ceil(task.clip * task.unit);
  const one = task.hasCounts ? BigInt(task.maxSamples) * BigInt(entry) : BigInt(Math.min(entry, lengthBound(task)));
  if (2n * BigInt(task.maxParticipants) * one < 1n << BigInt(bundle.ringBits)) return;
  throw new KeyMismatch(
    `KGC dealt for shares of ${bundle.ringBits} bits, which are too few for this task: tell whoever invited you`,
  );
}

/**
 * What messages of this task may hold.
 * @param {SharesTask} task
 * @param {Bundle} bundle
 */
export function limitsOf(task, bundle) {
  const { parameters, countBytes: count, maxParticipants: people, mostDevices: enrolled } = task;
  const ring = elementBytes(bundle.ringBits);
  const leaves = leavesBytes(parameters * ring);
  return limitsFor({ parameters, ring, count, leaves, people, enrolled, reward: 2 * SAMPLES_BYTES, audiences: 2 });
}
