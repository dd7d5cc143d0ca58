// Where a participant wants to be paid, as documents/destination.py: signed by its key, sealed to the payer whom the requester has
// named, and bound to task, name and a counter: each new one of a person has the next. All sealed ones have one length.

import { fromHex, hex, utf8 } from "./bytes.js";
import { signDocument } from "./documents.js";
import { CrowdFLError } from "./errors.js";
import { sealTo } from "./seal.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./keys.js").Keys} Keys */

export const PAY_KINDS = ["email", "iban", "text"];
const LONGEST = 200; // characters
const PADDED = 1536; // bytes
const EMAIL = /^[^\s@,;:<>()[\]"\\]{1,64}@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,63}$/;
const IBAN = /^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$/;
const PRINTABLE = /^[^\p{C}\p{Z}]+( [^\p{C}\p{Z}]+)*$/u;

/** What was typed cannot be a destination; `code` says why, for a catalogue: empty, long, email, iban or kind. */
export class WrongDestination extends CrowdFLError {
  /** @param {"empty" | "long" | "email" | "iban" | "kind"} code */
  constructor(code) {
    super(`this is no destination: ${code}`);
    this.code = code;
  }
}

/** As it is sent: an IBAN without spaces and in capitals. @param {string} kind @param {string} text @returns {string} */
export function checkDestination(kind, text) {
  const words = text.split(/\s+/).filter(Boolean);
  const to = kind === "iban" ? words.join("").toUpperCase() : words.join(" ");
  if (!PAY_KINDS.includes(kind)) throw new WrongDestination("kind");
  if (!to || !PRINTABLE.test(to)) throw new WrongDestination("empty");
  if ([...to].length > LONGEST) throw new WrongDestination("long");
  if (kind === "email" && !EMAIL.test(to)) throw new WrongDestination("email");
  if (kind === "iban" && !isIban(to)) throw new WrongDestination("iban");
  return to;
}

/** ISO 13616: letters count from 10 on, and the whole is 1 modulo 97. @param {string} text */
function isIban(text) {
  if (!IBAN.test(text)) return false;
  const digits = [...text.slice(4), ...text.slice(0, 4)].map((one) => parseInt(one, 36)).join("");
  return BigInt(digits) % 97n === 1n;
}

/**
 * @param {string} task @param {string} payer Its key, in hex. @param {Keys} keys @param {number} counter From 1.
 * @param {string} kind @param {string} to As `checkDestination` gives it. @returns {Promise<Bytes>}
 */
export async function sealDestination(task, payer, keys, counter, kind, to) {
  const body = { task, who: keys.who, signing: hex(keys.signingPublic), payer, counter: String(counter), way: kind, to };
  const padded = new Uint8Array(PADDED).fill(32); // spaces
  padded.set(utf8(await signDocument("destination", body, keys.signing)));
  return sealTo(fromHex(payer), padded, utf8(`crowdfl destination 2 ${task} ${keys.who} ${counter}`));
}
