// Any website can open the page with a link: what this phone has already must not suffer.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "#web/phone/agent/store.js";
import { keepInvitation } from "#web/phone/app/accepting.js";
import { Conflict } from "#web/phone/protocol/errors.js";
import { MemoryTables, TASK } from "../agent/fakes.js";

const NOW = 1000;

/** @param {string} invitation @param {number} [expires] */
const linked = (invitation, expires = NOW + 1) =>
  ({ task: TASK, invitation, kgc: "https://kgc", sp: "https://sp", kgcKey: new Uint8Array(32), spKey: new Uint8Array(32), expires, place: "01234567", replaces: false });

/** A phone that has opened one. @param {Record<string, unknown>} [kept] @param {number} [expires] */
async function invited(kept = {}, expires) {
  const store = new Store(new MemoryTables());
  await keepInvitation(store, linked("first", expires), NOW);
  await store.change(TASK, kept);
  return store;
}

test("an invitation that was read and is still good is not replaced by a link, and its keys stay", async () => {
  const store = await invited({ definition: "d", keys: "k" });
  await assert.rejects(keepInvitation(store, linked("second"), NOW), Conflict);
  assert.deepEqual([(await store.get(TASK, "invitation")).invitation, await store.get(TASK, "keys")], ["first", "k"]);
});

test("one that was used stays whatever comes later", async () => {
  const store = await invited({ definition: "d", certificate: "c" }, NOW - 1);
  assert.equal(await keepInvitation(store, linked("second"), NOW), false);
  assert.equal((await store.get(TASK, "invitation")).invitation, "first");
});

test("one that has expired, or that nobody could read, gives way", async () => {
  for (const store of [await invited({ definition: "d", keys: "k" }, NOW - 1), await invited()]) {
    assert.equal(await keepInvitation(store, linked("second"), NOW), true);
    assert.deepEqual([(await store.get(TASK, "invitation")).invitation, await store.has(TASK, "keys")], ["second", false]);
  }
});

test("the same one again changes nothing", async () => {
  const store = await invited({ definition: "d", keys: "k" });
  assert.equal(await keepInvitation(store, { ...linked("first"), spKey: new Uint8Array(32).fill(1) }, NOW), false);
  assert.deepEqual((await store.get(TASK, "invitation")).spKey, new Uint8Array(32));
});
