// Reading a publication, as protocols/shares/round/average.py: check CSP's record, open the seed of the masks, take them away.

import { concat, equal, utf8 } from "./bytes.js";
import { limitsOf, requireRing } from "./bundle.js";
import { after, nextBase, nextSecret, placeOf, roundedQuotient } from "./chain.js";
import { ChainBroken, LengthMismatch, NothingToAverage, ProtocolError, SealBroken, TooFewParticipants } from "./errors.js";
import { decode, encode } from "./messages.js";
import { elementBytes, expand, fromLittleEndian, signedDifference } from "./ring.js";
import { openAudience, verify } from "./seal.js";
import { SALT_BYTES } from "./upload.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./bundle.js").Bundle} Bundle */
/** @typedef {import("./chain.js").Chain} Chain */
/** @typedef {import("./messages.js").Limit} Limit */
/** @typedef {import("./settings.js").SharesTask} SharesTask */
/** @typedef {ReturnType<typeof placeOf>} Place */
/** @typedef {{ task: string, number: bigint, base: Bytes, accepted: string[], rejected: Map<string, string> }} RoundRecord */
/** @typedef {{ sums: Bytes, total: Bytes, sealed: Bytes, record: Bytes, salt: Bytes }} Publication */
/**
 * @typedef {object} Opened
 * @property {Chain} chain The next model.
 * @property {number | null} total Samples of everyone who is in; null where everyone counts once.
 * @property {string[]} accepted
 * @property {Map<string, string>} rejected Names and reasons.
 */

const RECORD = 57;
const PUBLICATION = 59;
export const NOT_PASSED_ON = "the platform has not passed on an upload of yours for this round";

/**
 * @param {SharesTask} task @param {Bundle} bundle @param {Chain} chain @param {Bytes} publication @param {number} round
 * @returns {Promise<Opened>}
 */
export async function readPublication(task, bundle, chain, publication, round) {
  requireRing(task, bundle);
  const limit = limitsOf(task, bundle);
  const message = parsePublication(publication, limit);
  const record = await parseRecord(message.record, limit, bundle.cspSigning);
  checkRecord(record, task, round, chain);
  requireLengths(message, task, bundle);
  const place = placeOf(task, round, chain.base);
  const t = await openSeed(message, place, bundle);
  const { sums, total } = await unmasked(message, t, place, task, bundle);
  const people = BigInt(record.accepted.length);
  if (task.hasCounts && (total < people || total > people * BigInt(task.maxSamples))) {
    throw new NothingToAverage(
      "the total of the samples is not one of honest participants: an upload was out of bounds, or a server cheats",
    );
  }
  const base = await nextBase(chain.base, message.record, publication);
  const secret = await nextSecret(chain.secret, t, message.salt);
  const next = after(task, chain, round, base, secret, roundedQuotient(sums, task.hasCounts ? total : people));
  return { chain: next, total: task.hasCounts ? Number(total) : null, accepted: record.accepted, rejected: record.rejected };
}

/**
 * Why one's own upload was left out, by CSP's signed word; null if it was not.
 * @param {Pick<RoundRecord, "accepted" | "rejected">} opened @param {string} who
 */
export function standing(opened, who) {
  return opened.accepted.includes(who) ? null : (opened.rejected.get(who) ?? NOT_PASSED_ON);
}

/** @param {Bytes} bytes @param {Limit} limit @returns {Publication} */
function parsePublication(bytes, limit) {
  /** @type {import("./messages.js").FieldType[]} */
  const types = ["bytes", "bytes", "bytes", "bytes", "bytes", "bytes"];
  const [sums, total, sealed, , record, salt] = decode(PUBLICATION, types, bytes, limit);
  return { sums, total, sealed, record, salt };
}

/** @param {Bytes} bytes @param {Limit} limit @param {Bytes} cspKey @returns {Promise<RoundRecord>} */
export async function parseRecord(bytes, limit, cspKey) {
  /** @type {import("./messages.js").FieldType[]} */
  const types = ["text", "number", "bytes", "list of text", "list of text", "list of text", "bytes", "bytes"];
  const fields = decode(RECORD, types, bytes, limit);
  const [task, number, base, accepted, rejected, reasons, , signature] = fields;
  if (rejected.length !== reasons.length) {
    throw new ProtocolError("a record whose reasons are not as many as those left out");
  }
  const unsigned = encode(RECORD, [...fields.slice(0, -1), new Uint8Array(0)]);
  await verify(cspKey, concat(utf8("crowdfl record 1"), unsigned), signature);
  const why = rejected.map((/** @type {string} */ who, /** @type {number} */ i) => [who, reasons[i]]);
  return { task, number, base, accepted, rejected: new Map(why) };
}

/** @param {RoundRecord} record @param {SharesTask} task @param {number} round @param {Chain} chain */
function checkRecord(record, task, round, chain) {
  if (record.task !== task.task || record.number !== BigInt(round)) {
    throw new ChainBroken(`what was published for round ${round} is of another round or task`);
  }
  if (!equal(record.base, chain.base)) {
    throw new ChainBroken(`the average of round ${round} does not follow from the model here: read those before it first`);
  }
  const people = record.accepted.length;
  if (new Set(record.accepted).size !== people || people < task.minParticipants) {
    throw new TooFewParticipants(`an average of ${people} participants where ${task.minParticipants} are the least`);
  }
}

/** @param {Publication} message @param {SharesTask} task @param {Bundle} bundle */
function requireLengths({ sums, total, salt }, task, bundle) {
  if (sums.length !== task.parameters * elementBytes(bundle.ringBits) || total.length !== task.countBytes) {
    throw new LengthMismatch(`sums of ${sums.length} and a total of ${total.length} bytes: not those of this task`);
  }
  if (salt.length !== SALT_BYTES) throw new LengthMismatch(`a publication whose salt has ${salt.length} bytes`);
}

/** @param {Publication} message @param {Place} place @param {Bundle} bundle */
async function openSeed(message, place, bundle) {
  const context = place("crowdfl mask seed 1", utf8("participants"));
  const t = await openAudience(bundle.audience, message.sealed, context);
  if (t.length !== 32) throw new SealBroken("a publication without the seed of its masks");
  return t;
}

/** @param {Publication} message @param {Bytes} t @param {Place} place @param {SharesTask} task @param {Bundle} bundle */
async function unmasked(message, t, place, task, bundle) {
  const mask = await expand(t, place("crowdfl mask 1 sums"), message.sums.length);
  const hidden = await expand(t, place("crowdfl mask 1 total"), task.countBytes);
  const total = fromLittleEndian(message.total) - fromLittleEndian(hidden);
  return { sums: signedDifference(message.sums, mask, bundle.ringBits), total: BigInt.asUintN(8 * task.countBytes, total) };
}
