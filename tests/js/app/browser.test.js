// Forgetting everything forgets the page too.
import assert from "node:assert/strict";
import { test } from "node:test";

import { appOf, forgetOffline, wayOut } from "#web/phone/app/browser.js";

test("the page's own files and worker go, and nobody else's", async () => {
  /** @type {string[]} */
  const gone = [];
  const worker = (/** @type {string} */ scope) => ({ scope, unregister: async () => gone.push(scope) });
  const given = {
    caches: { keys: async () => ["crowdfl page 1", "crowdfl page 2", "crowdfl version", "crowdfl words", "another"], delete: async (/** @type {string} */ name) => gone.push(name) },
    navigator: { serviceWorker: { getRegistrations: async () => [worker("https://sp/join/"), worker("https://sp/console/")] } },
    localStorage: { "crowdfl language": "de", "crowdfl.campaigns": "[]", other: "1" },
    location: { href: "https://sp/join/index.html#/device" },
  };
  for (const [name, value] of Object.entries(given)) Object.defineProperty(globalThis, name, { value, configurable: true });
  Object.defineProperty(globalThis.localStorage, "removeItem", { value: (/** @type {string} */ name) => delete globalThis.localStorage[name] });
  await forgetOffline();
  assert.deepEqual(Object.keys(globalThis.localStorage), ["other"]);
  assert.deepEqual(gone.sort(), ["crowdfl page 1", "crowdfl page 2", "crowdfl version", "crowdfl words", "https://sp/join/"]);
});

test("an app's own browser is recognised, and the way out of it takes the invitation along", () => {
  const android = "Mozilla/5.0 (Linux; Android 15; Pixel 9; wv) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36";
  const iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148";
  assert.equal(appOf(`${android} [FB_IAB/FB4A;FBAV/500.0;]`), "Facebook");
  assert.equal(appOf(`${iphone} Instagram 380.0`), "Instagram");
  assert.equal(appOf(`${iphone} MicroMessenger/8.0`), "WeChat");
  assert.equal(appOf(android), "");
  assert.equal(appOf(android.replace("; wv", "")), null);
  assert.equal(appOf(`${iphone} Version/18.5 Safari/604.1`), null);
  const out = wayOut("https://sp.example:7102/join/#Q0ZMTQ", android);
  assert.match(out ?? "", /^intent:\/\/sp\.example:7102\/join\/#Q0ZMTQ#Intent;scheme=https;.*end$/);
  assert.equal(wayOut("https://sp.example/join/#Q0ZMTQ", iphone), null);
});
