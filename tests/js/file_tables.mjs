// A participant's tables in one file, for a process that is killed: fake-indexeddb forgets everything with its process.

import { existsSync, readFileSync } from "node:fs";
import { open, rename } from "node:fs/promises";

import { keysOf } from "#web/phone/protocol/keys.js";

/** @typedef {import("#web/phone/agent/tables.js").Change} Change */
/** @typedef {import("#web/phone/agent/tables.js").Place} Place */
/** @typedef {import("#web/phone/agent/tables.js").TableName} TableName */

/** @typedef {import("#web/phone/agent/tables.js").Tables} Tables */

/** @implements {Tables} */
export class FileTables {
  /** @param {string} path */
  constructor(path) {
    this._path = path;
    /** @type {Record<string, any>} */
    this._kept = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {};
  }

  /** @param {Place} place */
  async get(place) {
    const found = this._kept[nameOf(place)];
    return found === undefined ? undefined : thawed(found);
  }

  /** @param {Place} place */
  async has(place) {
    return nameOf(place) in this._kept;
  }

  /** @param {TableName} table @param {string} [task] */
  async keys(table, task) {
    const all = Object.keys(this._kept).map((name) => /** @type {[string, string, string]} */ (JSON.parse(name)));
    const found = all.filter(([of, whose]) => of === table && (task === undefined || whose === task));
    return found.map(([, whose, key]) => /** @type {[string, string]} */ ([whose, key])).sort();
  }

  /** @param {Change} change */
  async write({ needs, absent, put = [], remove = [], clear }) {
    if ((needs && !(await this.has(needs))) || (absent && (await this.has(absent)))) return false;
    const frozenValues = await Promise.all(put.map(async ([place, value]) => /** @type {const} */ ([nameOf(place), await frozen(value)])));
    const next = Object.fromEntries(Object.entries(this._kept).filter(([name]) => JSON.parse(name)[1] !== clear));
    for (const place of remove) delete next[nameOf(place)];
    for (const [name, value] of frozenValues) next[name] = value;
    await this._replace(next);
    return true;
  }

  close() {}

  /** The old file or the new one, whenever the process is killed. @param {Record<string, any>} next */
  async _replace(next) {
    const file = await open(`${this._path}.new`, "w");
    await file.writeFile(JSON.stringify(next));
    await file.sync();
    await file.close();
    await rename(`${this._path}.new`, this._path);
    this._kept = next;
  }
}

/** Keys that can leave the process, which a phone's cannot: a test has to write them down. */
export async function extractableKeys() {
  const signing = await crypto.subtle.generateKey({ name: "Ed25519" }, true, ["sign", "verify"]);
  const reading = await crypto.subtle.generateKey({ name: "X25519" }, true, ["deriveBits"]);
  return keysOf(/** @type {CryptoKeyPair} */ (signing), /** @type {CryptoKeyPair} */ (reading));
}

/** @param {Place} place */
function nameOf(place) {
  return JSON.stringify(place);
}

/** @param {any} value @returns {Promise<any>} */
async function frozen(value) {
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString("base64") };
  if (value instanceof CryptoKey) {
    return { $key: await crypto.subtle.exportKey("jwk", value), algorithm: value.algorithm.name, usages: value.usages };
  }
  if (Array.isArray(value)) return Promise.all(value.map(frozen));
  if (typeof value !== "object" || value === null) return value;
  const entries = await Promise.all(Object.entries(value).map(async ([key, one]) => [key, await frozen(one)]));
  return Object.fromEntries(entries);
}

/** @param {any} value @returns {Promise<any>} */
async function thawed(value) {
  if (typeof value !== "object" || value === null) return value;
  if (value.$bytes !== undefined) return new Uint8Array(Buffer.from(value.$bytes, "base64"));
  if (value.$key !== undefined) return crypto.subtle.importKey("jwk", value.$key, { name: value.algorithm }, true, value.usages);
  if (Array.isArray(value)) return Promise.all(value.map(thawed));
  const entries = await Promise.all(Object.entries(value).map(async ([key, one]) => [key, await thawed(one)]));
  return Object.fromEntries(entries);
}
