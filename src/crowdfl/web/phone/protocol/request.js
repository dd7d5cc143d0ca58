// Requests that a participant signs, as services/http/wire.py: method, target, time and the digest of the body, or an upload's name.

import { hex, sha256, utf8 } from "./bytes.js";
import { FormatError } from "./errors.js";
import { sign } from "./signing.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./keys.js").Keys} Keys */

export const PROTOCOL = "3";
export const PROTOCOL_HEADER = "X-CrowdFL-Protocol";
export const DIGEST_HEADER = "X-Content-SHA256";

/**
 * @param {Keys} keys @param {string} method In capitals. @param {string} target The path with its query, as SP sees it.
 * @param {Bytes} body Empty where there is none.
 * @param {number} seconds Now, since 1970, by SP's clock; at most five minutes off.
 * @param {string} [named] What stands for the body, if not its hash.
 * @returns {Promise<Record<string, string>>}
 */
export async function signedHeaders(keys, method, target, body, seconds, named) {
  const time = String(Math.floor(seconds));
  if (!/^[0-9]{1,12}$/.test(time)) throw new FormatError("the time of a request is not in seconds since 1970");
  const digest = named ?? hex(await sha256(body));
  const signed = ["crowdfl request 1", method, target, time, digest].join("\n");
  const signature = hex(await sign(keys, utf8(signed)));
  return {
    Authorization: `CrowdFL who="${keys.who}", time="${time}", signature="${signature}"`,
    [DIGEST_HEADER]: digest,
  };
}
