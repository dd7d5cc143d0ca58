// Rewards and their claim, as protocols/claims.py: CSP's sealed and signed half, less SP's mask. By `samples` these hide a number
// of samples and 2^128 times the total. Equal parts follow from CSP's signed record, and nothing is masked.

import { bind, concat, equal, fromNumber, sha256, toNumber, utf8 } from "./bytes.js";
import { limitsOf } from "./bundle.js";
import { parseRecord, standing } from "./average.js";
import { ClaimRefused, ProtocolError, RewardOutOfRange, SealBroken, UploadRejected } from "./errors.js";
import { SAMPLES_BYTES } from "./limits.js";
import { decode, encode } from "./messages.js";
import { openSealed } from "./seal.js";
import { claimsEarly } from "./amounts.js";
import { requireRewards } from "./settings.js";
import { sign, verify } from "./signing.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./bundle.js").Bundle} Bundle */
/** @typedef {import("./keys.js").Keys} Keys */
/** @typedef {import("./settings.js").SharesTask} SharesTask */
/** @typedef {{ mask: bigint, salt: Bytes, sealed: Bytes }} Envelope */

const ENVELOPE = 18;
const CLAIM = 19;
const BONUS_WORD = 95;
/** What a claim and the books call the item that is no round's. */
export const BONUS = 0;
const MODULUS = 1n << BigInt(8 * SAMPLES_BYTES);

/**
 * Millionths; a reward outside the round's budget is refused.
 * @param {SharesTask} task @param {Bundle} bundle @param {Keys} keys @param {Bytes} envelope @param {number} round
 * @returns {Promise<bigint>}
 */
export async function openReward(task, bundle, keys, envelope, round) {
  requireRewards(task);
  const message = parseEnvelope(task, bundle, envelope, round);
  if (round === BONUS) return openBonus(task, bundle, keys, message.sealed);
  if (claimsEarly(task)) return openPart(task, bundle, keys, message.sealed, round);
  const { amount } = await openHidden(task, bundle, keys, message, round);
  return amount;
}

/**
 * A hidden reward, and what CSP has signed of it: a claim shows that to a CSP that has lost its own.
 * @param {SharesTask} task @param {Bundle} bundle @param {Keys} keys @param {Envelope} message @param {number} round
 */
async function openHidden(task, bundle, keys, message, round) {
  const context = utf8(`crowdfl task ${task.task} round ${round}`);
  const who = utf8(keys.who);
  const body = await openSealed(keys.reading, message.sealed, concat(bind("crowdfl reward 2", context), who));
  const width = task.pay === "samples" ? 2 * SAMPLES_BYTES : SAMPLES_BYTES;
  const [v, signature] = [body.slice(0, width), body.slice(width)];
  if (v.length !== width) throw new SealBroken("this envelope holds no reward");
  const commitment = await commit(message.mask, message.salt);
  await verify(bundle.cspSigning, bind("crowdfl reward statement 1", context, who, commitment, v), signature);
  return { amount: payable(task, BigInt.asUintN(8 * width, toNumber(v) - message.mask)), signed: body };
}

/**
 * What everyone in CSP's record of a round has earned.
 * @param {SharesTask} task @param {Bundle} bundle @param {Keys} keys @param {Bytes} shown @param {number} round
 */
async function openPart(task, bundle, keys, shown, round) {
  const record = await parseRecord(shown, limitsOf(task, bundle).record, bundle.cspSigning);
  if (record.task !== task.task || record.number !== BigInt(round)) {
    throw new ProtocolError(`what was shown for round ${round} is CSP's record of another round or task`);
  }
  const why = standing(record, keys.who);
  if (why !== null) throw new UploadRejected(`CSP's record leaves this upload out (${why})`);
  return task.each || task.payment / BigInt(record.accepted.length);
}

/** CSP's signed word who gets the bonus. @param {SharesTask} task @param {Bundle} bundle @param {Keys} keys @param {Bytes} shown */
async function openBonus(task, bundle, keys, shown) {
  const fields = decode(BONUS_WORD, ["text", "list of text", "bytes"], shown, limitsOf(task, bundle).bonus);
  const [of, names, signature] = fields;
  await verify(bundle.cspSigning, concat(utf8("crowdfl bonus 1"), encode(BONUS_WORD, [of, names, new Uint8Array(0)])), signature);
  if (of !== task.task) throw new ProtocolError("what was shown is CSP's word about the bonus of another task");
  if (!names.includes(keys.who)) throw new UploadRejected("CSP's word about the bonus does not name this phone");
  return task.bonus;
}

/**
 * CSP's signed record, where an envelope shows one; else null.
 * @param {SharesTask} task @param {Bundle} bundle @param {Bytes} envelope
 */
export function recordIn(task, bundle, envelope) {
  return claimsEarly(task) ? parseEnvelope(task, bundle, envelope).sealed : null;
}

/**
 * The envelope that CSP's record stands for, where equal parts follow from it; else null.
 * @param {SharesTask} task @param {Bytes} record
 */
