// Signed documents, as documents/signed.py reads them: JSON with a kind, a body and an Ed25519 signature over both.

import { equal, fromHex, hex, sha256, utf8 } from "./bytes.js";
import { CrowdFLError, DocumentError, KeyMismatch } from "./errors.js";
import { dumpJson, floatText, NumberToken, parseJson, plain } from "./json.js";
import { nameOf } from "./keys.js";
import { sign, verify } from "./seal.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./json.js").Json} Json */
/** @typedef {Map<string, Json>} Body */
/** @typedef {{ task: string, body: Record<string, any>, requester: Bytes }} Definition */
/** @typedef {{ task: string, fingerprint: string }} Appointment */
/** @typedef {{ task: string, who: string, signing: Bytes, reading: Bytes }} Certificate */
/** @typedef {{ task: string, round: number, who: string, digest: string, late: boolean }} Receipt */

const LONGEST = 1_000_000;
const LONGEST_WINDOW = 1e12; // seconds
const LONGEST_SIDE = 1e9;

/**
 * The body of a document of this kind; with a key, only if its owner signed it.
 * @param {string} text
 * @param {string} kind
 * @param {Bytes | null} key
 * @returns {Promise<Record<string, any>>}
 */
export async function openDocument(text, kind, key) {
  return plain(await openBody(text, kind, key));
}

/**
 * @param {string} text
 * @param {string} kind
 * @param {Bytes | null} key
 * @returns {Promise<Body>}
 */
async function openBody(text, kind, key) {
  const { body, signature } = parts(text, kind);
  if (key !== null) await verify(key, canonical(kind, body), signature);
  return body;
}

/**
 * @param {string} text
 * @param {string} kind
 */
function parts(text, kind) {
  if (text.length > LONGEST) throw new DocumentError(`a ${kind} of ${text.length} characters; at most ${LONGEST} are read`);
  const document = parseJson(text);
  if (!(document instanceof Map)) {
    throw new DocumentError(`this is not a ${kind}: it must be JSON with kind, body and signature`);
  }
  const [found, body] = [document.get("kind"), document.get("body")];
  const signature = fromDigits(document, "signature", kind);
  if (found !== kind) throw new DocumentError(`another document where a ${kind} is expected`);
  if (!(body instanceof Map)) throw new DocumentError(`this ${kind} has no body`);
  return { body, signature };
}

/**
 * What the signature of a document is over.
 * @param {string} kind
 * @param {Body} body
 */
function canonical(kind, body) {
  return utf8(`crowdfl ${kind} 1 ${dumpJson(body)}`);
}

/**
 * A document of strings, as Python's `sign_document` writes it.
 * @param {string} kind
 * @param {Record<string, string>} body
 * @param {CryptoKeyPair} signing
 */
export async function signDocument(kind, body, signing) {
  /** @type {Body} */
  const fields = new Map(Object.entries(body));
  const signature = hex(await sign({ signing }, canonical(kind, fields)));
  /** @type {Body} */
  const document = new Map(Object.entries({ kind, body: fields, signature }));
  return dumpJson(document, { spaces: true });
}

/**
 * A task as its requester signed it. What its settings say, `sharesTask` reads.
 * @param {string} text
 * @returns {Promise<Definition>}
 */
export async function openDefinition(text) {
  const kind = "definition";
  const body = await openBody(text, kind, null);
  const requester = fromDigits(body, "requester", kind);
  const known = definitionBody(body, requester);
  await openBody(text, kind, requester);
  const task = hex(await sha256(canonical(kind, known))).slice(0, 32);
  return { task, body: plain(known), requester };
}

/**
 * The fields that a task's id is made of, in the form that every reader gives them.
 * @param {Body} body
 * @param {Bytes} requester
 * @returns {Body}
 */
function definitionBody(body, requester) {
  const strings = ["purpose", "terms", "readers", "initial"].map((name) => pair(name, string(body, name, "definition")));
  const window = number(body, "claim_window", LONGEST_WINDOW);
  return new Map([
    ...strings,
    pair("arrays", arrays(body.get("arrays"))),
    pair("settings", table(body, "settings")),
    pair("claim_window", new NumberToken(floatText(window))),
    pair("requester", hex(requester)),
    pair("training", table(body, "training")),
  ]);
}

/**
 * @param {string} name
 * @param {Json} value
 * @returns {[string, Json]}
 */
function pair(name, value) {
  return [name, value];
}

/**
 * Names and sides of the model's arrays.
 * @param {Json | undefined} value
 */
function arrays(value) {
  if (!Array.isArray(value) || !value.every(isArray)) throw wrong("definition", "arrays", "expected names and sides");
  const names = value.map((entry) => /** @type {Json[]} */ (entry)[0]);
  if (new Set(names).size !== names.length) throw wrong("definition", "arrays", "two arrays have the same name");
  return value;
}

