// Where SP's word and CSP's signed record differ: what each said of an upload, kept, and whom to show it to. The port of
// roles/participant/evidence.py.

import { named } from "./holdings.js";

/** @typedef {import("./holdings.js").Holdings} Holdings */
/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */
/** @typedef {import("../protocol/reasons.js").Reason} Reason */

/** What SP said of an upload, or of a round. */
export const SAID = /** @type {const} */ (["taken", "refused", "unused", "deleted", "nobody_looked", "no_average"]);
/** What CSP has signed of the same; "nothing" that SP shows. */
export const SIGNED = /** @type {const} */ (["accepted", "rejected", "absent", "shown", "two_records", "nothing"]);
/** @typedef {typeof SAID[number]} Said */
/** @typedef {typeof SIGNED[number]} Signed */
/** @typedef {{ said: Said, signed: Signed }} Difference */

const WITHOUT_UPLOAD = ["refused", "unused", "deleted"];

/** Of what a record says of somebody. @param {Reason | null} why @returns {Signed} */
export function signedOf(why) {
  if (why === null) return "accepted";
  return why === "not_passed_on" ? "absent" : "rejected";
}

/** Whether an honest SP could not have said this. One that never answered has said nothing. @param {Said | null} said @param {Signed} signed */
export function contradicts(said, signed) {
  return signed === "absent" ? said === "taken" : said !== null && WITHOUT_UPLOAD.includes(said);
}

/** SP's last word about an upload to a round. @param {Holdings} kept @param {number} number @returns {Promise<Said | null>} */
export async function saidOf(kept, number) {
  if ((await kept.get("withdrawn"))?.deleted.includes(number)) return "deleted";
  if ((await kept.of(number, "reward"))?.unused || (await kept.hasAny(number, "unused"))) return "unused";
  if (await kept.hasAny(number, "refused")) return "refused";
  return (await kept.holdsReceipt(number)) ? "taken" : null;
}

/**
 * What is kept of a difference: the first of a round stands, once something signed is in it.
 * @param {Holdings} kept @param {number} number @param {Difference} found @returns {Promise<Record<string, Difference>>}
 */
export async function difference(kept, number, found) {
  const before = await kept.of(number, "differs");
  const stands = before !== undefined && (before.signed !== "nothing" || found.signed === "nothing");
  return stands ? {} : { [named(number, "differs")]: found };
}

/**
 * What CSP has signed of this participant's upload counts, whatever SP said of it: what is kept and removed, and what is told. A
 * record that does not name an upload without a receipt says nothing: it may have come too late. One that names it counts also for
 * a phone that was set back, and has forgotten that it made one.
 * @param {import("./participant_context.js").ParticipantContext} context @param {number} number @param {Reason | null} why
 * @param {Said} [now] SP's word, where it is not kept yet.
 */
export async function heeded(context, number, why, now) {
  const { kept } = context;
  const [said, signed] = [now ?? (await saidOf(kept, number)), signedOf(why)];
  /** @type {{put: Record<string, unknown>, remove: string[], tell: [string, Record<string, unknown>][]}} */
  const found = { put: {}, remove: [], tell: [] };
  if (signed === "absent" && said !== "taken") return found;
  if (said !== null && contradicts(said, signed)) {
    Object.assign(found.put, await difference(kept, number, { said, signed }));
    const isNew = Object.keys(found.put).length > 0;
    if (isNew && said !== "taken") found.tell.push(["words differ", { round: number, said, signed }]);
  }
  const before = await kept.of(number, "no-reward");
  if (why === null) {
    if (before === "withdrawn") found.remove.push(named(number, "no-reward"));
    const debt = (await kept.of(number, "reward"))?.unused; // the record takes its place: paid once
    if (debt) {
      found.put[named(number, "unused")] = debt;
      found.remove.push(named(number, "reward"), named(number, "answer"));
    }
    found.put[named(number, "accepted")] = true;
  } else if (before === undefined || before === "withdrawn") {
    const stop = await stopFor(context, number, why);
    Object.assign(found.put, { [named(number, "no-reward")]: why }, stop === null ? {} : { stopped: stop, left: context.now() });
    found.tell.push(["upload rejected", { round: number, why }]);
    if (stop !== null) found.tell.push(["stopped", { why: stop }]);
  }
  return found;
}

/**
 * What leaves this phone keeps the task's bounds. If it is rejected all the same, a server has asked a question with it: why
 * this phone takes no further part, or null. Where uploads are compared with a reference, honest ones may be left out too.
 * @param {import("./participant_context.js").ParticipantContext} context @param {number} number @param {Reason} why
 */
async function stopFor(context, number, why) {
  if ((await context.shares()).hasReference) return null;
  if (why === "not_passed_on") return context.kept.unshown();
  return `your upload of round ${number} kept the task's bounds and was rejected all the same (${why})`;
}

/**
 * All of it as a file, with what it is checked with; null if nothing differs. What was signed stands there as the bytes that were.
 * @param {import("./participant_context.js").ParticipantContext} context
 */
export async function evidenceCopy(context) {
  const { kept, task } = context;
  const numbers = await kept.rounds("differs");
  if (!numbers.length) return null;
  const { definition } = await context.papers();
  const { cspSigning } = await context.bundle();
  const { deleted = [], standing = [] } = (await kept.get("withdrawn")) ?? {};
  const copy = {
    task,
    send_to: { contact: definition.body.who?.contact ?? "", payer: definition.body.payer ?? "" },
    record_key: context.protocol.hex(cspSigning),
    certificate: await kept.get("certificate"),
    withdrawal: { deleted, standing },
    rounds: await Promise.all(numbers.map((number) => roundCopy(kept, number))),
  };
  return { name: `evidence-${task.slice(0, 8)}.json`, text: JSON.stringify(copy, null, 2) };
}

/** @param {Holdings} kept @param {number} number */
async function roundCopy(kept, number) {
  const { said, signed } = /** @type {Difference} */ (await kept.of(number, "differs"));
  const [refused, receipt, lost, unused] = await Promise.all(
    /** @type {const} */ (["refused", "receipt", "lost-receipt", "unused"]).map((key) => kept.of(number, key)));
  const [record, second, end] = await Promise.all(/** @type {const} */ (["record", "second-record", "end"]).map((key) => kept.of(number, key)));
  return {
    round: number,
    sp: { code: said, answer: refused?.why, receipt, lost_receipt: lost, unused_receipt: unused },
    csp: { code: signed, record: base64(record), second_record: base64(second), end: base64(end) },
  };
}

/** @param {Bytes | undefined} bytes */
function base64(bytes) {
  return bytes && btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(""));
}
