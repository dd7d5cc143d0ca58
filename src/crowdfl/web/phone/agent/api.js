// KGC and SP as a participant sees them: the port of the participant's part of services/client/peers.py.

import { fromBase64 } from "../protocol/bytes.js";
import { Conflict, NotReady, Truncated } from "../protocol/errors.js";
import { headOf } from "../protocol/heads.js";
import { MODEL_LIMIT, OCTETS, Service, unusable } from "./transport.js";

/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */
/** @typedef {import("../protocol/keys.js").Keys} Keys */

const WHOLE = 256 * 1024; // a longer upload goes in pieces: a lost connection costs one of them
const RESTARTS = 5;
const LONGEST_NOTE = 500; // characters
/** Where somebody's money stands, as `PayState` of roles/records.py. @type {readonly PayState[]} */
export const PAY_STATES = ["earned", "claimed", "no_destination", "waiting", "paid", "failed"];

/** @typedef {"earned" | "claimed" | "no_destination" | "waiting" | "paid" | "failed"} PayState */
/** SP's word of one round; the note says how it was paid, or why it failed. @typedef {{ round: number, amount: string, state: PayState, note: string }} PayWord */

/**
 * @typedef {object} Status Where SP says that a task stands.
 * @property {string} state
 * @property {number} [now] The platform's time; seconds since 1970.
 * @property {string} [epoch]
 * @property {number} [dropped]
 * @property {string | null} [claims_extended] CSP's signed word that the last day of claims is later.
 * @property {number} [enrolled]
 * @property {string} [enrolment] Whether somebody can join: open, full, over, ended.
 * @property {number | null} [next_round] When it opens, if its plan says; seconds since 1970.
 * @property {number} [come_back] In how many seconds a phone with nothing to do looks again.
 * @property {import("./holdings.js").Ending | null} [ended]
 * @property {{number: number, state: string, last_call: number, uploads?: number, drawn?: number | null, unused?: boolean}[]} rounds
 */

/** SP's word of each round that was claimed, in millionths. @typedef {{paid: Map<number, bigint>, unused: Map<number, bigint>, disputed: Map<number, bigint>}} ClaimAnswer */

/**
 * @typedef {object} PlatformOptions
 * @property {number} [piece] Bytes, of what has no leaves.
 * @property {number} [whole] A longer upload goes in pieces.
 */

export class Platform {
  /**
   * @param {string} sp URL @param {string} kgc URL @param {typeof globalThis.fetch} [fetch]
   * @param {import("./transport.js").TransportOptions & PlatformOptions} [options]
   */
  constructor(sp, kgc, fetch = globalThis.fetch.bind(globalThis), options = {}) {
    this._sp = new Service(sp, fetch, options);
    this._kgc = new Service(kgc, fetch, options);
    this._piece = options.piece;
    this._whole = options.whole ?? WHOLE;
  }

  /**
   * Who hears of failed tries, and what ends them, from now on.
   * @param {(error: unknown, seconds: number) => void} onWait @param {AbortSignal} [signal]
   */
  attach(onWait, signal) {
    for (const service of [this._sp, this._kgc]) {
      service.onWait = onWait;
      service.signal = signal;
    }
  }

  /** KGC certifies keys under an invitation. @param {string} task @param {string} invitation @param {string} request */
  async enrolAtKgc(task, invitation, request) {
    const reply = await this._kgc.sendJson("POST", `/v1/tasks/${task}/participants`, { invitation, request });
    return fromBase64(reply.text("sealed"));
  }

  /** An invitation of SP's to this key, of a task that it lists. @param {string} task @param {string} key In hex. */
  async recruit(task, key) {
    return (await this._sp.sendJson("POST", `/v1/tasks/${task}/places`, { key })).text("invitation");
  }

  /** @param {string} task */
  async papers(task) {
    const reply = await this._about(task);
    return { definition: reply.text("definition"), appointment: reply.text("appointment") };
  }

  /** @param {string} task @returns {Promise<Status>} */
  async status(task) {
    const status = (await this._about(task)).table("status");
    if (typeof status.state !== "string" || !Array.isArray(status.rounds)) throw unusable("the service's answer lacks status");
    return /** @type {Status} */ (status);
  }

