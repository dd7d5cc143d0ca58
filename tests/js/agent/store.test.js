// What a phone keeps, in IndexedDB: one write is one transaction, keys stay keys, and what was forgotten does not come back.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { IDBFactory, IDBKeyRange } from "fake-indexeddb";

import { Forgotten } from "#web/phone/protocol/errors.js";
import { Store, openStore } from "#web/phone/agent/store.js";
import { IndexedDbTables, MIGRATIONS } from "#web/phone/agent/tables.js";
import { KeysLost, StorageFull, StoreTooNew, StoreUnavailable } from "#web/phone/protocol/errors.js";
import { newKeys } from "#web/phone/protocol/keys.js";
import { openSealed, sealTo } from "#web/phone/protocol/seal.js";
import { sign, verify } from "#web/phone/protocol/signing.js";
import { FakePhone, FakePlatform, Fuse, TASK } from "./fakes.js";

Object.assign(globalThis, { IDBKeyRange });
/** @type {IDBFactory} */
let factory;
const INVITATION = { task: TASK };
const OTHER = "f".repeat(64);

beforeEach(() => {
  factory = new IDBFactory();
});

/** A tab's store; another call is another tab. */
function tab() {
  return new Store(new IndexedDbTables("test", factory));
}

/** @param {string} id */
function recording(id) {
  return { id, label: "walking", times: Float64Array.of(0, 1), signal: Float64Array.of(1, 2, 3, 4, 5, 6), channels: 3 };
}

test("what one tab writes another one reads, of every kind", async () => {
  await tab().open(TASK, INVITATION);
  const values = { bytes: Uint8Array.of(1, 2), text: "a", table: { a: [1, null] }, big: 2n ** 70n };
  await tab().change(TASK, values);
  for (const [key, value] of Object.entries(values)) assert.deepEqual(await tab().get(TASK, key), value);
  assert.deepEqual(await tab().keys(TASK), ["big", "bytes", "invitation", "opened", "table", "text"]);
  assert.deepEqual(await tab().keys(TASK, "t"), ["table", "text"]);
});

test("keys are kept without being readable", async () => {
  const [store, keys] = [tab(), await newKeys()];
  await store.open(TASK, INVITATION);
  // A browser clones a CryptoKey; structuredClone of node 20 does too.
  await store.put(TASK, "keys", keys);
  const kept = await store.get(TASK, "keys");
  assert.equal(kept.signing.privateKey.extractable, false);
  const signature = await crypto.subtle.sign("Ed25519", kept.signing.privateKey, Uint8Array.of(1));
  assert.ok(await crypto.subtle.verify("Ed25519", keys.signing.publicKey, signature, Uint8Array.of(1)));
});

/** Reads as some versions of Safari do: nothing, where a value holds a key of one of these kinds. @param {IndexedDbTables} tables @param {RegExp} lost */
function forgetful(tables, lost) {
  const holds = (/** @type {any} */ value) => value instanceof CryptoKey ? lost.test(value.algorithm.name) :
    value !== null && typeof value === "object" && Object.values(value).some(holds);
  const get = tables.get.bind(tables);
  tables.get = async (place) => {
    const value = await get(place);
    return holds(value) ? null : value;
  };
  return tables;
}

