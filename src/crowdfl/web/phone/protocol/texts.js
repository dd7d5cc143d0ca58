// What the requester has written, in the reader's language where the task has it, else in the task's own.

import { firstOf } from "../../web/common/text.js";

/** @typedef {Record<string, any>} Body A definition's. */
/**
 * @typedef {object} Texts
 * @property {string} language Of most of them.
 * @property {Record<"purpose" | "terms" | "readers" | "consent", string>} languages Of each, for its `lang`.
 * @property {string} purpose
 * @property {string} terms
 * @property {string} readers
 * @property {{version: string, text: string, language: string} | null} consent Its language is "" for the task's own.
 * @property {(own: string) => string} word What a label of the task is called.
 * @property {(own: string) => string} wordLanguage Of that word.
 */

/** @param {Body} body @param {readonly string[]} languages Those that the reader wants, the best first. @returns {Texts} */
export function textsIn(body, languages) {
  const known = [body.language, ...Object.keys(body.texts)];
  const found = firstOf(languages, known) ?? body.language;
  const texts = found === body.language ? {} : body.texts[found];
  const of = (/** @type {unknown} */ translated) => (translated ? found : body.language);
  const words = new Map(Object.entries(texts.words ?? {}));
  const { version, text } = body.consent;
  const consent = texts.consent ? { version, text: texts.consent, language: found } : { version, text, language: "" };
  return {
    language: found,
    languages: { purpose: of(texts.purpose), terms: of(texts.terms), readers: of(texts.readers), consent: of(texts.consent) },
    purpose: texts.purpose || body.purpose,
    terms: texts.terms || body.terms,
    readers: texts.readers || body.readers,
    consent: version ? consent : null,
    word: (own) => words.get(own) || own,
    wordLanguage: (own) => of(words.get(own)),
  };
}