  /** @param {string} task */
  async initial(task) {
    return (await this._sp.call({ method: "GET", target: `/v1/tasks/${task}/initial`, limit: MODEL_LIMIT })).octets();
  }

  /** SP's signed receipt of a consent, if there is one. @param {string} task @param {string} certificate @param {string | null} consent */
  async enrol(task, certificate, consent) {
    const reply = await this._sp.sendJson("POST", `/v1/tasks/${task}/participants`, { certificate, consent });
    reply.text("who");
    return consent === null ? null : reply.text("receipt");
  }

  /**
   * An upload, whole or in pieces: it goes on where it stopped, across pages and days. The signed receipt.
   * @param {string} task @param {number} number @param {Keys} keys @param {Bytes} upload
   * @param {(sent: number) => void} [onSent] Hears how many bytes have arrived.
   */
  async send(task, number, keys, upload, onSent = () => {}) {
    const target = place(task, number, keys);
    const head = await headOf(upload, this._piece);
    if (upload.length > this._whole) return this._sendInPieces({ target, keys, upload, head, onSent });
    return (await this._sp.call({ method: "PUT", target, body: upload, mediaType: OCTETS, keys, digest: head.digest })).text("receipt");
  }

  /** The digest of this participant's upload that SP holds. @param {string} task @param {number} number @param {Keys} keys */
  async uploaded(task, number, keys) {
    const reply = await this._sp.call({ method: "GET", target: place(task, number, keys), keys });
    return reply.json().digest === null ? null : reply.text("digest");
  }

  /** Whether this participant is in a round. @param {string} task @param {number} number @param {Keys} keys */
  async isDrawn(task, number, keys) {
    return (await this._sp.call({ method: "GET", target: place(task, number, keys), keys })).json().drawn === true;
  }

  /** @param {string} task @param {number} number @param {Keys} keys */
  async average(task, number, keys) {
    return (await this._sp.call({ method: "GET", target: `/v1/tasks/${task}/rounds/${number}/average`, keys, limit: MODEL_LIMIT })).octets();
  }

  /** CSP's signed word about a round that was given up. @param {string} task @param {number} number @param {Keys} keys */
  async end(task, number, keys) {
    return (await this._sp.call({ method: "GET", target: `/v1/tasks/${task}/rounds/${number}/end`, keys })).octets();
  }

  /** @param {string} task @param {number} number @param {Keys} keys */
  async reward(task, number, keys) {
    return (await this._sp.call({ method: "GET", target: `/v1/tasks/${task}/rounds/${number}/reward`, keys })).octets();
  }

  /**
   * Have what was earned booked to be paid. The same claim again, after a lost answer, comes to the same.
   * @param {string} task @param {Bytes} claim @param {Keys} keys @returns {Promise<ClaimAnswer>}
   */
  async claim(task, claim, keys) {
    const target = `/v1/tasks/${task}/claims`;
    const reply = await this._sp.call({ method: "POST", target, body: claim, mediaType: OCTETS, keys, repeatable: false });
    return { paid: reply.amounts("paid"), unused: reply.amounts("unused"), disputed: reply.amounts("disputed") };
  }

  /** Where this participant is to be paid, for the payer alone; behind it the note to CSP, whose signed word is the answer. @param {string} task @param {Bytes} sealed @param {Keys} keys */
  async payTo(task, sealed, keys) {
    return (await this._sp.call({ method: "PUT", target: `${placeOf(task, keys)}/destination`, body: sealed, mediaType: OCTETS, keys })).octets();
  }

  /** Where this participant's money stands, of what it has claimed. @param {string} task @param {Keys} keys @returns {Promise<PayWord[]>} */
  async pay(task, keys) {
    const { rounds } = (await this._sp.call({ method: "GET", target: `${placeOf(task, keys)}/pay`, keys })).json();
    const fits = (/** @type {any} */ one) => Number.isSafeInteger(one?.round) && Number.isSafeInteger(one.amount) && PAY_STATES.includes(one.state);
    if (!Array.isArray(rounds) || !rounds.every(fits)) throw unusable("the platform says of your money what cannot be: it is asked again");
    return rounds.map(({ round, amount, state, note }) => ({ round, amount: String(amount), state, note: String(note ?? "").slice(0, LONGEST_NOTE) }));
  }

