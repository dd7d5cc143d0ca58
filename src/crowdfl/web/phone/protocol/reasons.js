// Why an upload or a whole round does not count, as reasons.py: the codes that records carry. What they say is in web/common/text.

import { FormatError } from "./errors.js";

export const REASONS = /** @type {const} */ ([
  "broken_seal", "out_of_bounds", "not_in_line", // of one upload, in CSP's signed word
  "too_few_left", "too_many_left_out", "reference_sealed", "reference_unusable", "altered_bits", "altered_shares", "csp_failed", // of a round
  "not_passed_on", "void_cohort", "damaged", "out_of_range", "withdrawn", // of one upload, by what a record does not say, or by others
]);
/** @typedef {typeof REASONS[number]} Reason */

/** @param {string} code @returns {Reason} */
export function reasonOf(code) {
  const found = REASONS.find((one) => one === code);
  if (found === undefined) throw new FormatError(`${JSON.stringify(code.slice(0, 80))} is no code of a reason that this page knows: reload it`);
  return found;
}
