// What the requester has written, in the first of the reader's languages that it is written in, marked as what it is.

import { h } from "../../web/common/dom.js";
import { listParts, readersLanguages, written } from "../../web/common/text.js";
import { textsIn } from "../protocol/texts.js";
import { plainly } from "./messages.js";

/** @typedef {import("./types.js").DefinitionBody} DefinitionBody */

/** @param {DefinitionBody} definition */
export const textsOf = (definition) => textsIn(definition, readersLanguages());

/** @param {string} tag @param {string} language @param {string} words @param {Record<string, unknown>} [more] */
export const theirs = (tag, language, words, more) => h(tag, { ...written(language), ...more }, plainly(words));

/** One of the task's labels or answers. @param {ReturnType<typeof textsOf>} texts @param {string} own */
export const theirWord = (texts, own) => theirs("bdi", texts.wordLanguage(own), texts.word(own));

/** Several of them, as a sentence has them. @param {ReturnType<typeof textsOf>} texts @param {readonly string[]} own */
export const theirWords = (texts, own) => listParts(own).map(({ type, value }) => (type === "element" ? theirWord(texts, value) : value));
