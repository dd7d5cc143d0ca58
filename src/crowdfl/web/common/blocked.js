// Tells when a page's own policy has stopped a call: to the code that made it, it looks like a network that is down.
import { t } from "./text.js";

/**
 * @param {(place: string) => void} tell Called once for each origin that the page wanted to call and may not.
 * @param {EventTarget} [where] Of a worker: `self`.
 */
export function onBlocked(tell, where = document) {
  /** @type {Set<string>} */
  const known = new Set();
  where.addEventListener("securitypolicyviolation", (event) => {
    const { effectiveDirective, blockedURI } = /** @type {SecurityPolicyViolationEvent} */ (event);
    const place = originOf(blockedURI);
    if (effectiveDirective !== "connect-src" || known.has(place)) return;
    known.add(place);
    tell(place);
  });
}

/** @param {string} place */
export function blockedWords(place) {
  return t("common.blocked", { place });
}

/** @param {string} text */
function originOf(text) {
  try {
    return new URL(text).origin;
  } catch {
    return text;
  }
}
