// What may be earned, where to be paid, and why a round pays nothing.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Holdings } from "#web/phone/agent/holdings.js";
import { estimateOf } from "#web/phone/protocol/amounts.js";
import { checkDestination, PayTo, WrongDestination } from "#web/phone/agent/pay_to.js";
import { Store } from "#web/phone/agent/store.js";
import { reasonFor } from "#web/phone/agent/unpaid.js";
import { fromHex, text, utf8 } from "#web/phone/protocol/bytes.js";
import { sealDestination } from "#web/phone/protocol/destination.js";
import { Conflict, ServiceUnavailable } from "#web/phone/protocol/errors.js";
import { keysOf } from "#web/phone/protocol/keys.js";
import { openSealed } from "#web/phone/protocol/seal.js";
import { pairOf, vectors } from "../protocol/support.js";
import { MemoryTables, TASK } from "./fakes.js";

const { pay, keys } = vectors("phone_documents");

for (const { settings, plan, is } of pay.estimates) {
  test(`what one person may earn is ${is}, as Python says`, () => {
    const found = estimateOf({ settings, plan });
    assert.deepEqual(found && [found.low, found.high].map(Number), is);
    if (found) assert.equal(found.varies, settings.pay === "samples");
  });
}

test("where to be paid is written as Python writes it", () => {
  for (const [kind, typed, written] of pay.destinations) assert.equal(checkDestination(kind, typed), written);
  for (const [kind, typed] of pay.refused) assert.throws(() => checkDestination(kind, typed), WrongDestination, `${kind} ${typed}`);
});

test("where to be paid is signed as Python signs it, and one length whatever it is", async () => {
  const { task, payer, counter, way, to } = pay.destination;
  const own = await keysOf(await pairOf("Ed25519", keys.participant), await pairOf("X25519", pay.payer));
  const sealed = await sealDestination(task, payer, own, Number(counter), way, to);
  const reader = await pairOf("X25519", pay.payer);
  assert.equal(text(await openSealed(reader, sealed, utf8(pay.context))).trimEnd(), pay.signed);
  const other = await sealDestination(task, payer, own, 1, "email", "a@b.example");
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
    [{ ...paid, receipt: "r", noReward: "not_passed_on" }, "not_passed_on"],
    [{ ...paid, receipt: "r", noReward: "broken_seal" }, "broken_seal"],
    [{ ...paid, paid: false, receipt: "r", noReward: "out_of_bounds" }, "out_of_bounds"],
    [{ ...paid, paid: false, state: "aborted", receipt: "r" }, "void"],
    [{ ...paid, receipt: "r", noReward: "out_of_range" }, "out_of_range"],
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

test("where to be paid is counted, kept as it was sealed, sent again until it is there, and closed where nobody asks", async () => {
  const store = new Store(new MemoryTables());
  await store.open(TASK, { task: TASK });
  const kept = new Holdings(store, TASK);
  /** @type {any[]} */
  const sent = [];
  /** @type {Error | null} */
  let refusal = null;
  const platform = { payTo: async (/** @type {any[]} */ ...[, sealed]) => { sent.push(sealed); if (refusal) throw refusal; } };
  /** @type {any} */
  let note = null;
  /** @type {any[]} */
  const checked = [];
  const protocol = { sha256: async () => "hash", placeNote: async () => note, concat: (/** @type {any} */ one, /** @type {any} */ two) => [...one, two],
    checkPlaceKept: async (/** @type {any[]} */ ...given) => void checked.push(given.slice(3)), checkDestination, sealDestination: async (/** @type {any[]} */ ...given) => given.slice(3) };
  const context = /** @type {any} */ ({
    kept, platform, protocol, task: TASK, epoch: "1", tell: () => {}, keys: async () => ({ who: "w" }), shares: async () => ({}), bundle: async () => ({}), papers: async () => ({ definition: { body: { payer: "ab" } } }),
  });
  const where = new PayTo(context);
  await assert.rejects(where.put("email", "ann"), WrongDestination);
  await where.put("email", "ann@example.org");
  assert.deepEqual([sent.length, (await kept.get("pay-to")).sent], [0, false], "nobody has joined");
  await kept.put("certificate", "c");
  refusal = new ServiceUnavailable("away");
  await assert.rejects(where.send(), ServiceUnavailable);
  refusal = null;
  assert.deepEqual([await where.isNew(), await where.send(), await where.send()], [true, true, false]);
  assert.deepEqual(sent, [[1, "email", "ann@example.org"], [1, "email", "ann@example.org"]], "the same, to the letter");
  context.epoch = "2"; // SP was restored, and may have lost it
  assert.deepEqual([await where.send(), sent.length], [true, 3]);
  await kept.put("claim", { counter: 1 });
  assert.equal(await where.isNew(), false);
  await Promise.all([where.put("text", "at the desk"), new PayTo(context).put("text", "at home")]);
  const counters = sent.slice(3).map(([counter]) => counter);
  assert.deepEqual([...new Set(counters)].sort(), [2, 3], "no two destinations have one counter");
  assert.equal((await kept.get("pay-to")).counter, 3);
  note = "note";
  await where.put("text", "noted");
  assert.deepEqual(checked, [[{ destination: "hash", counter: 4 }, undefined]], "CSP's word is checked");
  assert.deepEqual(sent.at(-1), [4, "text", "noted", "note"]);
  refusal = new Conflict("this task asks nobody where to be paid");
  await assert.rejects(where.put("text", "too late"), Conflict);
  assert.equal((await kept.get("pay-to")).closed, true);
  assert.deepEqual([await where.send(), await where.isNew()], [false, false]);
});
