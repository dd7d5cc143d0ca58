// The phone's agent in node, for tests in Python: `drive_participant.mjs SETTINGS.json`. Events are lines of JSON on stdout.
//
// The trainer needs no data: it adds to some coordinates, others in each round, so that rounds do not repeat each other.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Agent } from "#web/phone/agent/agent.js";
import { Platform } from "#web/phone/agent/api.js";
import * as shares from "#web/phone/agent/protocol.js";
import { view } from "#web/phone/agent/state.js";
import { Store } from "#web/phone/agent/store.js";
import { fromHex } from "#web/phone/protocol/bytes.js";
import { FileTables, extractableKeys } from "./file_tables.mjs";

/**
 * @typedef {object} Settings
 * @property {string} folder Where the participant keeps its file, and what it trained.
 * @property {string} task
 * @property {string} invitation
 * @property {string} sp
 * @property {string} kgc
 * @property {string} kgcKey Hex.
 * @property {string} spKey
 * @property {number} least
 * @property {number} piece Bytes.
 * @property {number} place What tells this participant's update from another's.
 * @property {number} rounds
 * @property {number | null} hangAfter Pieces: then no answer comes any more, and the test kills this process.
 */

const settings = /** @type {Settings} */ (JSON.parse(readFileSync(process.argv[2], "utf8")));
const text = (/** @type {unknown} */ value) => JSON.stringify(value, (_, one) => (typeof one === "bigint" ? Number(one) : one));
const say = (/** @type {string} */ event, /** @type {object} */ details) => console.log(text({ event, ...details }));

/** @param {Float64Array} weights @param {unknown} _training @param {number} round */
async function train(weights, _training, round) {
  const trained = weights.map((weight, i) =>
    (i % settings.rounds === round - 1 ? weight + (((i % 5) + 1) / 16) * (1 + settings.place / 8) : weight));
  const samples = 3 + settings.place;
  writeFileSync(join(settings.folder, `trained-${round}.json`), JSON.stringify({ weights: [...trained], samples }));
  return { weights: trained, samples };
}

/** @param {Float64Array} weights */
async function evaluate(weights) {
  return { accuracy: weights.reduce((sum, one) => sum + one, 0), loss: 0, samples: weights.length };
}

let pieces = 0;
/** @param {Parameters<typeof fetch>[0]} target @param {RequestInit} [options] */
async function fetchOrHang(target, options) {
  if (options?.method === "PATCH" && settings.hangAfter !== null && pieces++ >= settings.hangAfter) {
    say("halfway", {});
    await new Promise((resolve) => setTimeout(resolve, 600_000));
  }
  return fetch(target, options);
}

const store = new Store(new FileTables(join(settings.folder, "phone.json")));
const platform = new Platform(settings.sp, settings.kgc, fetchOrHang, { piece: settings.piece, whole: settings.piece });
const agent = new Agent({
  store,
  platform,
  invitation: { ...settings, kgcKey: fromHex(settings.kgcKey), spKey: fromHex(settings.spKey), expires: 0 },
  trainer: { train, evaluate },
  onEvent: say,
  sleep: (seconds) => new Promise((resolve) => setTimeout(resolve, Math.min(seconds, 0.1) * 1000)),
  locks: null,
  protocol: { ...shares, newKeys: extractableKeys },
});
await store.open(settings.task, { task: settings.task });
await agent.accept(settings.least);
const outcome = await agent.run();
say("over", { outcome, view: await view(store, settings.task) });
