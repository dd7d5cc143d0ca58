// What may be earned, where to be paid, and why a round pays nothing.
import assert from "node:assert/strict";
import { test } from "node:test";

import { checkDestination, estimateOf, reasonFor, WrongDestination } from "#web/phone/agent/pay.js";
import { fromHex, text, utf8 } from "#web/phone/protocol/bytes.js";
import { sealDestination } from "#web/phone/protocol/destination.js";
import { keysOf } from "#web/phone/protocol/keys.js";
import { openSealed } from "#web/phone/protocol/seal.js";
import { pairOf, vectors } from "../protocol/support.js";

const { pay, keys } = vectors("phone_documents");

for (const { settings, plan, is } of pay.estimates) {
  test(`what one person may earn is ${is}, as Python says`, () => {
    const found = estimateOf({ settings, plan });
    assert.deepEqual(found && [found.low, found.high, found.roundLow, found.roundHigh].map(Number), is);
    if (found) assert.equal(found.varies, settings.pay === "samples");
  });
}

test("where to be paid is written as Python writes it", () => {
  for (const [kind, typed, written] of pay.destinations) assert.equal(checkDestination(kind, typed), written);
  for (const [kind, typed] of pay.refused) assert.throws(() => checkDestination(kind, typed), WrongDestination, `${kind} ${typed}`);
});

test("where to be paid is signed as Python signs it, and one length whatever it is", async () => {
  const { task, payer, way, to } = pay.destination;
  const own = await keysOf(await pairOf("Ed25519", keys.participant), await pairOf("X25519", pay.payer));
  const sealed = await sealDestination(task, payer, own, BigInt(pay.claimed), way, to);
  const reader = await pairOf("X25519", pay.payer);
  assert.equal(text(await openSealed(reader, sealed, utf8(pay.context))).trimEnd(), pay.signed);
  const other = await sealDestination(task, payer, own, 1n, "email", "a@b.example");
  assert.equal(other.length, sealed.length);
  await assert.rejects(openSealed(reader, other, utf8(pay.context)), { name: "SealBroken" });
  assert.equal(fromHex(payer).length, 32);
});

test("why a round pays nothing is a code that accuses nobody", () => {
  const paid = { paid: true, state: "rewarded" };
  /** @type {[Parameters<typeof reasonFor>[0], ReturnType<typeof reasonFor>][]} */
  const cases = [
    [{ ...paid, reward: { amount: "10000" }, receipt: "r" }, null],
    [{ ...paid, reward: { amount: "9999" }, receipt: "r" }, "small"],
    [{ ...paid, reward: { amount: "0" }, receipt: "r" }, "small"],
    [{ ...paid, paid: false }, "no_pay"],
    [{ ...paid, receipt: "r" }, "not_shown"],
    [{ ...paid, receipt: "r", noReward: "the platform has not passed on an upload of yours for this round" }, "not_averaged"],
    [{ ...paid, receipt: "r", noReward: "its checks failed" }, "out_of_bounds"],
    [{ ...paid, receipt: "r", noReward: "this reward is below zero or above the round's budget: somebody in that round has cheated" }, "unverified"],
    [{ ...paid, refused: { kind: "TooLate" } }, "late"],
    [{ ...paid, refused: { kind: "RoundNotOpen" } }, "late"],
    [{ ...paid, refused: { kind: "AlreadyCounted" } }, "refused"],
    [{ ...paid, refused: { kind: "NotDrawn" } }, "not_drawn"],
    [{ ...paid, undrawn: {} }, "not_drawn"],
    [{ ...paid, nothing: {} }, "too_little"],
    [paid, "not_sent"],
    [{ ...paid, state: "aborted", receipt: "r" }, "void"],
    [{ ...paid, state: "open" }, null],
    [{ ...paid, state: "open", nothing: {} }, null],
    [{ ...paid, state: "closed", receipt: "r" }, null],
  ];
  for (const [known, reason] of cases) assert.equal(reasonFor(known), reason, JSON.stringify(known));
});
