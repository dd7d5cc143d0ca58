// An invitation, or a task that SP lists, from its link: in the fragment, which a browser never sends; documents/links.py writes it.

import { base64url, fromBase64url, utf8 } from "./bytes.js";
import { documentText, readPayload } from "./documents.js";
import { FormatError, LimitExceeded, PlainHttpRefused } from "./errors.js";
import { decode } from "./messages.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/**
 * Whoever has it can join once: it is a secret.
 * @typedef {object} Invitation
 * @property {string} task
 * @property {string} invitation The document as its requester signed it, behind its private key; "": SP is asked for one.
 * @property {string} kgc Address of KGC, without a slash at its end.
 * @property {string} sp Address of SP, the same.
 * @property {Bytes} kgcKey
 * @property {Bytes} spKey
 * @property {number | null} expires Seconds since 1970; null: never.
 * @property {string} place Of its person in the task: the first digits, to compare.
 * @property {boolean} replaces Whether it takes the place of another phone of the same person.
 */

const KIND = 70;
const LISTED = 72; // of a task that SP lists: nothing secret
const KIND_AT = 5; // in a message's bytes
const LONGEST = 4096; // characters
const LIMIT = { field: LONGEST, entries: 0 };
const TASK = /^[0-9a-f]{64}$/;
const LOOPBACK = /^(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])$/;

/**
 * @param {string} fragment With or without its `#`.
 * @param {string} pageOrigin Where SP is if the link does not say.
 * @returns {Invitation} Nothing says yet who signed it: KGC knows whose signature it must have.
 */
export function parseLink(fragment, pageOrigin) {
  const digits = fragment.replace(/^#/, "");
  if (digits.length > LONGEST) throw new LimitExceeded("this link is too long: it is not an invitation");
  const bytes = fromBase64url(digits);
  if (bytes[KIND_AT] === LISTED) return listed(bytes, pageOrigin);
  /** @type {import("./messages.js").FieldType[]} */
  const types = ["text", "bytes", "bytes", "text", "text", "bytes", "bytes"];
  const [payload, signature, key, kgc, sp, kgcKey, spKey] = decode(KIND, types, bytes, LIMIT);
  if (signature.length !== 64 || key.length !== 32 || kgcKey.length !== 32 || spKey.length !== 32) {
    throw new FormatError("this link is damaged: a key or a signature in it has another length");
  }
  const { task, number, expires, device } = readPayload("invitation", utf8(payload));
  if (!TASK.test(task)) throw new FormatError("this link is damaged: it does not name a task");
  const invitation = `${base64url(key)} ${documentText("invitation", payload, signature)}`;
  return { task, invitation, kgc: address(kgc), sp: address(sp || pageOrigin), kgcKey, spKey, expires, place: String(number).slice(0, 8), replaces: device > 1 };
}

/** @param {Bytes} bytes @param {string} pageOrigin @returns {Invitation} */
function listed(bytes, pageOrigin) {
  const [task, kgc, sp, kgcKey, spKey] = decode(LISTED, ["text", "text", "text", "bytes", "bytes"], bytes, LIMIT);
  if (kgcKey.length !== 32 || spKey.length !== 32) throw new FormatError("this link is damaged: a key in it has another length");
  if (!TASK.test(task)) throw new FormatError("this link is damaged: it does not name a task");
  return { task, invitation: "", kgc: address(kgc), sp: address(sp || pageOrigin), kgcKey, spKey, expires: null, place: "", replaces: false };
}

/** @param {string} text */
function address(text) {
  const url = /^[!-~]+$/.test(text) ? parsed(text) : null;
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
    throw new FormatError("this link does not say where KGC or SP is");
  }
  if (url.protocol === "http:" && !LOOPBACK.test(url.hostname)) {
    throw new PlainHttpRefused("this link leads to plain HTTP, which anyone can read and alter: ask for one with https://");
  }
  return url.href.replace(/\/+$/, "");
}

/** @param {string} text */
function parsed(text) {
  try {
    return new URL(text);
  } catch {
    return null;
  }
}
