// Signed documents, as documents/envelope.py (kind, Ed25519 signature, and the payload as it was signed), and enrolment with them.
// The signature is checked over the bytes that came. KGC appoints no task whose JSON two readers could take for two things.

import { base64url, concat, fromBase64url, fromHex, hex, sha256, text, utf8 } from "./bytes.js";
import { DocumentError, FormatError, KeyMismatch } from "./errors.js";
import { completed, numbered } from "./forms.js";
import { uploadDigest } from "./heads.js";
import { signingPair } from "./keys.js";
import { MOST_DEVICES } from "./limits.js";
import { decode } from "./messages.js";
import { openSealed } from "./seal.js";
import { isSigned, sign, verify } from "./signing.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {Record<string, any>} Body */
/** @typedef {{ task: string, body: Body, requester: Bytes }} Definition */
/** @typedef {{ task: string, fingerprint: string, csp: string }} Appointment */
/** @typedef {{ task: string, who: string, invitation: string, request: string }} Certificate */
/** @typedef {{ task: string, round: number, who: string, digest: string, late: boolean, unused: boolean }} Receipt */
/** @typedef {import("./keys.js").Keys} Keys */
/** @typedef {{ task: string, invitation: string, request: string, context: Bytes }} RequestInfo */
/** @typedef {(value: any) => boolean} Fits */

const LONGEST = 1_000_000; // characters
const LAST_DATE = 253_402_300_799; // the end of the year 9999, in seconds since 1970
const ENROLLED = 71; // the kind of the message in KGC's answer
const HEADER = /^crowdfl ([a-z-]{1,40}) ([A-Za-z0-9_-]{86}) /;

/** @type {Fits} */
const isText = (value) => typeof value === "string";
/** @type {Fits} */
const isKey = (value) => isText(value) && /^[0-9a-f]{64}$/.test(value);
/** @type {Fits} */
const isKeyOrNone = (value) => value === "" || isKey(value);
/** @type {Fits} Of an invitation: a place in the task. */
const isNumber = (value) => isText(value) && /^[0-9a-f]{32}$/.test(value);
/** @type {Fits} Which one of a person's. */
const isDevice = (value) => Number.isInteger(value) && value >= 1 && value <= MOST_DEVICES;
/** @type {Fits} */
const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @type {Fits} */
const isYesOrNo = (value) => typeof value === "boolean";
/** @type {Fits} */
const isSeconds = (value) => typeof value === "number" && value >= 0 && value <= 1e12;
/** @type {Fits} A whole number of seconds since 1970. */
const isMoment = (value) => Number.isSafeInteger(value) && value >= 1 && value <= LAST_DATE;
/** @type {Fits} */
const isSide = (value) => Number.isInteger(value) && value >= 1 && value <= 1e9;
/** @type {Fits} */
const isArray = (value) => Array.isArray(value) && value.length === 2 && isText(value[0]) && Array.isArray(value[1]) && value[1].every(isSide);
/** @type {Fits} Names and sides of the model's arrays. */
const isModel = (value) => Array.isArray(value) && value.every(isArray) && new Set(value.map(([name]) => name)).size === value.length;

/** All fields of each kind that a phone reads. @type {Record<string, Record<string, Fits>>} */
const FIELDS = {
  definition: {
    purpose: isText, terms: isText, readers: isText, arrays: isModel, initial: isText, settings: isTable, plan: isTable, who: isTable, rounds_until: isMoment,
    claims_until: isMoment, requester: isKey, payer: isKeyOrNone, recruiter: isKeyOrNone, training: isTable, language: isText, consent: isTable, texts: isTable,
  },
  appointment: { task: isText, fingerprint: isText, csp: isKeyOrNone },
  certificate: { task: isText, who: isText, invitation: isText, request: isText },
  receipt: { task: isText, round: Number.isSafeInteger, who: isText, digest: isText, late: isYesOrNo, unused: isYesOrNo },
  "consent-receipt": { task: isText, who: isText, digest: isText, at: isSeconds },
  "claims-extension": { task: isText, until: isMoment },
  invitation: { task: isText, number: isNumber, device: isDevice, key: isKey, expires: isSeconds },
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
  const start = document.indexOf("{");
  return completed(document.split(" ", 2)[1], JSON.parse(document.slice(start)));
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
  body = completed(kind, body);
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
  const payload = JSON.stringify(numbered(kind, body));
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
  if (body.recruiter === body.requester) throw new DocumentError("a definition that names its requester as the recruiter, who is the platform");
  if (body.claims_until < body.rounds_until) throw new DocumentError("a definition whose last day of claims is before its last day of rounds");
  return { task: hex(await sha256(signed)), body, requester };
}

