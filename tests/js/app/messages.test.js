// Words for people: errors say what to do, places hold no secret.
import assert from "node:assert/strict";
import { test } from "node:test";

import { fragmentOf } from "#web/phone/app/link.js";
import { hashOf, placeOf } from "#web/phone/app/router.js";
import { explain, explainLink, grouped, plainly, sentence } from "#web/phone/app/messages.js";
import { BadSignature, FormatError, ServiceUnavailable } from "#web/phone/protocol/errors.js";

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

test("an error is a sentence with what to do", () => {
  whileOnline(true, () => {
    assert.equal(explain(new BadSignature("the receipt is not signed")), "The receipt is not signed. Do not go on. Tell whoever invited you.");
    assert.equal(explain(new Error("come back later!")), "Come back later!");
    assert.equal(explain("text"), "Text.");
    assert.match(explain(new ServiceUnavailable("SP is away")), /^SP is away\. Try again in a minute\.$/);
    assert.match(explainLink(new FormatError("this link is damaged")), /^This link is damaged\. Open it again/);
    assert.match(explainLink(new FormatError("these bytes are not a CrowdFL message")), /^The link is damaged, perhaps a part of it is missing\. Open it/);
  });
});

test("only what the network keeps from happening is blamed on it", () => {
  whileOnline(false, () => {
    assert.match(explain(new ServiceUnavailable("SP is away")), /^Your phone is offline\./);
    assert.equal(explain(new Error("no sensors")), "No sensors.");
  });
});

test("places are words; anything else is the list of campaigns", () => {
  assert.deepEqual(placeOf(hashOf("record", "0a")), { name: "record", task: "0a" });
  assert.deepEqual(placeOf("#/device"), { name: "device", task: "" });
  for (const hash of ["", "#", "#/", "#/campaigns", "#/record/", "#/record/../x", "#/toString/0a", "#/__proto__/0a", "#record/0a"]) {
    assert.deepEqual(placeOf(hash), { name: "campaigns", task: "" }, hash);
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
