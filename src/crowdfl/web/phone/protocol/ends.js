// CSP's signed word about a round that SP has given up, as protocols/shares/round/ends.py: nothing of it is opened, and of whom bits were shown.

import { concat, utf8 } from "./bytes.js";
import { limitsOf } from "./bundle.js";
import { parseRecord, standing } from "./average.js";
import { ProtocolError } from "./errors.js";
import { decode, encode, kindOf } from "./messages.js";
import { reasonOf } from "./reasons.js";
import { verify } from "./signing.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./reasons.js").Reason} Reason */
/**
 * @typedef {object} RoundWord What it says of one participant.
 * @property {Reason | null} why Why its upload was left out, if it was.
 * @property {boolean} shown Whether CSP has shown SP whether it is within the bounds.
 * @property {Bytes | null} record Of a sum that was opened all the same.
 */

const END = 69;
const RECORD = 57;

/**
 * @param {import("./settings.js").SharesTask} task @param {import("./bundle.js").Bundle} bundle @param {string} who @param {Bytes} bytes
 * @param {number} round @returns {Promise<RoundWord>}
 */
export async function readEnd(task, bundle, who, bytes, round) {
  const limits = limitsOf(task, bundle);
  const isAbout = (/** @type {string} */ named, /** @type {bigint} */ number) => named === task.task && number === BigInt(round);
  if (kindOf(bytes) === RECORD) {
    const record = await parseRecord(bytes, limits.record, bundle.cspSigning);
    if (!isAbout(record.task, record.number)) throw new ProtocolError(`what was shown for round ${round} is CSP's record of another round or task`);
    return { why: standing(record, who), shown: true, record: bytes };
  }
  const fields = decode(END, ["text", "number", "list of text", "list of text", "list of text", "bytes"], bytes, limits.end);
  const [named, number, shown, rejected, reasons, signature] = fields;
  if (rejected.length !== reasons.length) throw new ProtocolError("an end of a round whose reasons are not as many as those left out");
  const unsigned = encode(END, [...fields.slice(0, -1), new Uint8Array(0)]);
  await verify(bundle.cspSigning, concat(utf8("crowdfl round end 1"), unsigned), signature);
  if (!isAbout(named, number)) throw new ProtocolError(`what was shown for round ${round} is the end of another round or task`);
  const left = new Map(rejected.map((/** @type {string} */ one, /** @type {number} */ i) => [one, reasonOf(reasons[i])]));
  return { why: left.get(who) ?? null, shown: shown.includes(who), record: null };
}
