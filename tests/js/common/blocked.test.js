// A call that the page's policy has stopped is told as what it is.
import assert from "node:assert/strict";
import { test } from "node:test";

import { speakAs } from "../speak.js";
import { blockedWords, onBlocked } from "#web/common/blocked.js";

await speakAs();

/** @param {string} effectiveDirective @param {string} blockedURI */
const violation = (effectiveDirective, blockedURI) =>
  Object.assign(new Event("securitypolicyviolation"), { effectiveDirective, blockedURI });

test("a place that may not be called is told once, without its path", () => {
  const page = new EventTarget();
  /** @type {string[]} */
  const told = [];
  onBlocked((place) => told.push(place), page);
  page.dispatchEvent(violation("connect-src", "https://kgc.example:7101/v1/tasks/x/enrolments"));
  page.dispatchEvent(violation("connect-src", "https://kgc.example:7101/v1/key"));
  page.dispatchEvent(violation("connect-src", "https://other.example/"));
  assert.deepEqual(told, ["https://kgc.example:7101", "https://other.example"]);
});

test("what else a policy stops is not about a call", () => {
  const page = new EventTarget();
  let told = 0;
  onBlocked(() => (told += 1), page);
  page.dispatchEvent(violation("style-src-attr", "inline"));
  page.dispatchEvent(violation("script-src-elem", "https://kgc.example:7101/x.js"));
  assert.equal(told, 0);
});

test("the words name the place and the setting", () => {
  assert.match(blockedWords("https://kgc.example:7101"), /https:\/\/kgc\.example:7101.*`phone_connect`/);
});
