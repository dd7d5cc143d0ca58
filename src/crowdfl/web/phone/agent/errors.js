// What an agent asks about an error, and the one that it adds to those of the protocol.

import { CrowdFLError, ServiceError } from "../protocol/errors.js";

export { NothingToContribute } from "../protocol/errors.js"; // what a trainer throws when there is too little data

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