  /** How the platform pays people, and the key that its reminders come from; "": it sends none. */
  async offers() {
    const reply = await this._sp.call({ method: "GET", target: "/v1/key" });
    const { pay_kinds: kinds } = reply.json();
    return { payKinds: /** @type {string[]} */ (Array.isArray(kinds) ? kinds.filter((kind) => typeof kind === "string") : []), push: reply.text("push") };
  }

  /** @param {string} task @param {import("./reminders.js").Subscription} subscription @param {Keys} keys */
  async remind(task, subscription, keys) {
    await this._sp.sendJson("PUT", `${placeOf(task, keys)}/push`, { ...subscription }, keys);
  }

  /** @param {string} task @param {Keys} keys */
  async stopReminding(task, keys) {
    await this._sp.call({ method: "DELETE", target: `${placeOf(task, keys)}/push`, keys });
  }

  /** In which rounds an upload was deleted, and in which one stands. @param {string} task @param {Keys} keys @param {boolean} withdraw */
  async quit(task, keys, withdraw) {
    const target = `${placeOf(task, keys)}${withdraw ? "?withdraw=true" : ""}`;
    const reply = await this._sp.call({ method: "DELETE", target, keys });
    return { deleted: reply.wholes("deleted"), standing: reply.wholes("standing") };
  }

  /** @param {string} task */
  _about(task) {
    return this._sp.call({ method: "GET", target: `/v1/tasks/${task}` });
  }

  /** @param {Sending} sending @returns {Promise<string>} */
  async _sendInPieces(sending) {
    const { target, keys, upload, head: { digest } } = sending;
    for (let start = 0; start < RESTARTS; start++) {
      await this._sendRest(sending);
      try {
        return (await this._sp.sendJson("POST", `${target}/commit`, { digest }, keys)).text("receipt");
      } catch (lost) {
        if (!(lost instanceof NotReady || lost instanceof Truncated)) throw lost;
        if ((await this._offset(sending)) !== upload.length) continue;
        if (lost instanceof NotReady) throw lost; // all bytes wait there: it is the round that has not opened
        await this._sendPiece(sending, 0, new Uint8Array()); // other bytes: start again
      }
    }
    throw losing();
  }

  /** @param {Sending} sending */
  async _sendRest(sending) {
    const { upload, head: { parts }, onSent } = sending;
    const ends = new Map(parts.map(({ start, end }) => [start, end]));
    let offset = await this._offset(sending);
    for (let tries = 2 * parts.length + RESTARTS; offset !== upload.length; tries--) {
      if (!tries) throw losing();
      if (!ends.has(offset)) offset = 0;
      onSent(offset);
      try {
        offset = await this._sendPiece(sending, offset, upload.subarray(offset, ends.get(offset)));
      } catch (conflict) {
        if (!(conflict instanceof Conflict)) throw conflict;
        offset = await this._offset(sending); // the piece was in, only its answer was lost
      }
    }
  }

  /** @param {Sending} sending @param {number} offset @param {Bytes} body */
  async _sendPiece({ target, keys, head: { digest } }, offset, body) {
    const request = { method: "PATCH", target: `${target}?offset=${offset}`, body, mediaType: OCTETS, keys, digest };
    return (await this._sp.call(request)).whole("offset");
  }

  /** @param {Sending} sending */
  async _offset({ target, keys, head: { digest } }) {
    return (await this._sp.call({ method: "GET", target: `${target}/offset?digest=${digest}`, keys })).whole("offset");
  }
}

/** @typedef {{target: string, keys: Keys, upload: Bytes, head: import("../protocol/heads.js").Head, onSent: (sent: number) => void}} Sending */

function losing() {
  return unusable("SP keeps losing this upload: try again later");
}

/** @param {string} task @param {Keys} keys */
function placeOf(task, keys) {
  return `/v1/tasks/${task}/participants/${keys.who}`;
}

/** @param {string} task @param {number} number @param {Keys} keys */
function place(task, number, keys) {
  return `/v1/tasks/${task}/rounds/${number}/uploads/${keys.who}`;
}