test("where a browser loses X25519 keys, they are kept wrapped, and are as good", async () => {
  const own = () => new Store(forgetful(new IndexedDbTables("test", factory), /X25519/));
  const store = own();
  await store.open(TASK, INVITATION);
  assert.equal(await store.keeping(), "wrapped");
  await store.addKeys(TASK, newKeys);
  const kept = await own().get(TASK, "keys"); // after the page was opened again
  const { wrapping, reading } = /** @type {any} */ (await new IndexedDbTables("test", factory).get(["blobs", TASK, "keys"]));
  assert.ok(!wrapping.extractable && reading.bytes.byteLength > 48, "and nothing of it can be read");
  assert.ok(!kept.signing.privateKey.extractable && !kept.reading.privateKey.extractable);
  const message = Uint8Array.of(1, 2);
  await verify(kept.signingPublic, message, await sign(kept, message));
  const sealed = await sealTo(kept.readingPublic, message, Uint8Array.of(3));
  assert.deepEqual(await openSealed(kept.reading, sealed, Uint8Array.of(3)), message);
  await store.addKeys(TASK, newKeys);
  assert.equal((await store.get(TASK, "keys")).who, kept.who); // the first ones stay
  assert.deepEqual(await store.tasks().then((all) => all.map(({ task }) => task)), [TASK]);
});

test("a browser that keeps keys keeps them as they are, and one that keeps none is named", async () => {
  const store = tab();
  await store.open(TASK, INVITATION);
  await store.addKeys(TASK, newKeys);
  const found = /** @type {any} */ (await new IndexedDbTables("test", factory).get(["blobs", TASK, "keys"]));
  assert.ok(found.reading.privateKey instanceof CryptoKey);
  await assert.rejects(new Store(forgetful(new IndexedDbTables("test", factory), /./)).keeping(), KeysLost);
});

test("what was added first stays, with what came beside it", async () => {
  const store = tab();
  await store.open(TASK, INVITATION);
  assert.equal(await store.add(TASK, "rounds/1/upload", "first", { beside: 1 }), true);
  assert.equal(await tab().add(TASK, "rounds/1/upload", "second", { beside: 2 }), false);
  assert.deepEqual([await store.get(TASK, "rounds/1/upload"), await store.get(TASK, "beside")], ["first", 1]);
});

test("two tabs that add at once keep one of both", async () => {
  await tab().open(TASK, INVITATION);
  const done = await Promise.all([tab().add(TASK, "keys", "a"), tab().add(TASK, "keys", "b"), tab().add(TASK, "keys", "c")]);
  assert.equal(done.filter(Boolean).length, 1);
});

test("a change that cannot be made leaves nothing of it", async () => {
  const store = tab();
  await store.open(TASK, INVITATION);
  await assert.rejects(store.change(TASK, { one: 1, two: () => {} }));
  assert.deepEqual(await store.keys(TASK), ["invitation", "opened"]);
});

test("what was forgotten is gone, and a tab that still runs cannot bring it back", async () => {
  const [store, late] = [tab(), tab()];
  await store.open(TASK, INVITATION);
  await store.open(OTHER, INVITATION);
  await late.put(TASK, "keys", "secret");
  await late.addRecording(TASK, recording("a"));
  await late.addRecording(OTHER, recording("b"));
  await store.forget(TASK);
  for (const write of [() => late.put(TASK, "status", 1), () => late.add(TASK, "keys", 1), () => late.addRecording(TASK, recording("c")),
    () => late.delete(TASK, "keys")]) {
    await assert.rejects(write, Forgotten);
  }
  assert.deepEqual([await store.keys(TASK), await store.recordingIds(TASK)], [[], []]);
  assert.deepEqual((await store.tasks()).map(({ task }) => task), [OTHER]);
  assert.deepEqual(await store.recordingIds(OTHER), ["b"]);
});

test("the first invitation of a task stays", async () => {
  const store = tab();
  await store.put(TASK, "invitation", { invitation: "first" });
  await store.put(TASK, "invitation", { invitation: "second" });
  assert.deepEqual(await store.get(TASK, "invitation"), { invitation: "first" });
});

test("recordings are listed and deleted one by one", async () => {
  const store = tab();
  await store.open(TASK, INVITATION);
  for (const id of ["b", "a"]) await store.addRecording(TASK, recording(id));
  assert.deepEqual(await tab().listRecordings(TASK), [recording("a"), recording("b")]);
  await store.deleteRecording(TASK, "a");
  assert.deepEqual(await tab().recordingIds(TASK), ["b"]);
});

