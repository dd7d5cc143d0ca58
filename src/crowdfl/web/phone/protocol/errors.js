// Every error that this page raises or asks about: names of crowdfl/errors.py, below the same kinds, so that a service's refusal is
// the same error here as there. Another refusal is a ServiceError with the service's words.

import * as known from "./errors.js";

/** The root: whatever is not one of these is a mistake in the page. */
export class CrowdFLError extends Error {
  /** Whether the same may succeed later by itself. */
  passes = false;

  /** @param {string} message What happened, and what to do; never a secret. */
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** A task that this page cannot take part in: of another profile, with a learner that it lacks, or the browser is too old. */
export class UnsupportedTask extends CrowdFLError {}

/** The numbers given do not form a key. */
export class InvalidKey extends CrowdFLError {}

/** Two values belong to different keys. */
export class KeyMismatch extends CrowdFLError {}

/** A weight is NaN or infinite. */
export class NotFinite extends CrowdFLError {}

/** A number does not fit the place meant for it. */
export class WidthError extends CrowdFLError {}

/** A value is outside the bound of its slot. */
export class SlotOverflow extends WidthError {}

/** Two vectors that must be equally long are not. */
export class LengthMismatch extends CrowdFLError {}

/** Bytes are not what they should be. */
export class FormatError extends CrowdFLError {}

/** The bytes end too early. */
export class Truncated extends FormatError {}

/** There are bytes after the end. */
export class TrailingBytes extends FormatError {}

/** The bytes are of a version this program does not read. */
export class UnsupportedVersion extends FormatError {}

/** The bytes announce more than the receiver allows. */
export class LimitExceeded extends FormatError {}

/** A sealed message is not for this reader or this place, or was altered. */
export class SealBroken extends CrowdFLError {}

/** A signature does not fit the message and its claimed signer. */
export class BadSignature extends CrowdFLError {}

/** The settings are invalid. */
export class SettingsError extends CrowdFLError {}

/** A protocol step cannot go on. */
export class ProtocolError extends CrowdFLError {}

/** Nobody contributed a sample. */
export class NothingToAverage extends ProtocolError {}

/** A participant has no sample for this round, and an upload without one is not made. */
export class NothingToContribute extends ProtocolError {}

/** A result of so few participants would reveal one of them. */
export class TooFewParticipants extends ProtocolError {}

/** The task was made without rewards. */
export class RewardsOff extends ProtocolError {}

/** An update's arrays are not those of the task. */
export class ModelMismatch extends ProtocolError {}

/** This participant has another upload in the round already, or the same bytes were uploaded before. */
export class AlreadyCounted extends ProtocolError {}

/** An update to another model than the one that this round starts from. */
export class WrongBase extends ProtocolError {}

/** A published average does not follow from those before it. */
export class ChainBroken extends ProtocolError {}

/** A server shows another history than CSP's signed records: it was set back, or cheats. The task ends. */
export class RolledBack extends ChainBroken {}

/** Both servers together left this upload out. */
export class UploadRejected extends ProtocolError {}

/** A reward below zero or above the round's budget: somebody in that round has cheated. */
export class RewardOutOfRange extends ProtocolError {}

/** A claim is not accepted. */
export class ClaimRefused extends ProtocolError {}

/** The amount claimed is not the amount earned. */
export class WrongAmount extends ClaimRefused {}

/** The masks shown are not those that were committed to. */
export class MasksDoNotFit extends ClaimRefused {}

/** The claim names a place to be paid that its owner has replaced. */
export class OlderDestination extends ClaimRefused {}

/** A campaign's rules forbid it now. */
export class CampaignError extends CrowdFLError {}

/** A signed document is not what it should be. */
export class DocumentError extends CampaignError {}

/** A document of a later form than this page reads: the page is old. */
export class FormTooNew extends DocumentError {}

/** There is no such task here. */
export class UnknownTask extends CampaignError {}

/** Nobody of that name is enrolled in the task. */
export class UnknownParticipant extends CampaignError {}

/** The invitation is used, expired, or for another task. */
export class InvitationRefused extends CampaignError {}

/** The task asks for a signed consent, and there is none. */
export class ConsentMissing extends CampaignError {}

/** Every place of the task is taken. */
export class TaskFull extends CampaignError {}

/** More places were asked for than this platform gives out in an hour: come back later. */
export class TooManyJoins extends CampaignError {}

/** The task's plan lets nobody join any more. */
export class EnrolmentOver extends CampaignError {}

/** The task is paused, cancelled or over. */
export class TaskNotRunning extends CampaignError {}

/** The task is over, and what it needed was erased: nothing of it is computed any more. */
export class TaskEnded extends TaskNotRunning {}

/** What was asked for does not exist yet: ask again later. */
export class NotReady extends CampaignError {}

/** The same name was used with other contents. */
export class Conflict extends CampaignError {}

/** This is not for this caller. */
export class Forbidden extends CampaignError {}

/** Another device has taken this one's place in the task. */
export class Replaced extends Forbidden {}

/** A round went by without an upload of this participant's, and others may have its place: join again. */
export class PlaceFreed extends Forbidden {}

/** This participant has withdrawn from the task, for good. */
export class Withdrawn extends Forbidden {}

/** This round takes no uploads any more. */
export class RoundNotOpen extends CampaignError {}

/** The upload missed its round. */
export class TooLate extends CampaignError {}

/** Others were drawn for this round: come back for the next one. */
export class NotDrawn extends CampaignError {}

/** Data or models cannot be used for training. */
export class LearningError extends CrowdFLError {}

/** Windows and labels do not fit together. */
export class DataMalformed extends LearningError {}

/** The database cannot be reached, or stays locked for too long. */
export class StoreUnavailable extends CrowdFLError {
  passes = true;
}

/** This browser keeps no keys, in no form. */
export class KeysLost extends CrowdFLError {}

/** A service refuses, or cannot be used. */
export class ServiceError extends CrowdFLError {}

/** The request carries no credential, or none that is known here. */
export class NotAuthenticated extends ServiceError {}

/** The other side speaks another version of the protocol between roles. */
export class WrongProtocol extends ServiceError {}

/** Plain HTTP is allowed on loopback only, and only where the settings ask for it. */
export class PlainHttpRefused extends ServiceError {}

/** A newer program has changed the database: this page is old. */
export class StoreTooNew extends CrowdFLError {}

/** The service has no room left on its disk. */
export class StorageFull extends ServiceError {
  passes = true;
}

/** A service gives no answer, or none that can be used: try again later. */
export class ServiceUnavailable extends ServiceError {
  passes = true;
}

/** The service's clock has jumped and nobody has confirmed it: try again later. */
export class ReplyUnreadable extends ServiceUnavailable {}

export class ClockInDoubt extends ServiceUnavailable {}

/** Long work was told to stop. */
export class Cancelled extends CrowdFLError {}

/** This device has forgotten the campaign; what still ran for it ends without a trace. */
export class Forgotten extends CrowdFLError {}

/**
 * Whether the platform is away, busy or refuses this phone as a whole: not the fault of what was asked for.
 * @param {unknown} error
 */
export function isPlatforms(error) {
  return error instanceof ServiceError || passes(error);
}

/** Whether the same may succeed later by itself. @param {unknown} error */
export function passes(error) {
  return error instanceof CrowdFLError && error.passes;
}

/** @param {unknown} error */
export function wordsOf(error) {
  return error instanceof Error ? error.message : String(error);
}

const PROBLEM_TYPE = "urn:crowdfl:problem:";
const LATER = [408, 425, 429]; // refusals that pass; so does every 5xx

/** `TooLate` as `too-late`. @param {string} name */
function slugOf(name) {
  return name.replace(/(?<=[a-z])(?=[A-Z])/g, "-").toLowerCase();
}

/**
 * Text of another party, as one line: what could forge a line or turn it around is replaced, and the rest is cut off.
 * @param {string} text @param {number} [most]
 */
export function printable(text, most = 2000) {
  const cut = Array.from(text).slice(0, most).join("");
  return cut.replace(/[^\S ]/gu, " ").replace(/(?! )[\p{C}\p{Z}]/gu, "?");
}

/** @typedef {new (message: string) => CrowdFLError} ErrorClass */

/** @param {string} slug */
function namedBy(slug) {
  for (const [name, value] of Object.entries(known)) {
    if (/^[A-Z]/.test(name) && slugOf(name) === slug) return /** @type {ErrorClass} */ (value);
  }
  return null;
}

/**
 * The error that a service raised, from its answer; one that may pass by itself says so, whatever its name.
 * @param {number} status @param {unknown} problem The answer's JSON (RFC 9457), or anything else.
 */
export function errorFrom(status, problem) {
  const fields = /** @type {Record<string, unknown>} */ (problem && typeof problem === "object" ? problem : {});
  const type = String(fields.type ?? "");
  const own = type.startsWith(PROBLEM_TYPE);
  const slug = own ? type.slice(PROBLEM_TYPE.length) : type;
  const words = printable(String(fields.detail || fields.title || `the service answered with status ${status}`));
  if (slug === "invalid-request") return new FormatError(printable(`${words} ${JSON.stringify(fields.errors ?? "")}`));
  const later = status >= 500 || LATER.includes(status);
  // A refusal of the service's own by a name that is not known here is final; a proxy in between has no name for it.
  const error = new (namedBy(slug) ?? (own && !later ? ServiceError : ServiceUnavailable))(words);
  error.passes = error.passes || later;
  return error;
}