/** KGC's word that a task has this key. @param {string} document @param {Bytes} kgcKey */
export async function openAppointment(document, kgcKey) {
  return /** @type {Appointment} */ (await openDocument(document, "appointment", kgcKey));
}

/**
 * A later last day of claims, by whoever signs the records of rounds; once, and by no more than the time to claim.
 * @param {string} document @param {Bytes} cspKey @param {{ task: string, roundsUntil: number, claimsUntil: number }} task @returns {Promise<number>} Seconds since 1970.
 */
export async function openExtension(document, cspKey, { task, roundsUntil, claimsUntil }) {
  const found = await openDocument(document, "claims-extension", cspKey);
  if (found.task !== task) throw new DocumentError("a later last day of claims of another task");
  if (found.until <= claimsUntil || found.until - claimsUntil > claimsUntil - roundsUntil) {
    throw new DocumentError("the last day of claims cannot be moved so: by no more than the time to claim, and not back");
  }
  return found.until;
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
 * A request to certify these keys, signed with the invitation's key and, for the signing key, with its own; and what KGC's answer
 * to it is bound to. Safe to repeat with the same keys.
 * @param {string} task
 * @param {string} ticket The invitation behind its private key, as its link holds both.
 * @param {Keys} keys
 * @returns {Promise<RequestInfo>}
 */
export async function enrolmentRequest(task, ticket, keys) {
  const [letters, invitation] = [ticket.slice(0, ticket.indexOf(" ")), ticket.slice(ticket.indexOf(" ") + 1)];
  const { number, device, key } = keptBody(invitation);
  const [signing, reading] = [hex(keys.signingPublic), hex(keys.readingPublic)];
  const context = utf8(`crowdfl enrolment 3 ${task} ${number} ${device} ${signing} ${reading}`);
  const body = { task, number, device, signing, reading, proof: hex(await sign(keys, context)) };
  const request = await signDocument("enrolment-request", body, await signingPair(fromBase64url(letters), fromHex(key)));
  const { payload, signature } = parts(request, "enrolment-request");
  if (!(await isSigned(fromHex(key), signedBytes("enrolment-request", payload), signature))) {
    throw new FormatError("this link is damaged: its key is not the one that the requester signed");
  }
  return { task, invitation, request, context };
}

/**
 * What SP has signed for a key of this phone's, as a ticket; KGC looks whose signature it has.
 * @param {string} invitation @param {string} task @param {{ secret: Bytes, open: string }} key
 */
export function openRecruited(invitation, task, key) {
  const found = readPayload("invitation", parts(invitation, "invitation").payload);
  if (found.task !== task || found.key !== key.open || found.device !== 1) {
    throw new DocumentError("the platform has signed another key or task than it was asked to: nothing is joined");
  }
  return `${base64url(key.secret)} ${invitation}`;
}

/** Whether an invitation is for somebody who has a place in the task already, with another phone. @param {string} ticket */
export function takesPlace(ticket) {
  return keptBody(ticket).device > 1;
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
 * KGC's answer, checked: the certificate is for this very request. The bundle is not: compare it with the appointment.
 * @param {Bytes} sealed
 * @param {RequestInfo} info
 * @param {Keys} keys
 * @param {Bytes} kgcKey
 * @returns {Promise<{ certificate: string, bundle: Bytes }>}
 */
export async function openEnrolled(sealed, info, keys, kgcKey) {
  const [certificate, bundle] = decode(ENROLLED, ["text", "bytes"], await openSealed(keys.reading, sealed, info.context));
  const found = /** @type {Certificate} */ (await openDocument(certificate, "certificate", kgcKey));
  if (found.task !== info.task || found.who !== keys.who || found.invitation !== info.invitation || found.request !== info.request) {
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
  const digest = await uploadDigest(upload);
  if (receipt.task !== task || receipt.round !== round || receipt.who !== who || receipt.digest !== digest) {
    throw new DocumentError(`the platform's receipt is not for this upload of round ${round}: keep it and complain`);
  }
  return { late: receipt.late, unused: receipt.unused };
}
