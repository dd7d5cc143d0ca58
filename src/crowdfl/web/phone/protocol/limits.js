// Lengths, limits of messages and of counts, as Python declares them. Written by tools/steps.py.

/** @typedef {{ field: number, entries: number }} Limit Bytes that a field may have, and entries of a list. */
/**
 * @typedef {object} Sizes What limits follow from.
 * @property {number} parameters Weights of the model.
 * @property {number} ring Bytes of a number of the ring of uploads, k / 8.
 * @property {number} count Bytes of a share of a number of samples: 16, or 0.
 * @property {number} leaves 32 for each piece of the shares.
 * @property {number} people Most that a round can have.
 * @property {number} enrolled Most devices that a task can have.
 * @property {number} reward Bytes of a reward's share: 16, or 32.
 * @property {number} audiences 2; in the last round 1, the requester.
 */

export const SEED_BYTES = 32;
export const HASH_BYTES = 32;
export const SALT_BYTES = 32;
export const MASK_BYTES = 32;
export const SAMPLES_BYTES = 16;
export const ROUND_BYTES = 4;
export const MOST_UNSHOWN = 3;
export const MOST_DEVICES = 5;
export const LONGEST_NUMBER = 4096;

/**
 * Bytes that a field of a message may have, and entries of a list in it.
 * @param {Sizes} sizes @returns {Record<"publication" | "record" | "end" | "envelope" | "bonus" | "bonusEnvelope" | "placeKept" | "upload", Limit>}
 */
export function limitsFor({ parameters, ring, count, leaves, people, enrolled, reward, audiences }) {
  return {
    publication: { field: Math.max(parameters * ring, count, 84 * audiences * 2, 254 + 68 * people + 68 * people + 36 * people + 36 * 2 + 36 * audiences * 2), entries: audiences * 2 },
    record: { field: Math.max(68 * people, 36 * people, 36 * 2, 36 * audiences * 2, 64), entries: Math.max(people, audiences * 2, 2) },
    end: { field: Math.max(68 * people, 36 * people, 64), entries: people },
    envelope: { field: Math.max(reward, 254 + 68 * people + 68 * people + 36 * people + 36 * 2 + 36 * audiences * 2, 32), entries: 0 },
    bonus: { field: Math.max(68 * enrolled, 64), entries: enrolled },
    bonusEnvelope: { field: Math.max(reward, 146 + 68 * enrolled, 32), entries: 0 },
    placeKept: { field: 64, entries: 0 },
    upload: { field: Math.max(count, leaves, parameters * ring, 80), entries: 0 },
  };
}
