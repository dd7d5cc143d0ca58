// IndexedDB as a few tables by task and key, with one kind of write: conditions and changes in a single transaction.

import { CrowdFLError, StorageFull, StoreTooNew, StoreUnavailable } from "../protocol/errors.js";

/** @typedef {readonly [table: TableName, task: string, key: string]} Place */
/** @typedef {"blobs" | "recordings"} TableName */

/**
 * @typedef {object} Change All of it or nothing, and durable when the promise is kept.
 * @property {Place} [needs] Without this one, nothing is written.
 * @property {Place} [absent] If this one exists, nothing is written.
 * @property {readonly (readonly [Place, unknown])[]} [put]
 * @property {readonly Place[]} [remove]
 * @property {string} [clear] Everything of this task.
 */

/**
 * @typedef {object} Tables What a `Store` needs; a test may keep it elsewhere.
 * @property {(place: Place) => Promise<unknown>} get undefined if there is none
 * @property {(place: Place) => Promise<boolean>} has Without reading it.
 * @property {(table: TableName, task?: string) => Promise<[task: string, key: string][]>} keys
 * @property {(change: Change) => Promise<boolean>} write false if a condition did not hold
 * @property {() => void} close
 */

/** @type {readonly TableName[]} */
const NAMES = ["blobs", "recordings"];
/** @typedef {(database: IDBDatabase, transaction: IDBTransaction) => void} Migration */
/** What brings storage from each version to the next, from none on; what was served once is never changed. @type {readonly Migration[]} */
export const MIGRATIONS = [(database) => NAMES.forEach((name) => database.createObjectStore(name))];

/** @implements {Tables} */
export class IndexedDbTables {
  /** @param {string} name @param {IDBFactory} [factory] @param {readonly Migration[]} [migrations] */
  constructor(name, factory = globalThis.indexedDB, migrations = MIGRATIONS) {
    this._name = name;
    this._factory = factory;
    this._migrations = migrations;
    /** @type {Promise<IDBDatabase> | null} */
    this._opened = null;
  }

  /** @param {Place} place @returns {Promise<unknown>} */
  async get([table, task, key]) {
    const transaction = await this._transaction("readonly");
    return answer(transaction.objectStore(table).get([task, key]));
  }

  /** @param {Place} place */
  async has([table, task, key]) {
    const transaction = await this._transaction("readonly");
    return (await answer(transaction.objectStore(table).count([task, key]))) > 0;
  }

  /** @param {TableName} table @param {string} [task] */
  async keys(table, task) {
    const transaction = await this._transaction("readonly");
    const range = task === undefined ? undefined : of(task);
    const found = await answer(transaction.objectStore(table).getAllKeys(range));
    return /** @type {[string, string][]} */ (found);
  }

  /** @param {Change} change */
  async write(change) {
    const transaction = await this._transaction("readwrite");
    const done = finished(transaction);
    done.catch(() => {}); // awaited below; a failure before that must not go unheard twice
    const allowed = await isAllowed(transaction, change);
    if (allowed) apply(transaction, change);
    await done;
    return allowed;
  }

  close() {
    this._opened?.then((database) => database.close(), () => {});
    this._opened = null;
  }

  /** @param {IDBTransactionMode} mode */
  async _transaction(mode) {
    try {
      return (await this._database()).transaction(NAMES, mode, { durability: "strict" });
    } catch (error) {
      this._opened = null; // a browser may close a database under a page that sleeps: it is opened again
      if (!(error instanceof DOMException) || error.name !== "InvalidStateError") throw storeError(error);
    }
    try {
      return (await this._database()).transaction(NAMES, mode, { durability: "strict" });
    } catch (error) {
      throw storeError(error);
    }
  }

  _database() {
    this._opened ??= this._open();
    return this._opened;
  }

  /** @returns {Promise<IDBDatabase>} */
  _open() {
    return new Promise((resolve, reject) => {
      const request = this._factory.open(this._name, this._migrations.length);
      request.onupgradeneeded = ({ oldVersion }) => {
        const transaction = /** @type {IDBTransaction} */ (request.transaction); // all steps or none
        for (const migrate of this._migrations.slice(oldVersion)) migrate(request.result, transaction);
      };
      request.onblocked = () => reject(storeError(null));
      request.onerror = () => reject(storeError(request.error));
      request.onsuccess = () => {
        request.result.onclose = () => { this._opened = null; };
        request.result.onversionchange = () => this.close();
        resolve(request.result);
      };
    });
  }
}

/** @param {string} task Arrays sort behind every text. */
function of(task) {
  return IDBKeyRange.bound([task], [task, []]);
}

/** @param {IDBTransaction} transaction @param {Change} change */
async function isAllowed(transaction, { needs, absent }) {
  const isThere = async (/** @type {Place} */ [table, task, key]) =>
    (await answer(transaction.objectStore(table).count([task, key]))) > 0;
  return (!needs || (await isThere(needs))) && (!absent || !(await isThere(absent)));
}

/** @param {IDBTransaction} transaction @param {Change} change */
function apply(transaction, { put = [], remove = [], clear }) {
  try {
    if (clear !== undefined) for (const name of NAMES) transaction.objectStore(name).delete(of(clear));
    for (const [table, task, key] of remove) transaction.objectStore(table).delete([task, key]);
    for (const [[table, task, key], value] of put) transaction.objectStore(table).put(value, [task, key]);
  } catch (error) {
    transaction.abort(); // half of it must not stay
    throw error;
  }
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(storeError(request.error));
  });
}

/** @param {IDBTransaction} transaction @returns {Promise<void>} */
function finished(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(storeError(transaction.error));
  });
}

/** @param {unknown} error */
function storeError(error) {
  if (error instanceof CrowdFLError) return error;
  const name = error instanceof DOMException ? error.name : "";
  if (name === "QuotaExceededError") {
    return new StorageFull("this device has no room left for this page: delete something, then open it again");
  }
  if (name === "VersionError") return new StoreTooNew("a newer page has opened what this browser keeps: close all tabs of this page, then open it again");
  const why = name ? ` (${name})` : "";
  return new StoreUnavailable(`this browser does not let the page store anything now${why}: open it again`);
}
