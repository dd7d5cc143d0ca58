// Every place where a phone's agent decides by what SP says: by function, what SP is asked, what it answers, what it refuses with.

import { readdirSync, readFileSync } from "node:fs";

const AGENT = new URL("../../../src/crowdfl/web/phone/agent/", import.meta.url);
/** What carries SP's word, and what only passes it on. */
const CARRIERS = ["api.js", "transport.js", "protocol.js", "store.js", "tables.js", "state.js", "calendar.js", "retry.js", "tabs.js", "keyring.js",
  "reminders.js", "holdings.js"];
const BEGINS = /^ {0,2}(?:export )?(?:default )?(?:static )?(?:async )?(?:function\*? )?(_?\w+)(?: =)? ?(?:async )?\(.*(?:\{|=>)/;
const NO_FUNCTION = ["if", "for", "while", "switch", "return", "constructor"];
const WORDS = [
  /\b_?platform\.(\w+)\(/g,
  /\binstanceof ([A-Z]\w+)/g,
  /\b(?:status|entry|answer)\??\.(\w+)/g,
  /\bstate [!=]== ("\w+")/g,
  /\b(unused|uploads|enrolment|drawn) = (?:false|0|"")/g,
  /const \{ (drawn) \}/g,
];
const OWN = ["Uint8Array", "CrowdFLError"];

/** By file and function, the words that it hears, in order. @returns {Record<string, string>} */
export function branches() {
  /** @type {Map<string, Set<string>>} */
  const found = new Map();
  const add = (/** @type {string} */ place, /** @type {string} */ word) => found.set(place, (found.get(place) ?? new Set()).add(word));
  for (const file of readdirSync(AGENT).filter((name) => name.endsWith(".js") && !CARRIERS.includes(name)).sort()) {
    let place = "";
    for (const line of readFileSync(new URL(file, AGENT), "utf8").split("\n")) {
      if (/^\s*(?:\/\/|\/?\*|import )/.test(line)) continue;
      const code = line.replace(/\/\*\*.*?\*\//g, "").replace(/\/\/.*$/, "");
      const begun = BEGINS.exec(code)?.[1];
      if (begun && !NO_FUNCTION.includes(begun)) place = begun;
      for (const pattern of WORDS) {
        for (const [, word] of code.matchAll(pattern)) if (!OWN.includes(word)) add(`${file} ${place}`, word.replaceAll('"', ""));
      }
      const listed = /^const FINAL = \[(.*)\]/.exec(code)?.[1];
      for (const one of listed?.split(", ") ?? []) add(`${file} FINAL`, one);
    }
  }
  return Object.fromEntries([...found].sort().map(([place, words]) => [place, [...words].sort().join(" ")]));
}
