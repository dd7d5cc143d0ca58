// The words of an import lead to the same file in a browser, in node and for tsc.
import assert from "node:assert/strict";
import { test } from "node:test";

import { CipherSuite } from "#web/vendor/hpke.js";
// Where ../../web/vendor/hpke.js leads to from phone/app/, which is served as join/app/.
import { CipherSuite as served } from "../../src/crowdfl/web/web/vendor/hpke.js";

test("an import that a page makes from its served place is the same module", () => {
  assert.equal(served, CipherSuite);
});
