// Signed documents, as documents/envelope.py (kind, Ed25519 signature, and the payload as it was signed), and enrolment with them.
// The signature is checked over the bytes that came. KGC appoints no task whose JSON two readers could take for two things.

import { base64url, concat, equal, fromBase64url, fromHex, hex, sha256, text, utf8 } from "./bytes.js";
import { DocumentError, KeyMismatch } from "./errors.js";
import { nameOf } from "./keys.js";
import { decode } from "./messages.js";
import { openSealed, sign, verify } from "./seal.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {Record<string, any>} Body */
/** @typedef {{ task: string, body: Body, requester: Bytes }} Definition */
/** @typedef {{ task: string, fingerprint: string }} Appointment */
/** @typedef {{ task: string, who: string, signing: Bytes, reading: Bytes, replaces: string }} Certificate */
/** @typedef {{ task: string, round: number, who: string, digest: string, late: boolean, unused: boolean }} Receipt */
/** @typedef {import("./keys.js").Keys} Keys */
/** @typedef {{ task: string, request: string, context: Bytes, takesPlace: boolean }} RequestInfo */
/** @typedef {(value: any) => boolean} Fits */

const LONGEST = 1_000_000; // characters
const ENROLLED = 71; // the kind of the message in KGC's answer
const HEADER = /^crowdfl ([a-z-]{1,40}) ([A-Za-z0-9_-]{86}) /;

/** @type {Fits} */
const isText = (value) => typeof value === "string";
/** @type {Fits} */
const isKey = (value) => isText(value) && /^[0-9a-f]{64}$/.test(value);
/** @type {Fits} */
const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @type {Fits} */
const isYesOrNo = (value) => typeof value === "boolean";
/** @type {Fits} */
const isSeconds = (value) => typeof value === "number" && value >= 0 && value <= 1e12;
/** @type {Fits} */
const isSide = (value) => Number.isInteger(value) && value >= 1 && value <= 1e9;
/** @type {Fits} */
const isArray = (value) => Array.isArray(value) && value.length === 2 && isText(value[0]) && Array.isArray(value[1]) && value[1].every(isSide);
/** @type {Fits} Names and sides of the model's arrays. */
const isModel = (value) => Array.isArray(value) && value.every(isArray) && new Set(value.map(([name]) => name)).size === value.length;

/** All fields of each kind that a phone reads. @type {Record<string, Record<string, Fits>>} */
const FIELDS = {
  definition: {
    purpose: isText, terms: isText, readers: isText, arrays: isModel, initial: isText, settings: isTable, plan: isTable, who: isTable, claim_window: isSeconds,
    requester: isKey, payer: (value) => value === "" || isKey(value), training: isTable, language: isText, consent: isTable, texts: isTable,
  },
  appointment: { task: isText, fingerprint: isText },
  certificate: { task: isText, who: isText, signing: isKey, reading: isKey, replaces: isText },
  receipt: { task: isText, round: Number.isSafeInteger, who: isText, digest: isText, late: isYesOrNo, unused: isYesOrNo },
  "consent-receipt": { task: isText, who: isText, digest: isText, at: isSeconds },
  invitation: { task: isText, number: isText, expires: isSeconds, replaces: isText },
};

/**
 * What a document of this kind says, if the owner of this key signed it.
 * @param {string} document
 * @param {string} kind
 * @param {Bytes} key
 */
export async function openDocument(document, kind, key) {
  const { payload, signature } = parts(document, kind);
  await verify(key, signedBytes(kind, payload), signature);
  return readPayload(kind, payload);
}

/** What a document says that was checked before it was kept. @param {string} document @returns {Body} */
export function keptBody(document) {
  return JSON.parse(document.slice(document.indexOf("{")));
}

/** @param {string} document @param {string} kind */
function parts(document, kind) {
  if (document.length > LONGEST) throw new DocumentError(`a ${kind} of ${document.length} characters; at most ${LONGEST} are read`);
  const header = HEADER.exec(document);
  if (!header) throw new DocumentError(`this is not a ${kind}: it must be its kind and signature, then JSON`);
  if (header[1] !== kind) throw new DocumentError(`another document where a ${kind} is expected`);
  return { payload: utf8(document.slice(header[0].length)), signature: fromBase64url(header[2]) };
}

/** What a signature is over: DSSE's encoding of type and payload. @param {string} kind @param {Bytes} payload */
function signedBytes(kind, payload) {
  const type = `application/vnd.crowdfl.${kind}+json`;
  return concat(utf8(`DSSEv1 ${type.length} ${type} ${payload.length} `), payload);
}

/** @param {string} kind @param {Bytes} payload @returns {Body} */
export function readPayload(kind, payload) {
  let body;
  try {
    body = JSON.parse(text(payload));
  } catch {
    throw new DocumentError(`the payload of this ${kind} is not JSON`);
  }
  if (!isTable(body)) throw new DocumentError(`the payload of this ${kind} is not a JSON object`);
  const fields = FIELDS[kind];
  const wrong = Object.keys(fields).find((name) => !Object.hasOwn(body, name) || !fields[name](body[name]));
  const unknown = Object.keys(body).find((name) => !Object.hasOwn(fields, name));
  if (wrong !== undefined) throw new DocumentError(`this ${kind} has a missing or wrong field: ${wrong}`);
  if (unknown !== undefined) throw new DocumentError(`this ${kind} has a field that no ${kind} has`);
  return body;
}

/** @param {string} kind @param {string} payload @param {Bytes} signature */
export function documentText(kind, payload, signature) {
  return `crowdfl ${kind} ${base64url(signature)} ${payload}`;
}