test("summaries say how far each campaign is", async () => {
  const store = tab();
  await store.open(TASK, INVITATION);
  assert.deepEqual((await store.tasks()).map(({ phase, purpose }) => [phase, purpose]), [["invited", null]]);
  await store.change(TASK, { certificate: "c", purpose: "walking" });
  assert.deepEqual((await store.tasks()).map(({ phase, purpose }) => [phase, purpose]), [["joined", "walking"]]);
  await store.put(TASK, "over", true);
  assert.equal((await store.tasks())[0].phase, "ended");
  await store.put(TASK, "left", 1);
  assert.equal((await store.tasks())[0].phase, "left");
});

test("a database that the browser has closed is opened again", async () => {
  const tables = new IndexedDbTables("test", factory);
  const store = new Store(tables);
  await store.open(TASK, INVITATION);
  (await tables._database()).close();
  assert.deepEqual(await store.get(TASK, "invitation"), INVITATION);
});

test("a full disk and a browser that stores nothing have names, and may pass", async () => {
  for (const [name, kind] of /** @type {const} */ ([["QuotaExceededError", StorageFull], ["UnknownError", StoreUnavailable]])) {
    const failing = /** @type {any} */ ({ open: () => { throw new DOMException("no", name); } });
    const found = await new Store(new IndexedDbTables("test", failing)).get(TASK, "keys").catch((error) => error);
    assert.ok(found instanceof kind, String(found));
    assert.ok(found.passes);
  }
});

test("the store of the browser is asked to stay, and nobody waits for the answer", async () => {
  let asked = 0;
  const navigator = { storage: { persist: () => (asked += 1, new Promise(() => {})) } };
  Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
  Object.assign(globalThis, { indexedDB: factory });
  const store = await openStore("own");
  await store.open(TASK, INVITATION);
  assert.equal(asked, 1);
  assert.ok(await store.has(TASK, "invitation"));
});

test("a campaign runs over IndexedDB, tab after tab", async () => {
  const phone = new FakePhone(new FakePlatform({ rounds: 2 }), new IndexedDbTables("campaign", factory));
  await phone.invited();
  for (const at of [20, 40, 60]) await phone.open(new Fuse(at)).run().catch(() => {});
  assert.equal(await phone.open().run(), "ended");
  assert.deepEqual([...phone.platform.seen.values()].map((bodies) => bodies.size), [1, 1]);
});

/** What a later page adds: a table of its own, and another form of what is there. @type {import("#web/phone/agent/tables.js").Migration[]} */
const LATER = [...MIGRATIONS, (database, transaction) => {
  database.createObjectStore("more");
  transaction.objectStore("blobs").put("later", [TASK, "form"]);
}];

test("a later page takes storage over with all that is in it, and an old tab says that it is old", async () => {
  const old = new Store(new IndexedDbTables("test", factory));
  await old.open(TASK, INVITATION);
  const later = new Store(new IndexedDbTables("test", factory, LATER)); // the old tab lets go
  assert.equal(await later.get(TASK, "form"), "later");
  assert.deepEqual(await later.get(TASK, "invitation"), INVITATION);
  await assert.rejects(old.get(TASK, "invitation"), StoreTooNew);
  assert.equal(await later.get(TASK, "form"), "later");
});

test("storage that is new has every step behind it, and a step that fails leaves it as it was", async () => {
  assert.equal(await new Store(new IndexedDbTables("test", factory, LATER)).get(TASK, "form"), "later");
  factory = new IDBFactory();
  await tab().open(TASK, INVITATION);
  const broken = new IndexedDbTables("test", factory, [...MIGRATIONS, (_, transaction) => transaction.abort()]);
  await assert.rejects(broken.get(["blobs", TASK, "invitation"]), StoreUnavailable);
  assert.deepEqual(await tab().get(TASK, "invitation"), INVITATION);
});
