// Forgetting everything forgets the page too.
import assert from "node:assert/strict";
import { test } from "node:test";

import { forgetOffline } from "#web/phone/app/browser.js";

test("the page's own files and worker go, and nobody else's", async () => {
  /** @type {string[]} */
  const gone = [];
  const worker = (/** @type {string} */ scope) => ({ scope, unregister: async () => gone.push(scope) });
  const given = {
    caches: { keys: async () => ["crowdfl page 1", "crowdfl page 2", "another"], delete: async (/** @type {string} */ name) => gone.push(name) },
    navigator: { serviceWorker: { getRegistrations: async () => [worker("https://sp/join/"), worker("https://sp/console/")] } },
    location: { href: "https://sp/join/index.html#/device" },
  };
  for (const [name, value] of Object.entries(given)) Object.defineProperty(globalThis, name, { value, configurable: true });
  await forgetOffline();
  assert.deepEqual(gone.sort(), ["crowdfl page 1", "crowdfl page 2", "https://sp/join/"]);
});
