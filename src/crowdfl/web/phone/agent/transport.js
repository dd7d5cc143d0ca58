// One service as a phone reaches it: signatures, retries until a deadline, problems as the errors that they were.

import {
  CrowdFLError, LimitExceeded, NotAuthenticated, ServiceUnavailable, WrongProtocol, errorFrom, wordsOf,
} from "../protocol/errors.js";
import { PROTOCOL, PROTOCOL_HEADER, signedHeaders } from "../protocol/request.js";
import { Backoff } from "./retry.js";

/** @typedef {import("../protocol/bytes.js").Bytes} Bytes */
/** @typedef {import("../protocol/keys.js").Keys} Keys */
/** @typedef {typeof globalThis.fetch} Fetch */

export const OCTETS = "application/octet-stream";
const AGAIN = [408, 425, 429, 500, 502, 503, 504];
const RESPONSE_LIMIT = 16 * 1024 * 1024; // bytes of an answer that holds no model
export const MODEL_LIMIT = 256 * 1024 * 1024;
const SECONDS = 300; // for one exchange
const DEADLINE = 120; // for all tries of one call
export const FARTHEST = 86400; // seconds that a service's clock may differ from this device's
const NEWS = 60; // a smaller difference is no reason for a refusal

/**
 * @typedef {object} Request
 * @property {string} method
 * @property {string} target Path and query.
 * @property {Bytes} [body]
 * @property {string} [mediaType]
 * @property {Keys} [keys] Signed with these.
 * @property {string} [digest] What the signature is over, if not the hash of the body.
 * @property {number} [limit] Bytes of the answer that are read.
 * @property {boolean} [repeatable] Tried again when the connection or the service fails; the default.
 */

/**
 * @typedef {object} TransportOptions
 * @property {import("./retry.js").Sleep} [sleep]
 * @property {() => number} [now] Seconds since 1970.
 * @property {() => number} [clock] Seconds, monotonic.
 * @property {number} [deadline] Seconds that one call is tried for.
 * @property {AbortSignal} [signal] Ends what is under way.
 * @property {(error: unknown, seconds: number) => void} [onWait] Hears of each miss at once.
 */

/**
 * How many seconds a service is ahead of this device; 0 until a refusal says otherwise. A service that lies about its time
 * gets signatures for another moment, which are good at that service alone; more than a day is not believed.
 */
export class ServerTime {
  ahead = 0;

  /** @param {string | null} date @param {number} now @returns {boolean} Whether another try makes sense. */
  learn(date, now) {
    const ahead = Date.parse(date ?? "") / 1000 - now;
    if (!(Math.abs(ahead) <= FARTHEST) || Math.abs(ahead - this.ahead) < NEWS) return false;
    this.ahead = ahead;
    return true;
  }
}

export class Service {
  /** @param {string} url @param {Fetch} fetch @param {TransportOptions} [options] */
  constructor(url, fetch, options = {}) {
    this.url = new URL(url).origin;
    this.fetch = fetch;
    this.signal = options.signal;
    this.onWait = options.onWait ?? (() => {});
    this._options = options;
    this._now = options.now ?? (() => Date.now() / 1000);
    this._time = new ServerTime();
  }

  /** @param {Request} request */
  async call(request) {
    const { sleep, clock, deadline = DEADLINE } = this._options;
    const attempts = new Backoff({ deadline, sleep, clock, signal: this.signal }).start();
    for (;;) {
      const outcome = await this._try(request);
      if (outcome instanceof Reply) return outcome;
      const [failure, atLeast] = outcome;
      if (!(await attempts.wait(atLeast, (seconds) => this.onWait(failure, seconds)))) throw failure;
    }
  }

  /** @param {string} method @param {string} target @param {object} body @param {Keys} [keys] */
  sendJson(method, target, body, keys) {
    const raw = new TextEncoder().encode(JSON.stringify(body));
    return this.call({ method, target, body: raw, mediaType: "application/json", keys });
  }

  /**
   * A reply, or a failure that may pass and how long the service asks to wait; what does not pass is thrown.
   * @param {Request} request @param {boolean} [retimed] @returns {Promise<Reply | [Error, number]>}
   */
  async _try(request, retimed = false) {
    /** @type {Reply} */
    let reply;
    try {
      reply = await this._once(request);
    } catch (error) {
      if (this.signal?.aborted) throw this.signal.reason;
      if (error instanceof CrowdFLError && !error.passes) throw error;
      if (request.repeatable === false) throw this._unreachable(error);
      return [this._unreachable(error), 0];
    }
    if (reply.status < 400) return reply;
    const error = errorFrom(reply.status, reply.parsed());
    if (error instanceof NotAuthenticated && request.keys && !retimed && this._learnTime(reply)) {
      return this._try(request, true); // nothing was done; the next signature bears the service's time
    }
    if (!AGAIN.includes(reply.status) || request.repeatable === false) throw error;
    return [error, secondsIn(reply.header("retry-after"))];
  }