/** @param {Json} entry */
function isArray(entry) {
  if (!Array.isArray(entry) || entry.length !== 2) return false;
  const [name, sides] = entry;
  return typeof name === "string" && Array.isArray(sides) && sides.every(isSide);
}

/** @param {Json} side */
function isSide(side) {
  return side instanceof NumberToken && side.isInteger && side.value >= 1 && side.value <= LONGEST_SIDE;
}

/**
 * KGC's word that a task has this key.
 * @param {string} text
 * @param {Bytes} kgcKey
 * @returns {Promise<Appointment>}
 */
export async function openAppointment(text, kgcKey) {
  const body = await openBody(text, "appointment", kgcKey);
  return { task: string(body, "task", "appointment"), fingerprint: string(body, "fingerprint", "appointment") };
}

/**
 * Whoever is given a key for a task makes sure that it is this one, before it keeps or uses it.
 * @param {Appointment} appointment
 * @param {Bytes} fingerprint
 */
export function requireKey(appointment, fingerprint) {
  if (hex(fingerprint) === appointment.fingerprint) return;
  throw new KeyMismatch(
    `the key received for this task is ${hex(fingerprint).slice(0, 16)}, and KGC appointed another: nothing is kept; ` +
      "ask whoever invited you which one is right",
  );
}

/**
 * KGC's word that these are a participant's keys.
 * @param {string} text
 * @param {Bytes} kgcKey
 * @returns {Promise<Certificate>}
 */
export async function openCertificate(text, kgcKey) {
  const kind = "certificate";
  const body = await openBody(text, kind, kgcKey);
  const [signing, reading] = [fromDigits(body, "signing", kind), fromDigits(body, "reading", kind)];
  const who = string(body, "who", kind);
  if (who !== (await nameOf(signing))) {
    throw new DocumentError("this certificate names somebody else than the owner of its signing key");
  }
  return { task: string(body, "task", kind), who, signing, reading };
}

/**
 * SP's word that it has an upload.
 * @param {string} text
 * @param {Bytes} spKey
 * @returns {Promise<Receipt>}
 */
export async function openReceipt(text, spKey) {
  const kind = "receipt";
  const body = await openBody(text, kind, spKey);
  const [round, late] = [body.get("round"), body.get("late")];
  if (!(round instanceof NumberToken) || !round.isInteger) throw wrong(kind, "round", "expected a whole number");
  const [task, who, digest] = ["task", "who", "digest"].map((name) => string(body, name, kind));
  return { task, round: round.value, who, digest, late: late === true };
}

/**
 * Refuse a receipt that would prove nothing later: whether SP counts this upload as late.
 * @param {string} text
 * @param {Bytes} spKey
 * @param {{ task: string, round: number, who: string, upload: Bytes }} sent
 */
export async function checkReceipt(text, spKey, { task, round, who, upload }) {
  const receipt = await openReceipt(text, spKey);
  const digest = hex(await sha256(upload));
  if (receipt.task !== task || receipt.round !== round || receipt.who !== who || receipt.digest !== digest) {
    throw new DocumentError(`the platform's receipt is not for this upload of round ${round}: keep it and complain`);
  }
  return receipt.late;
}

/**
 * @param {Body} body
 * @param {string} name
 * @param {string} kind
 */
function string(body, name, kind) {
  const value = body.get(name);
  if (typeof value !== "string") throw wrong(kind, name, "expected a string");
  return value;
}

/**
 * @param {Body} body
 * @param {string} name
 * @param {number} most
 */
function number(body, name, most) {
  const value = body.get(name);
  if (!(value instanceof NumberToken) || !(value.value >= 0 && value.value <= most)) {
    throw wrong("definition", name, `expected a number, 0 to ${most}`);
  }
  return value.value;
}

/**
 * @param {Body} body
 * @param {string} name
 */
function table(body, name) {
  const value = body.get(name);
  if (!(value instanceof Map)) throw wrong("definition", name, "expected a table");
  return value;
}

/**
 * @param {Body} body
 * @param {string} name
 * @param {string} kind
 */
function fromDigits(body, name, kind) {
  try {
    return fromHex(string(body, name, kind));
  } catch (error) {
    throw error instanceof CrowdFLError ? wrong(kind, name, "expected hexadecimal digits") : error;
  }
}

/**
 * @param {string} kind
 * @param {string} name
 * @param {string} why
 */
function wrong(kind, name, why) {
  return new DocumentError(`this ${kind} has a missing or wrong field: ${name}: ${why}`);
}

/**
 * Whether a certificate is for these very keys.
 * @param {Certificate} certificate
 * @param {string} task
 * @param {{ who: string, signingPublic: Bytes, readingPublic: Bytes }} keys
 */
export function certifies(certificate, task, keys) {
  const same = equal(certificate.signing, keys.signingPublic) && equal(certificate.reading, keys.readingPublic);
  return same && certificate.task === task && certificate.who === keys.who;
}
