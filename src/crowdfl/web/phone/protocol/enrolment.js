// Enrolment, as roles/participant/enrolment.py: a signed request, and KGC's answer, which is sealed to the reading key.

import { hex, sha256, utf8 } from "./bytes.js";
import { certifies, openCertificate, signDocument } from "./documents.js";
import { DocumentError, Truncated } from "./errors.js";
import { openSealed } from "./seal.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./keys.js").Keys} Keys */
/** @typedef {{ task: string, request: string, context: Bytes }} RequestInfo */

const LENGTH_BYTES = 4;
const replacing = new TextDecoder("utf-8", { ignoreBOM: true });

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
  const request = await signDocument("request to enrol", { task, invitation: digest, signing, reading }, keys.signing);
  return { task, request, context: utf8(`crowdfl enrolment 2 ${task} ${digest} ${signing} ${reading}`) };
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
  const enrolled = splitEnrolled(await openSealed(keys.reading, sealed, info.context));
  if (!certifies(await openCertificate(enrolled.certificate, kgcKey), info.task, keys)) {
    throw new DocumentError("KGC certified another task or other keys than it was asked to: tell the requester");
  }
  return enrolled;
}

/** @param {Bytes} opened */
export function splitEnrolled(opened) {
  const length = opened.length < LENGTH_BYTES ? 0 : new DataView(opened.buffer, opened.byteOffset).getUint32(0);
  const end = LENGTH_BYTES + length;
  if (opened.length < end) throw new Truncated("KGC's answer ends inside the certificate: join again");
  return { certificate: replacing.decode(opened.slice(LENGTH_BYTES, end)), bundle: opened.slice(end) };
}