export function rewardBy(task, record) {
  return claimsEarly(task) ? encode(ENVELOPE, [0n, new Uint8Array(0), record]) : null;
}

/**
 * Of equal parts, what SP says of masks is not heard.
 * @param {SharesTask} task @param {Bundle} bundle @param {Bytes} bytes @param {number} [round] @returns {Envelope}
 */
function parseEnvelope(task, bundle, bytes, round) {
  const { envelope, bonusEnvelope } = limitsOf(task, bundle);
  const [mask, salt, sealed] = decode(ENVELOPE, ["number", "bytes", "bytes"], bytes, round === BONUS ? bonusEnvelope : envelope);
  return claimsEarly(task) ? { mask: 0n, salt: new Uint8Array(0), sealed } : { mask, salt, sealed };
}

/** Millionths for what was opened. @param {SharesTask} task @param {bigint} opened */
function payable({ pay, payment }, opened) {
  const [total, count] = pay === "samples" ? [opened / MODULUS, opened % MODULUS] : [payment, opened];
  if (total > 0n && count <= total) return (payment * count) / total;
  throw new RewardOutOfRange("this reward is not within the round's budget");
}

/** @param {bigint} mask @param {Bytes} salt */
function commit(mask, salt) {
  const length = Uint8Array.of(salt.length >>> 8, salt.length);
  return sha256(concat(utf8("crowdfl commitment 1"), length, salt, fromNumber(mask)));
}

const PLACE_NOTE = 98;
const PLACE_KEPT = 99;

/**
 * The owner's signed word to CSP which destination is the newest: what is never claimed goes there, of pay that follows from CSP's record.
 * @param {SharesTask} task @param {Keys} keys @param {Bytes} destination The hash of the sealed one. @param {number} counter @returns {Promise<Bytes | null>}
 */
export async function placeNote(task, keys, destination, counter) {
  if (!task.payment || !claimsEarly(task)) return null;
  const fields = [task.task, keys.who, destination, counter];
  const unsigned = encode(PLACE_NOTE, [...fields, new Uint8Array(0)]);
  return encode(PLACE_NOTE, [...fields, await sign(keys, concat(utf8("crowdfl place 1"), unsigned))]);
}

/** CSP's signed word that it keeps this very one. @param {SharesTask} task @param {Bundle} bundle @param {Keys} keys @param {{ destination: Bytes, counter: number }} place @param {Bytes} kept */
export async function checkPlaceKept(task, bundle, keys, { destination, counter }, kept) {
  const [of, who, hash, number, signature] = decode(PLACE_KEPT, ["text", "text", "bytes", "number", "bytes"], kept, limitsOf(task, bundle).placeKept);
  await verify(bundle.cspSigning, concat(utf8("crowdfl place kept 1"), encode(PLACE_KEPT, [of, who, hash, number, new Uint8Array(0)])), signature);
  if (of !== task.task || who !== keys.who || !equal(hash, destination) || number !== BigInt(counter)) {
    throw new ClaimRefused("the second server has kept another place to be paid than this one");
  }
}

/**
 * @typedef {object} Claimed What a claim says. It is cumulative: the newest one names all that can be claimed so far.
 * @property {readonly { round: number, envelope: Bytes }[]} rewards
 * @property {readonly number[]} [unused] Rounds that SP's receipt says to owe for an unused upload of.
 * @property {Bytes} [destination] The hash of the newest sealed one.
 * @property {number} [counter] Of it; 0 with none.
 */

/**
 * The signed claim; each reward is opened and checked again.
 * @param {SharesTask} task @param {Keys} keys @param {Claimed} claimed @param {Bundle} bundle @returns {Promise<Bytes>}
 */
export async function makeClaim(task, keys, { rewards, unused = [], destination = new Uint8Array(0), counter = 0 }, bundle) {
  requireRewards(task);
  const sorted = [...rewards].sort((a, b) => a.round - b.round);
  const rounds = sorted.map(({ round }) => round);
  const named = [...rounds, ...unused];
  if (new Set(named).size !== named.length) throw new ClaimRefused("a round is claimed twice");
  const amounts = [];
  const shown = [];
  const envelopes = sorted.map(({ envelope, round }) => parseEnvelope(task, bundle, envelope, round));
  for (const [place, { round, envelope }] of sorted.entries()) {
    amounts.push(await openReward(task, bundle, keys, envelope, round));
    shown.push(claimsEarly(task) ? new Uint8Array(0) : (await openHidden(task, bundle, keys, envelopes[place], round)).signed);
  }
  const [masks, salts] = [envelopes.map(({ mask }) => mask), envelopes.map(({ salt }) => salt)];
  const fields = [task.task, keys.who, rounds, amounts, masks, salts, shown, [...unused].sort((a, b) => a - b), destination, counter];
  const unsigned = encode(CLAIM, [...fields, new Uint8Array(0)]);
  return encode(CLAIM, [...fields, await sign(keys, concat(utf8("crowdfl claim 4"), unsigned))]);
}
