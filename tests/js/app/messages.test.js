// Words for people: errors say what to do, places hold no secret.
import assert from "node:assert/strict";
import { test } from "node:test";

import { fragmentOf } from "#web/phone/app/link.js";
import { hashOf, placeOf } from "#web/phone/app/router.js";
import { explain, explainLink, grouped, plainly, sentence } from "#web/phone/app/messages.js";
import { BadSignature, ClockInDoubt, FormatError, RolledBack, ServiceUnavailable, Truncated } from "#web/phone/protocol/errors.js";
import * as errors from "#web/phone/protocol/errors.js";
import { isSaid } from "#web/common/text.js";
import { speakAs } from "../speak.js";

await speakAs();

/** @param {boolean} online @param {() => void} act */
function whileOnline(online, act) {
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { value: { onLine: online }, configurable: true });
  try {
    act();
  } finally {
    if (before) Object.defineProperty(globalThis, "navigator", before);
  }
}

test("an error is a sentence with what to do, and behind it what the program says", () => {
  whileOnline(true, () => {
    const words = "A signature is wrong. Do not go on. Tell whoever invited you.\nIn detail: The receipt is not signed.";
    assert.equal(explain(new BadSignature("the receipt is not signed")), words);
    assert.equal(explain(new Error("come back later!")), "Come back later!");
    assert.equal(explain("text"), "Text.");
    assert.match(explain(new ServiceUnavailable("SP is away")), /Try again in a minute\.\nIn detail: SP is away\.$/);
    for (const damaged of [new FormatError("x"), new Truncated("x")]) assert.match(explainLink(damaged), /^The link is damaged.* Open it again from/);
    assert.match(explainLink(new Error("no such task")), /^No such task\. Open it again/);
  });
});

test("an error without a sentence of its own has that of its kind", () => {
  whileOnline(true, () => {
    assert.match(explain(new RolledBack("x")), /^The records of the servers do not fit together/);
    assert.match(explain(new ClockInDoubt("x")), /^The platform does not answer/);
    assert.match(explain(Object.assign(new Error("x"), { name: "TaskFull" })), /^All places of this campaign are taken\. Nothing of yours was sent\.$/); // of the learning code, or a worker
  });
  for (const [name, kind] of Object.entries(errors)) {
    const kinds = [];
    for (let one = kind; /^[A-Z]/.test(name) && one?.name; one = Object.getPrototypeOf(one)) kinds.push(one.name);
    assert.ok(!kinds.length || kinds.some((one) => one !== "CrowdFLError" && isSaid(`errors.${one}`)) || OURS.includes(name), name);
  }
});

/** Mistakes of a program, not of a person's: one sentence is enough for all. */
const OURS = ["CrowdFLError", "InvalidKey", "KeyMismatch", "NotFinite", "WidthError", "SlotOverflow", "LengthMismatch"];

test("only what the network keeps from happening is blamed on it", () => {
  whileOnline(false, () => {
    assert.match(explain(new ServiceUnavailable("SP is away")), /^Your phone is offline\./);
    assert.equal(explain(new Error("no sensors")), "No sensors.");
  });
});

test("places are words; anything else is where the page starts", () => {
  assert.deepEqual(placeOf(hashOf("record", "0a")), { name: "record", task: "0a" });
  assert.deepEqual(placeOf("#/device"), { name: "device", task: "" });
  assert.deepEqual(placeOf("#/campaigns"), { name: "campaigns", task: "" });
  for (const hash of ["", "#", "#/", "#/campaigns/0a", "#/record/", "#/record/../x", "#/toString/0a", "#/__proto__/0a", "#record/0a"]) {
    assert.deepEqual(placeOf(hash), { name: "start", task: "" }, hash);
  }
});

test("keys are shown in groups, texts as sentences", () => {
  assert.equal(grouped("0011223344"), "0011 2233 44");
  assert.equal(sentence("  no fee "), "No fee.");
  assert.equal(sentence(""), "");
});

test("a pasted link gives its fragment, unless it is another page's", () => {
  const page = { origin: "https://sp.example", host: "sp.example" };
  assert.equal(fragmentOf(" https://sp.example/join/#Q0ZMTQ\n", page), "Q0ZMTQ");
  assert.equal(fragmentOf("sp.example/join/#Q0ZMTQ", page), "Q0ZMTQ");
  assert.throws(() => fragmentOf("https://other.example/join/#Q0ZMTQ", page), /leads to other\.example/);
  assert.throws(() => fragmentOf("https://sp.example/join/", page), /not an invitation link/);
});

test("what a stranger wrote cannot turn the words around it", () => {
  assert.equal(sentence("free \u202egnihton\u202c for you"), "Free gnihton for you.");
  assert.equal(plainly("a\u2066b\u2069\u0007\nשלום"), "ab\nשלום");
});
