// What this page needs of a browser. Better told at once than in the middle of a campaign.

class BrowserTooOld extends Error {
  name = "BrowserTooOld";
}

/** @param {string} algorithm @param {KeyUsage[]} usages */
async function canMake(algorithm, usages) {
  try {
    await crypto.subtle.generateKey({ name: algorithm }, false, usages);
    return true;
  } catch {
    return false;
  }
}

/** Throws what is missing, with what to do. */
export async function requireBrowser() {
  if (!globalThis.isSecureContext) {
    throw new BrowserTooOld("This page was opened without encryption, and a browser then lets it make no keys. Open it by an address that begins with https.");
  }
  if (!globalThis.indexedDB) throw new BrowserTooOld("This browser stores nothing for pages. Leave the private window, or use another browser.");
  const keys = await Promise.all([canMake("Ed25519", ["sign", "verify"]), canMake("X25519", ["deriveBits"])]);
  if (!keys.every(Boolean)) {
    throw new BrowserTooOld("This browser is too old to make the keys that are needed. Update it: Chrome 137, Safari 18.4, Firefox 130 or newer.");
  }
}
