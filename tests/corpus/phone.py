"""What a phone has stored, as JSON: written out of a browser whose keys were made readable, and put into another."""

import json
from typing import Any

from playwright.sync_api import BrowserContext, Page

# Before a page's own scripts: keys that can be copied, which a real phone never makes.
READABLE = """{
  const own = crypto.subtle.generateKey.bind(crypto.subtle);
  crypto.subtle.generateKey = (algorithm, _, usages) => own(algorithm, true, usages);
}"""
_DUMP = """async () => {
  const base64 = (bytes) => btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(""));
  const written = async (value) => {
    if (typeof value === "bigint") return { $: "big", is: String(value) };
    if (value === undefined) return { $: "undefined" };
    if (value === null || typeof value !== "object") return value;
    if (value instanceof CryptoKey) {
      const { algorithm: { name }, usages, type } = value;
      return { $: "key", jwk: await crypto.subtle.exportKey("jwk", value), name, usages, type };
    }
    if (ArrayBuffer.isView(value)) {
      return { $: value.constructor.name, is: base64(new Uint8Array(value.buffer, value.byteOffset, value.byteLength)) };
    }
    if (value instanceof ArrayBuffer) return { $: "ArrayBuffer", is: base64(new Uint8Array(value)) };
    if (Array.isArray(value)) return Promise.all(value.map(written));
    if (Object.getPrototypeOf(value) !== Object.prototype) throw new Error(`a ${value.constructor.name} is stored`);
    const parts = Object.entries(value).map(async ([name, one]) => [name, await written(one)]);
    return Object.fromEntries(await Promise.all(parts));
  };
  const asked = (request) => new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });
  const found = [];
  for (const { name, version } of await indexedDB.databases()) {
    const database = await asked(indexedDB.open(name)), tables = {};
    for (const table of database.objectStoreNames) {
      const store = database.transaction(table).objectStore(table);
      const [keys, values] = await Promise.all([asked(store.getAllKeys()), asked(store.getAll())]);
      tables[table] = await Promise.all(keys.map(async (key, at) => [key, await written(values[at])]));
    }
    database.close();
    found.push({ name, version, tables });
  }
  return found;
}"""
_LOAD = """async (found) => {
  const bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const read = async (value) => {
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return Promise.all(value.map(read));
    if (!("$" in value)) {
      const parts = Object.entries(value).map(async ([name, one]) => [name, await read(one)]);
      return Object.fromEntries(await Promise.all(parts));
    }
    if (value.$ === "big") return BigInt(value.is);
    if (value.$ === "undefined") return undefined;
    if (value.$ === "key") { // private keys as a phone has them: nobody can copy them
      const open = value.type === "public";
      return crypto.subtle.importKey("jwk", { ...value.jwk, ext: true }, { name: value.name }, open, value.usages);
    }
    if (value.$ === "ArrayBuffer") return bytes(value.is).buffer;
    return new globalThis[value.$](bytes(value.is).buffer);
  };
  for (const { name, version, tables } of found) {
    const all = await Promise.all(Object.entries(tables).map(async ([table, rows]) =>
      [table, await Promise.all(rows.map(async ([key, value]) => [key, await read(value)]))]));
    await new Promise((done, fail) => {
      const request = indexedDB.open(name, version);
      request.onupgradeneeded = () => { for (const [table] of all) request.result.createObjectStore(table); };
      request.onerror = () => fail(request.error);
      request.onsuccess = () => {
        const transaction = request.result.transaction(all.map(([table]) => table), "readwrite");
        for (const [table, rows] of all) for (const [key, value] of rows) transaction.objectStore(table).put(value, key);
        transaction.oncomplete = () => { request.result.close(); done(); };
        transaction.onabort = () => fail(transaction.error);
      };
    });
  }
}"""


def dump(page: Page) -> list[Any]:
    found: list[Any] = page.evaluate(_DUMP)
    return found


def put(context: BrowserContext, address: str, stored: str, before: dict[str, str]) -> None:
    """Into a fresh browser, for the page at `address`; `before`: addresses that were other ones then."""
    for old, new in before.items():
        stored = stored.replace(old, new)
    page = context.new_page()
    page.goto(f"{address}/healthz")  # nothing of the phone's page runs yet
    page.evaluate(_LOAD, json.loads(stored))
    page.close()


def live_at(context: BrowserContext, seconds: float) -> None:
    """Pages, not their workers, have a clock that is so far off."""
    context.add_init_script(f"""(() => {{ const Real = Date, off = {seconds * 1000};
      globalThis.Date = class extends Real {{
        constructor(...given) {{ given.length ? super(...given) : super(Real.now() + off); }}
        static now() {{ return Real.now() + off; }} }}; }})()""")
