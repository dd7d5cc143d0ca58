// Forms, as documents/forms.py: each document names the number of its own, and is never written again.

import { DocumentError, FormTooNew } from "./errors.js";

/** @typedef {Record<string, any>} Body */

/**
 * By kind, what the second form has added, then the third ...: a field by its path, with `*` for every entry of a table, and what it
 * is in all earlier forms, for ever.
 * Written as JSON: a test compares it with Python's.
 * @type {Record<string, readonly Body[]>}
 */
export const ADDED = {};

/** @param {string} kind */
const newest = (kind) => 1 + (ADDED[kind] ?? []).length;

/** A body of the newest form, as it is written. @param {string} kind @param {Body} body */
export const numbered = (kind, body) => ({ form: newest(kind), ...body });

/**
 * What a document says, with every field of the newest form and without its number.
 * @param {string} kind @param {Body} said @returns {Body}
 */
export function completed(kind, { form, ...body }) {
  if (!Number.isSafeInteger(form) || form < 1) throw new DocumentError(`this ${kind} does not name its form, a whole number from 1 on`);
  if (form > newest(kind)) {
    throw new FormTooNew(`this ${kind} is of form ${form}, and this page reads forms up to ${newest(kind)}`);
  }
  for (const added of (ADDED[kind] ?? []).slice(form - 1)) {
    for (const [path, value] of Object.entries(added)) body = withField(kind, body, path.split("."), value, path.startsWith("training."));
  }
  return body;
}

/**
 * @param {string} kind @param {Body} table @param {string[]} path @param {unknown} value
 * @param {boolean} mayBeThere As in `training`, which holds what its requester has written.
 * @returns {Body}
 */
function withField(kind, table, [name, ...inner], value, mayBeThere) {
  if (!inner.length) {
    if (Object.hasOwn(table, name)) {
      if (mayBeThere) return table;
      throw new DocumentError(`this ${kind} says \`${name}\`, which its form does not have`);
    }
    return { ...table, [name]: value };
  }
  return Object.fromEntries(Object.entries(table).map(([one, part]) => {
    const wanted = (name === "*" || name === one) && typeof part === "object" && part !== null; // what else it is, its reader refuses
    return [one, wanted ? withField(kind, part, inner, value, mayBeThere) : part];
  }));
}
