// Reading a publication, as protocols/shares/round/average.py: check CSP's record and all that was published by it, take both masks off.

import { bind, concat, equal, sha256, utf8 } from "./bytes.js";
import { limitsOf, requireRing } from "./bundle.js";
import { after, nextBase, nextSecret, placeOf, roundedQuotient } from "./chain.js";
import { ChainBroken, LengthMismatch, NothingToAverage, ProtocolError, RolledBack, SealBroken, TooFewParticipants } from "./errors.js";
import { expand } from "./expansion.js";
import { MASK_BYTES } from "./limits.js";
import { decode, encode } from "./messages.js";
import { reasonOf } from "./reasons.js";
import { elementBytes, fromLittleEndian, signedDifference } from "./ring.js";
import { openSealed } from "./seal.js";
import { verify } from "./signing.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./bundle.js").Bundle} Bundle */
/** @typedef {import("./chain.js").Chain} Chain */
/** @typedef {import("./limits.js").Limit} Limit */
/** @typedef {import("./reasons.js").Reason} Reason */
/** @typedef {import("./settings.js").SharesTask} SharesTask */
/** @typedef {ReturnType<typeof placeOf>} Place */
/**
 * @typedef {object} RoundRecord
 * @property {string} task
 * @property {bigint} number
 * @property {Bytes} base
 * @property {string[]} accepted
 * @property {Map<string, Reason>} rejected
 * @property {Bytes} opened The hash of the sum, as it is published.
 * @property {Bytes[]} masks The hashes of both seeds.
 * @property {Bytes[]} seals The hashes of all that they are sealed in.
 * @property {Bytes} statement What CSP has signed.
 */
/** @typedef {{ sums: Bytes, total: Bytes, seals: Bytes[], record: Bytes }} Publication */
/**
 * @typedef {object} Opened
 * @property {Chain} chain The next model.
 * @property {number | null} total Samples of everyone who is in; null where everyone counts once.
 * @property {string[]} accepted
 * @property {Map<string, Reason>} rejected By name.
 * @property {Bytes} record As CSP has signed it.
 */

const RECORD = 57;
const PUBLICATION = 59;
const SERVERS = ["SP", "CSP"];
const AUDIENCES = ["participants", "requester"];

/**
 * @param {SharesTask} task @param {Bundle} bundle @param {Chain} chain @param {Bytes} publication @param {number} round
 * @returns {Promise<Opened>}
 */
export async function readPublication(task, bundle, chain, publication, round) {
  requireRing(task, bundle);
  const { message, record } = await checkedRecord(task, bundle, chain, publication, round);
  requireLengths(message, task, bundle);
  const shown = await sha256(bind("crowdfl opened 1", message.sums, message.total));
  if (!equal(shown, record.opened)) {
    throw new ChainBroken(`the sum that was published for round ${round} is not the one of CSP's record`);
  }
  const place = placeOf(task, round, chain.base);
  const masks = await openSeeds(message, record, place, bundle);
  const { sums, total } = await unmasked(message, masks, place, task, bundle);
  const people = BigInt(record.accepted.length);
  if (task.hasCounts && (total < people || total > people * BigInt(task.maxSamples))) {
    throw new NothingToAverage(
      "the total of the samples is not one of honest participants: an upload was out of bounds, or a server cheats",
    );
  }
  const base = await nextBase(chain.base, record.statement);
  const secret = await nextSecret(chain.secret, masks);
  const next = after(task, chain, round, base, secret, roundedQuotient(sums, task.hasCounts ? total : people));
  const { accepted, rejected } = record;
  return { chain: next, total: task.hasCounts ? Number(total) : null, accepted, rejected, record: message.record };
}

/**
 * Of the last round, whose seals are the requester's: whom CSP's record names, and the record as signed.
 * @param {SharesTask} task @param {Bundle} bundle @param {Chain} chain @param {Bytes} publication @param {number} round
 * @returns {Promise<Pick<Opened, "accepted" | "rejected" | "record">>}
 */
export async function readRecord(task, bundle, chain, publication, round) {
  const { message, record } = await checkedRecord(task, bundle, chain, publication, round);
  return { accepted: record.accepted, rejected: record.rejected, record: message.record };
}

/** @param {SharesTask} task @param {Bundle} bundle @param {Chain} chain @param {Bytes} publication @param {number} round */
async function checkedRecord(task, bundle, chain, publication, round) {
  const limits = limitsOf(task, bundle);
  const message = parsePublication(publication, limits.publication);
  const record = await parseRecord(message.record, limits.record, bundle.cspSigning);
  checkRecord(record, task, round, chain);
  return { message, record };
}

/**
 * Why one's own upload was left out, by CSP's signed word; null if it was not.
 * @param {Pick<RoundRecord, "accepted" | "rejected">} opened @param {string} who
 * @returns {Reason | null}
 */