  /** @param {Request} request */
  async _once({ method, target, body, mediaType, keys, digest, limit = RESPONSE_LIMIT }) {
    const now = this._now() + this._time.ahead;
    const proof = keys ? await signedHeaders(keys, method, target, body ?? new Uint8Array(), now, digest) : {};
    const timeout = AbortSignal.timeout(SECONDS * 1000);
    const response = await this.fetch(this.url + target, {
      method,
      body: body?.length ? body : undefined,
      headers: { [PROTOCOL_HEADER]: PROTOCOL, ...(mediaType ? { "Content-Type": mediaType } : {}), ...proof },
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal: this.signal ? AbortSignal.any([this.signal, timeout]) : timeout,
    });
    requireAnswerIn(response.headers.get(PROTOCOL_HEADER), this.url);
    return new Reply(response.status, response.headers, await readAll(response, limit));
  }

  /** @param {Reply} refusal */
  _learnTime(refusal) {
    return this._time.learn(refusal.header("date"), this._now());
  }

  /** @param {unknown} failure */
  _unreachable(failure) {
    if (failure instanceof CrowdFLError) return failure;
    return unusable(`${this.url} cannot be reached (${wordsOf(failure)}): try again later`);
  }
}

/** An answer; of one that is not what the service would say, `ServiceUnavailable`. */
export class Reply {
  /** @param {number} status @param {Headers} headers @param {Bytes} body */
  constructor(status, headers, body) {
    this.status = status;
    this._headers = headers;
    this._body = body;
  }

  /** @param {string} name */
  header(name) {
    return this._headers.get(name);
  }

  /** @returns {any} null if it is not JSON */
  parsed() {
    try {
      return JSON.parse(new TextDecoder().decode(this._body));
    } catch {
      return null;
    }
  }

  octets() {
    if (this.status !== 200 || (this.header("content-type") ?? "").split(";")[0] !== OCTETS) throw notTheService();
    return this._body;
  }

  /** @returns {Record<string, any>} */
  json() {
    const found = this.parsed();
    if (!isTable(found)) throw unusable("the service's answer is not a JSON object: check its address");
    return found;
  }

  /** @param {string} name @returns {string} */
  text(name) {
    const found = this.json()[name];
    if (typeof found !== "string") throw lacks(name);
    return found;
  }

  /** @param {string} name @returns {number} Not negative. */
  whole(name) {
    const found = this.json()[name];
    if (!Number.isSafeInteger(found) || found < 0) throw lacks(name);
    return found;
  }

  /** @param {string} name @returns {number[]} */
  wholes(name) {
    const found = this.json()[name];
    if (!Array.isArray(found) || !found.every(Number.isSafeInteger)) throw lacks(name);
    return found;
  }

  /** @param {string} name @returns {Record<string, any>} */
  table(name) {
    const found = this.json()[name];
    if (!isTable(found)) throw lacks(name);
    return found;
  }

  /** Millionths by round. @param {string} name @returns {Map<number, bigint>} */
  amounts(name) {
    const found = Object.entries(this.table(name));
    if (!found.every(([round, amount]) => /^\d{1,10}$/.test(round) && Number.isSafeInteger(amount) && amount >= 0)) throw lacks(name);
    return new Map(found.map(([round, amount]) => [Number(round), BigInt(amount)]));
  }
}

/** @param {string} message */
export function unusable(message) {
  return new ServiceUnavailable(message);
}

export function notTheService() {
  return unusable("the answer is not from the service: something in between has answered");
}

/** @param {string} name */
function lacks(name) {
  return unusable(`the service's answer lacks ${name}`);
}

/** @param {unknown} found */
function isTable(found) {
  return typeof found === "object" && found !== null && !Array.isArray(found);
}

/** @param {string | null} version @param {string} where Whoever does not say is found out by what it answers. */
function requireAnswerIn(version, where) {
  if (version === null || version === PROTOCOL) return;
  const shown = /^\d{1,5}$/.test(version) ? version : "an unknown one";
  throw new WrongProtocol(`${where} speaks version ${shown} of the protocol, and this page version ${PROTOCOL}: `
    + "load the page again, or ask the platform to update");
}

/** @param {Response} response @param {number} limit */
async function readAll(response, limit) {
  const parts = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    size += part.value.length;
    if (size > limit) {
      await reader?.cancel();
      throw new LimitExceeded(`an answer of more than ${limit} bytes`);
    }
    parts.push(part.value);
  }
  return joined(parts, size);
}

/** @param {readonly Uint8Array[]} parts @param {number} size */
function joined(parts, size) {
  const whole = new Uint8Array(size);
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

/** @param {string | null} text */
function secondsIn(text) {
  return /^\d{1,5}$/.test(text ?? "") ? Number(text) : 0;
}