/** @param {string} kind @param {Body} body @param {CryptoKeyPair} signing */
export async function signDocument(kind, body, signing) {
  const payload = JSON.stringify(body);
  return documentText(kind, payload, await sign({ signing }, signedBytes(kind, utf8(payload))));
}

/**
 * A task as its requester signed it. What its settings say, `sharesTask` reads.
 * @param {string} document
 * @returns {Promise<Definition>}
 */
export async function openDefinition(document) {
  const { payload, signature } = parts(document, "definition");
  const body = readPayload("definition", payload); // first: it says whose signature it must have
  const [requester, signed] = [fromHex(body.requester), signedBytes("definition", payload)];
  await verify(requester, signed, signature);
  return { task: hex(await sha256(signed)), body, requester };
}

/** KGC's word that a task has this key. @param {string} document @param {Bytes} kgcKey */
export async function openAppointment(document, kgcKey) {
  return /** @type {Appointment} */ (await openDocument(document, "appointment", kgcKey));
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
 * @param {string} document
 * @param {Bytes} kgcKey
 * @returns {Promise<Certificate>}
 */
export async function openCertificate(document, kgcKey) {
  const { task, who, replaces, ...keys } = await openDocument(document, "certificate", kgcKey);
  const [signing, reading] = [fromHex(keys.signing), fromHex(keys.reading)];
  if (who !== (await nameOf(signing))) {
    throw new DocumentError("this certificate names somebody else than the owner of its signing key");
  }
  return { task, who, signing, reading, replaces };
}

/**
 * A request to certify these keys, and what KGC's answer to it is bound to. Safe to repeat with the same keys.
 * @param {string} task
 * @param {string} invitation Its text.
 * @param {Keys} keys
 * @returns {Promise<RequestInfo>}
 */
export async function enrolmentRequest(task, invitation, keys) {
  const [signing, reading] = [hex(keys.signingPublic), hex(keys.readingPublic)];
  const digest = hex(await sha256(utf8(invitation)));
  const request = await signDocument("enrolment-request", { task, invitation: digest, signing, reading }, keys.signing);
  const context = utf8(`crowdfl enrolment 2 ${task} ${digest} ${signing} ${reading}`);
  return { task, request, context, takesPlace: takesPlace(invitation) };
}

/** Whether an invitation is for somebody who has a place in the task already, with another phone. @param {string} invitation */
export function takesPlace(invitation) {
  return keptBody(invitation).replaces !== "";
}

/**
 * The owner agrees to the consent text, as read in this language ("": the task's own); signed with the phone's key.
 * @param {Definition} definition @param {Keys} keys @param {number} at Seconds since 1970. @param {string} [language]
 */
export async function signConsent({ task, body }, keys, at, language = "") {
  const read = hex(await sha256(utf8(consentText(body, language))));
  const said = { task, version: body.consent.version, language, text: read, signing: hex(keys.signingPublic), at };
  return signDocument("consent", said, keys.signing);
}

/** @param {Body} body A definition's. @param {string} language */
const consentText = (body, language) => (language ? body.texts[language].consent : body.consent.text);

/**
 * Refuse a receipt of another consent than this one.
 * @param {string} document @param {Bytes} spKey @param {{ task: string, who: string, consent: string }} sent
 */
export async function checkConsentReceipt(document, spKey, { task, who, consent }) {
  const receipt = await openDocument(document, "consent-receipt", spKey);
  if (receipt.task !== task || receipt.who !== who || receipt.digest !== hex(await sha256(utf8(consent)))) {
    throw new DocumentError("the platform's receipt is not for your consent: keep it and complain");
  }
}

/**
 * What the owner keeps, as JSON: the text that was agreed to, the signed consent, and SP's signed receipt.
 * @param {Body} body The definition's. @param {string} consent @param {string | null} receipt
 */
export function consentCopy(body, consent, receipt) {
  const { task, version, language } = keptBody(consent);
  const { logo: _logo, ...asker } = body.who;
  const copy = { task, purpose: body.purpose, "asked by": asker, version, language, text: consentText(body, language), consent, receipt };
  return `${JSON.stringify(copy, null, 2)}\n`;
}

/**
 * KGC's answer, checked: the certificate is for this task and these keys. The bundle is not: compare it with the appointment.
 * @param {Bytes} sealed
 * @param {RequestInfo} info
 * @param {Keys} keys
 * @param {Bytes} kgcKey
 * @returns {Promise<{ certificate: string, bundle: Bytes }>}
 */
export async function openEnrolled(sealed, info, keys, kgcKey) {
  const [certificate, bundle] = decode(ENROLLED, ["text", "bytes"], await openSealed(keys.reading, sealed, info.context));
  const { task, signing, reading, replaces } = await openCertificate(certificate, kgcKey);
  if (task !== info.task || Boolean(replaces) !== info.takesPlace || !equal(signing, keys.signingPublic) || !equal(reading, keys.readingPublic)) {
    throw new DocumentError("KGC certified another task or other keys than it was asked to: tell the requester");
  }
  return { certificate, bundle };
}

/**
 * Refuse a receipt that would prove nothing later: whether SP counts this upload as late, or does not use it.
 * @param {string} document
 * @param {Bytes} spKey
 * @param {{ task: string, round: number, who: string, upload: Bytes }} sent
 */
export async function checkReceipt(document, spKey, { task, round, who, upload }) {
  const receipt = /** @type {Receipt} */ (await openDocument(document, "receipt", spKey));
  const digest = hex(await sha256(upload));
  if (receipt.task !== task || receipt.round !== round || receipt.who !== who || receipt.digest !== digest) {
    throw new DocumentError(`the platform's receipt is not for this upload of round ${round}: keep it and complain`);
  }
  return { late: receipt.late, unused: receipt.unused };
}