export function standing(opened, who) {
  return opened.accepted.includes(who) ? null : (opened.rejected.get(who) ?? "not_passed_on");
}

/** @param {Bytes} bytes @param {Limit} limit @returns {Publication} */
function parsePublication(bytes, limit) {
  /** @type {import("./messages.js").FieldType[]} */
  const types = ["bytes", "bytes", "list of bytes", "bytes"];
  const [sums, total, seals, record] = decode(PUBLICATION, types, bytes, limit);
  return { sums, total, seals, record };
}

/** @param {Bytes} bytes @param {Limit} limit @param {Bytes} cspKey @returns {Promise<RoundRecord>} */
export async function parseRecord(bytes, limit, cspKey) {
  /** @type {import("./messages.js").FieldType[]} */
  const hashes = ["bytes", "list of bytes", "list of bytes"];
  /** @type {import("./messages.js").FieldType[]} */
  const types = ["text", "number", "bytes", "list of text", "list of text", "list of text", ...hashes, "bytes"];
  const fields = decode(RECORD, types, bytes, limit);
  const [task, number, base, accepted, rejected, reasons, opened, masks, seals, signature] = fields;
  if (rejected.length !== reasons.length) {
    throw new ProtocolError("a record whose reasons are not as many as those left out");
  }
  const unsigned = encode(RECORD, [...fields.slice(0, -1), new Uint8Array(0)]);
  const statement = concat(utf8("crowdfl record 2"), unsigned);
  await verify(cspKey, statement, signature);
  const why = reasons.map(reasonOf);
  const left = new Map(rejected.map((/** @type {string} */ who, /** @type {number} */ i) => [who, why[i]]));
  return { task, number, base, accepted, rejected: left, opened, masks, seals, statement };
}

/** @param {RoundRecord} record @param {SharesTask} task @param {number} round @param {Chain} chain */
function checkRecord(record, task, round, chain) {
  if (record.task !== task.task || record.number !== BigInt(round)) {
    throw new ChainBroken(`what was published for round ${round} is of another round or task`);
  }
  if (!equal(record.base, chain.base)) {
    throw new RolledBack(
      `CSP's record of round ${round} does not follow from the model here, which its records have led to: ` +
        "a server was set back, or hides a round. Take no further part in this task",
    );
  }
  const people = record.accepted.length;
  if (new Set(record.accepted).size !== people || people < task.minParticipants) {
    throw new TooFewParticipants(`an average of ${people} participants where ${task.minParticipants} are the least`);
  }
}

/** @param {Publication} message @param {SharesTask} task @param {Bundle} bundle */
function requireLengths({ sums, total }, task, bundle) {
  if (sums.length !== task.parameters * elementBytes(bundle.ringBits) || total.length !== task.countBytes) {
    throw new LengthMismatch(`sums of ${sums.length} and a total of ${total.length} bytes: not those of this task`);
  }
}

/**
 * The seeds of both masks; in the last round there are none for participants.
 * @param {Publication} message @param {RoundRecord} record @param {Place} place @param {Bundle} bundle
 */
async function openSeeds(message, record, place, bundle) {
  const count = SERVERS.length * AUDIENCES.length;
  if (record.masks.length !== SERVERS.length || message.seals.length !== count || record.seals.length !== count) {
    throw new SealBroken("a publication without the seeds of its masks");
  }
  for (const [i, sealed] of message.seals.entries()) {
    if (!equal(await sha256(sealed), record.seals[i])) {
      throw new ChainBroken("the seals that were published are not those of CSP's record");
    }
  }
  const opened = SERVERS.map((server, i) => {
    const context = place("crowdfl mask seed 2", utf8(server), utf8(AUDIENCES[0]));
    return openSeed(server, message.seals[i * AUDIENCES.length], record.masks[i], context, bundle);
  });
  return Promise.all(opened);
}

/** @param {string} server @param {Bytes} sealed @param {Bytes} mask @param {Bytes} context @param {Bundle} bundle */
async function openSeed(server, sealed, mask, context, bundle) {
  const t = await openSealed(bundle.reading, sealed, context);
  if (t.length !== MASK_BYTES || !equal(await sha256(t), mask)) {
    throw new SealBroken(`${server} has sealed another seed than the one that it took for its mask: it cheats`);
  }
  return t;
}

/** @param {Publication} message @param {Bytes[]} masks @param {Place} place @param {SharesTask} task @param {Bundle} bundle */
async function unmasked(message, masks, place, task, bundle) {
  const hidden = await Promise.all(masks.map((t) => expand(t, place("crowdfl mask 1 sums"), message.sums.length)));
  const totals = await Promise.all(masks.map((t) => expand(t, place("crowdfl mask 1 total"), task.countBytes)));
  const total = totals.reduce((left, mask) => left - fromLittleEndian(mask), fromLittleEndian(message.total));
  return { sums: signedDifference(message.sums, hidden, bundle.ringBits), total: BigInt.asUintN(8 * task.countBytes, total) };
}
