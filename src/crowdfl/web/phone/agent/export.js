// All that this device holds of one campaign, as a file for its owner; without what is secret.

import { base64 } from "../protocol/bytes.js";

/** @typedef {import("./store.js").Store} Store */

/** Whoever has one of these can act as this phone, or open what is sealed to it. */
export const SECRET = ["invitation", "keys", "bundle"];

/** @param {Store} store @param {string} task @returns {Promise<{name: string, text: string}>} */
export async function heldFile(store, task) {
  const names = (await store.keys(task)).sort();
  const held = names.filter((name) => !SECRET.includes(name));
  const values = await Promise.all(held.map((name) => store.get(task, name)));
  const body = {
    task,
    saved: new Date().toISOString(),
    "left out, as it is secret": names.filter((name) => SECRET.includes(name)),
    held: Object.fromEntries(held.map((name, place) => [name, values[place]])),
    recordings: await store.listRecordings(task),
  };
  return { name: `my-data-${task.slice(0, 8)}.json`, text: JSON.stringify(body, plain, 2) };
}

/** What JSON has no form for: bytes in base 64, numbers as lists, large integers as text. @param {string} _name @param {any} value */
function plain(_name, value) {
  if (typeof value === "bigint") return String(value);
  if (value instanceof Uint8Array) return { base64: base64(value) };
  if (ArrayBuffer.isView(value)) return [.../** @type {Float64Array} */ (value)];
  return value;
}
