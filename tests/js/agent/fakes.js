// A platform in memory, a protocol without cryptography, and tables that end with a closed tab: what an agent's rules need.

import { keptBody } from "#web/phone/protocol/documents.js";
import {
  AlreadyCounted, ChainBroken, DocumentError, InvitationRefused, NotAuthenticated, NotReady, RolledBack, TooFewParticipants,
  TooLate,
} from "#web/phone/protocol/errors.js";
import { Agent } from "#web/phone/agent/agent.js";
import { Store } from "#web/phone/agent/store.js";

/** @typedef {import("#web/phone/agent/tables.js").Change} Change */
/** @typedef {import("#web/phone/agent/tables.js").Place} Place */
/** @typedef {import("#web/phone/agent/tables.js").TableName} TableName */
/** @typedef {import("#web/phone/agent/tables.js").Tables} Tables */

export const TASK = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const bytes = (/** @type {unknown} */ value) => encoder.encode(JSON.stringify(value));
const parse = (/** @type {Uint8Array} */ value) => JSON.parse(decoder.decode(value));

/** The tab was closed: nothing that it does afterwards has an effect. */
export class TabClosed extends Error {}

/** Counts what a tab does, and closes it at one of these points; then every later one finds it closed. */
export class Fuse {
  /** @param {number} [at] */
  constructor(at = Infinity) {
    this.left = at;
    this.points = 0;
  }

  point() {
    this.points += 1;
    if (--this.left <= 0) throw new TabClosed(`at point ${this.points}`);
  }

  /**
   * Before and after an act: it may have been done while its answer was lost.
   * @template T @param {() => T | Promise<T>} act
   */
  async around(act) {
    this.point();
    const done = await act();
    this.point();
    return done;
  }
}

/** @implements {Tables} */
export class MemoryTables {
  /** @type {Map<string, unknown>} */
  kept = new Map();

  /** @param {Place} place */
  async get(place) {
    const found = this.kept.get(JSON.stringify(place));
    return found === undefined ? undefined : structuredClone(found);
  }

  /** @param {Place} place */
  async has(place) {
    return this.kept.has(JSON.stringify(place));
  }

  /** @param {TableName} table @param {string} [task] */
  async keys(table, task) {
    const all = [...this.kept.keys()].map((name) => /** @type {[string, string, string]} */ (JSON.parse(name)));
    const found = all.filter(([of, whose]) => of === table && (task === undefined || whose === task));
    return found.map(([, whose, key]) => /** @type {[string, string]} */ ([whose, key])).sort();
  }

  /** @param {Change} change */
  async write({ needs, absent, put = [], remove = [], clear }) {
    const has = (/** @type {Place} */ place) => this.kept.has(JSON.stringify(place)); // at once, as in a transaction
    if ((needs && !has(needs)) || (absent && has(absent))) return false;
    const values = put.map(([place, value]) => /** @type {const} */ ([JSON.stringify(place), structuredClone(value)]));
    for (const name of [...this.kept.keys()]) if (JSON.parse(name)[1] === clear) this.kept.delete(name);
    for (const place of remove) this.kept.delete(JSON.stringify(place));
    for (const [name, value] of values) this.kept.set(name, value);
    return true;
  }

  close() {}
}

/** Tables of one tab. @param {Tables} tables @param {Fuse} fuse @returns {Tables} */
export function tabOf(tables, fuse) {
  const alive = () => {
    if (fuse.left <= 0) throw new TabClosed("closed before");
  };
  return {
    get: async (place) => (alive(), tables.get(place)),
    has: async (place) => (alive(), tables.has(place)),
    keys: async (table, task) => (alive(), tables.keys(table, task)),
    write: (change) => fuse.around(() => tables.write(change)),
    close: () => tables.close(),
  };
}

/**
 * @typedef {object} FakeOptions
 * @property {number} [rounds]
 * @property {bigint} [payment]
 * @property {number} [min]
 * @property {number} [claimsUntil]
 * @property {boolean} [early] Whether claims are taken while the task runs.
 * @property {string} [step]
 * @property {boolean} [draws]
 * @property {string} [consent] Its version.
 * @property {boolean} [listed] Whether SP recruits.
 * @property {Record<string, unknown>} [settings] Besides these.
 */

const BEGINS = 1_000_000; // seconds, on a phone's clock
/** The last day of rounds. */
export const ROUNDS_UNTIL = BEGINS + 150;

/** The rounds of every claim that was sent, in order. @param {FakePlatform} platform @returns {number[][]} */
export const roundsClaimed = (platform) => [...platform.claims].map((claim) => JSON.parse(claim).rounds);

/** SP and KGC for one phone. A round opens when the one before is over, and is over as soon as the phone's upload is in. */
export class FakePlatform {
  /** @param {FakeOptions} [options] */
  constructor({ rounds = 3, payment = 1000n, min = 5, claimsUntil = ROUNDS_UNTIL + 150, early = false, step, draws = false, consent = "", settings = {}, listed = false } = {}) {
    this.options = { rounds, payment, min, claimsUntil, early, step, draws, consent, settings, listed };
    /** @type {string | null} */
    this.consented = null;
    /** @type {string | null} */
    this.certified = null;
    this.enrolled = new Set();
    this.enrolment = "open";
    /** @type {number | undefined} */ this.comeBack = undefined;
    this.epoch = "first";
    /** @type {number | undefined} Its clock. */ this.now = undefined;
    this.dropped = 0;
    this.state = "running";
    /** @type {string | null} */
    this.extended = null;
    /** @type {{number: number, state: string, last_call: number, uploads: number}[]} */
    this.rounds = [{ number: 1, state: "open", last_call: 10, uploads: 0 }];
    /** @type {Map<number, Set<string>>} Every body that was ever sent for a round, as far as it came. */
    this.seen = new Map();
    /** @type {Map<number, string>} What was acknowledged. */
    this.held = new Map();
    /** @type {Set<string>} Every claim that was ever sent. */
    this.claims = new Set();
    this.paid = 0;
    /** @type {Map<number, string>} Millionths by round. */
    this.booked = new Map();
    /** @type {import("#web/phone/agent/api.js").PayState} */
    this.payState = "waiting";
    this.toldPay = 0;
    /** @type {string[]} Where to be paid, as it was sealed; before that, whose key SP was asked to invite. */
    this.places = [];
    this.quits = 0;
    /** @type {string[]} */
    this.calls = [];
    this.autoFinish = true;
    /** @type {Record<string, (...given: any[]) => any>} In the place of a call, by its name. */
    this.instead = {};
  }

  definition() {
    const { rounds, payment, min, claimsUntil, early, step, draws, consent } = this.options;
    const settings = { rounds, payment: payment.toString(), budget: payment ? "1.00" : null, min_participants: min, window: 30, server_step: step, draws, pay: early ? "equal" : "samples", ...this.options.settings };
    const texts = { consent: { version: consent, text: consent && "We measure." }, language: "en", texts: { de: { consent: "Wir messen." } } };
    const plan = { unused_pay: "0.25" };
    const body = { purpose: "walking", rounds_until: ROUNDS_UNTIL, claims_until: claimsUntil, payer: "ab", recruiter: this.options.listed ? "cd" : "", settings, plan, training: { epochs: 1 }, who: {}, ...texts };
    return `crowdfl definition S ${JSON.stringify({ form: 1, ...body })}`;
  }

  /** @param {string} who */
  require(who) {
    if (!this.enrolled.has(who)) throw new NotAuthenticated("no participant of this task signed this request");
  }

  /** @param {number} number */
  round(number) {
    const found = this.rounds.find((one) => one.number === number);
    if (!found) throw new NotReady("no such round");
    return found;
  }

  /** @param {number} number */
  finish(number, state = "rewarded", unused = false) {
    Object.assign(this.round(number), { state, unused });
    if (number < this.options.rounds) this.rounds.push({ number: number + 1, state: "open", last_call: 10, uploads: 0 });
    else this.state = "finished";
  }

  /** Calls of one tab, which the fuse may cut off. @param {Fuse} [fuse] @returns {import("#web/phone/agent/participant_context.js").ParticipantPlatform} */
  asked(fuse = new Fuse()) {
    const acts = this._acts(fuse);
    const wrap = (/** @type {string} */ name, /** @type {(...given: any[]) => any} */ act) => (/** @type {any[]} */ ...given) =>
      fuse.around(() => {
        this.calls.push(name);
        return (this.instead[name] ?? act)(...given);
      });
    return /** @type {any} */ (Object.fromEntries(Object.entries(acts).map(([name, act]) => [name, wrap(name, act)])));
  }

  /** @param {Fuse} fuse @returns {Record<string, (...given: any[]) => any>} */
  _acts(fuse) {
    return {
      papers: () => ({ definition: this.definition(), appointment: "appointment" }),
      initial: () => bytes([0, 0]),
      status: () => ({
        now: this.now, state: this.state, epoch: this.epoch, dropped: this.dropped, rounds: structuredClone(this.rounds), enrolled: 5,
        enrolment: this.enrolment, come_back: this.comeBack,
        claims_extended: this.extended, ended: null,
      }),
      enrol: (_task, /** @type {string} */ certificate, /** @type {string | null} */ consent) => {
        this.enrolled.add(certificate.slice("cert ".length));
        this.consented ??= consent;
        return consent === null ? null : `receipt of ${consent}`;
      },
      recruit: (_task, /** @type {string} */ key) => {
        this.places.push(key);
        return `place of ${key}`;
      },
      enrolAtKgc: (_task, _invitation, /** @type {string} */ who) => {
        if (this.certified !== null && this.certified !== who) throw new InvitationRefused("the invitation is used");
        this.certified = who;
        return bytes(who);
      },
      send: (_task, number, keys, upload) => this._send(fuse, number, keys.who, upload),
      uploaded: (_task, /** @type {number} */ number) => this.held.get(number) ?? null,
      isDrawn: () => true,
      average: (_task, /** @type {number} */ number, keys) => {
        this.require(keys.who);
        if (this.round(number).state !== "rewarded") throw new NotReady("not yet");
        return bytes({ number, accepted: this.held.has(number) ? [keys.who] : [], absent: !this.held.has(number) });
      },
      end: (_task, /** @type {number} */ number, keys) => {
        this.require(keys.who);
        const { state, unused } = /** @type {any} */ (this.round(number));
        if (state !== "aborted") throw new NotReady("it was not given up");
        return bytes({ number, shown: !unused, why: null });
      },
      reward: (_task, /** @type {number} */ number, keys) => {
        this.require(keys.who);
        return bytes({ number, amount: 100 * number });
      },
      claim: (_task, /** @type {Uint8Array} */ claim) => this._claim(claim),
      payTo: (_task, /** @type {Uint8Array} */ sealed) => void this.places.push(decoder.decode(sealed)),
      pay: () => (this.toldPay += 1, [...this.booked].map(([round, amount]) => ({ round, amount, state: this.payState, note: "" }))),
      quit: (_task, _keys, /** @type {boolean} */ withdraw) => {
        this.quits += 1;
        const open = this.rounds.filter(({ number, state }) => withdraw && state === "open" && this.held.delete(number));
        return { deleted: open.map(({ number }) => number), standing: [...this.held.keys()] };
      },
    };
  }

  /** In three steps: a tab may be closed between them. @param {Fuse} fuse @param {number} number @param {string} who @param {Uint8Array} upload */
  async _send(fuse, number, who, upload) {
    this.require(who);
    const body = decoder.decode(upload);
    this.seen.set(number, (this.seen.get(number) ?? new Set()).add(body));
    fuse.point();
    const { state } = this.round(number);
    if (this.held.has(number) && this.held.get(number) !== body) throw new AlreadyCounted("another upload is here");
    if (!this.held.has(number)) {
      if (state !== "open") throw new TooLate("the round is over");
      this.held.set(number, body);
      this.round(number).uploads = 1;
      if (this.autoFinish) this.finish(number);
    }
    fuse.point();
    return receiptOf(number, who, body);
  }

  /** @param {Uint8Array} claim */
  _claim(claim) {
    this.claims.add(decoder.decode(claim));
    const { rounds, unused } = parse(claim);
    this.paid = 1;
    for (const round of rounds) this.booked.set(round, String(100 * round));
    for (const round of unused) this.booked.set(round, "250000");
    return {
      paid: new Map(rounds.map((/** @type {number} */ number) => [number, BigInt(100 * number)])),
      unused: new Map(unused.map((/** @type {number} */ number) => [number, 250_000n])),
      disputed: new Map(),
    };
  }
}

/** @param {number} round @param {string} who @param {string} digest */
export function receiptOf(round, who, digest, unused = false) {
  return `crowdfl receipt S ${JSON.stringify({ form: 1, task: TASK, round, who, digest, late: false, unused })}`;
}

/** Fresh at every call, as a seed must be. */
let seeds = 0;

/** @type {any} */
const SIMPLE = {
  openDefinition: async (/** @type {string} */ text) => ({ task: TASK, body: keptBody(text), requester: new Uint8Array() }),
  openAppointment: async () => ({ task: TASK, fingerprint: "" }),
  requireKey: () => {},
  sharesTask: (/** @type {any} */ { task, body }) => ({
    hasReference: body.settings.reference ?? false, recruits: body.recruiter !== "",
    task, initial: "right", parameters: 2, shape: [], unit: 1, minParticipants: body.settings.min_participants,
    rounds: body.settings.rounds, payment: BigInt(body.settings.payment), bonus: BigInt(body.settings.bonus ?? 0), roundsUntil: body.rounds_until, claimsUntil: body.claims_until, claimsEarly: body.settings.pay === "equal", window: body.settings.window,
    draws: body.settings.draws,
    step: body.settings.server_step ? { kind: body.settings.server_step } : null,
  }),
  newTicketKey: async () => ({ open: `key ${++seeds}` }),
  openRecruited: (/** @type {string} */ invitation) => invitation,
  requireCompany: (/** @type {any} */ task, least = 5, allTheSame = false) => {
    if (task.recruits && !allTheSame) throw new TooFewParticipants("the platform may be everybody else");
    if (task.minParticipants < least) throw new TooFewParticipants(`as few as ${task.minParticipants}`);
  },
  placeNote: async () => null,
  takesPlace: (/** @type {string} */ invitation) => invitation.includes("replaces"),
  signConsent: async (/** @type {any} */ { task, body }, /** @type {any} */ keys, /** @type {number} */ at, language = "") =>
    `crowdfl consent S ${JSON.stringify({ form: 1, task, version: body.consent.version, language, at, who: keys.who })}`,
  checkConsentReceipt: async (/** @type {string} */ receipt, /** @type {unknown} */ _key, /** @type {any} */ { consent }) => {
    if (receipt !== `receipt of ${consent}`) throw new DocumentError("not for this consent");
  },
  consentCopy: (/** @type {any[]} */ ...given) => JSON.stringify(given.slice(1)),
  newKeys: async () => ({ who: `who ${++seeds}` }),
  enrolmentRequest: async (/** @type {string} */ _task, /** @type {string} */ invitation, /** @type {any} */ keys) => ({ invitation, request: keys.who }),
  openEnrolled: async (/** @type {Uint8Array} */ sealed) => ({ certificate: `cert ${parse(sealed)}`, bundle: bytes("bundle") }),
  openBundle: async () => ({ fingerprint: new Uint8Array(), cspSigning: new Uint8Array() }),
  hex: () => "right",
  sha256: async () => new Uint8Array(),
  readSafetensors: (/** @type {Uint8Array} */ initial) => Float64Array.from(parse(initial)),
  startChain: async () => ({ number: 0, weights: [] }),
  chainFromBytes: (/** @type {Uint8Array} */ kept) => parse(kept),
  chainToBytes: (/** @type {unknown} */ chain) => bytes(chain),
  stateDigest: async (/** @type {any} */ chain) => `state ${chain.number}`,
  chainWeights: (/** @type {any} */ chain) => Float64Array.of(chain.number, 0),
  makeUpload: async (/** @type {any[]} */ ...given) => {
    const [, , keys, chain, weights, samples, round] = given;
    return { bytes: bytes({ seed: ++seeds, who: keys.who, base: chain.number, weights: [...weights], samples, round }), clipped: 0, scaled: null };
  },
  checkReceipt: async (/** @type {string} */ receipt, /** @type {unknown} */ _key, /** @type {any} */ sent) => {
    const body = keptBody(receipt);
    if (body.round !== sent.round || body.digest !== decoder.decode(sent.upload)) throw new DocumentError("not for this upload");
    return { late: body.late, unused: body.unused };
  },
  readPublication: async (/** @type {any[]} */ ...given) => {
    const [, , chain, publication, round] = given;
    const { number, accepted, absent } = parse(publication);
    if (number !== round || round <= chain.number) throw new Error("read out of order");
    return { chain: { number, weights: [] }, total: 1, accepted, absent, rejected: new Map(), record: publication };
  },
  readRecord: async (/** @type {any[]} */ ...given) => {
    const [, , , publication, round] = given;
    const { number, accepted, absent, base } = parse(publication);
    if (number !== round) throw new ChainBroken("of another round");
    if (base) throw new RolledBack("a server was set back");
    return { accepted, absent, rejected: new Map(), record: publication };
  },
  readEnd: async (/** @type {any[]} */ ...given) => {
    const { number, shown, why, record } = parse(given[3]);
    if (number !== given[4]) throw new ChainBroken("of another round");
    return { why, shown, record: record ? bytes(record) : null };
  },
  rewardBy: (/** @type {unknown} */ _task, /** @type {Uint8Array} */ record) => (parse(record).pays ? bytes({ amount: parse(record).pays }) : null),
  recordIn: (/** @type {any[]} */ ...given) => (parse(given[2]).record ? bytes(parse(given[2]).record) : null),
  standing: (/** @type {any} */ opened, /** @type {string} */ who) => 
    (opened.accepted.includes(who) ? null : opened.absent ? "not_passed_on" : "broken_seal"),
  openReward: async (/** @type {any[]} */ ...given) => BigInt(parse(given[3]).amount),
  makeClaim: async (/** @type {any[]} */ ...[, , { rewards, unused, counter }]) => bytes({ rounds: rewards.map((/** @type {any} */ one) => one.round), unused, counter }),
  checkDestination: (/** @type {string} */ _kind, /** @type {string} */ text) => text,
  sealDestination: async (/** @type {any[]} */ ...[, , , counter, kind, to]) => bytes([counter, kind, to]),
  openExtension: async (/** @type {string} */ text) => {
    if (!text.startsWith("until ")) throw new DocumentError("no such signature");
    return Number(text.slice("until ".length));
  },
};

/** @type {typeof import("#web/phone/agent/protocol.js")} */
export const protocol = SIMPLE;

/** Trains without data; `trained` are the rounds. */
export class FakeTrainer {
  /** @type {number[]} */
  trained = [];
  /** @type {Error | null} */
  failure = null;

  /** @param {Float64Array} weights @param {unknown} _training @param {number} round */
  async train(weights, _training, round) {
    if (this.failure) throw this.failure;
    this.trained.push(round);
    return { weights: weights.map((one) => one + round), samples: 5 };
  }

  /** @param {Float64Array} weights */
  async evaluate(weights) {
    return { accuracy: weights[0] / 10, loss: 1, samples: 4 };
  }
}

/** A phone: tables that survive its tabs. */
export class FakePhone {
  /** @param {FakePlatform} [platform] @param {Tables} [tables] */
  constructor(platform = new FakePlatform(), tables = new MemoryTables()) {
    this.platform = platform;
    this.tables = tables;
    this.trainer = new FakeTrainer();
    this.time = BEGINS;
    /** @type {[string, any][]} */
    this.told = [];
    /** @type {number[]} Seconds that agents have slept. */
    this.slept = [];
  }

  get store() {
    return new Store(this.tables);
  }

  /** An agent in a new tab. @param {Fuse} [fuse] @param {Partial<import("#web/phone/agent/agent.js").AgentOptions>} [more] */
  open(fuse = new Fuse(), more = {}) {
    return new Agent({
      store: new Store(tabOf(this.tables, fuse)),
      platform: this.platform.asked(fuse),
      invitation: { task: TASK, invitation: "come", kgc: "", sp: "", kgcKey: new Uint8Array(), spKey: new Uint8Array(), expires: 0, place: "01234567", replaces: false },
      trainer: this.trainer,
      onEvent: (what, details) => this.told.push([what, details]),
      sleep: async (seconds, signal) => {
        await new Promise((resolve) => setImmediate(resolve)); // a test has its turn
        signal?.throwIfAborted();
        if (fuse.left <= 0) throw new TabClosed("closed before");
        this.slept.push(seconds);
        this.time += seconds;
        if (this.slept.length > 5000) throw new Error("it waits for ever");
      },
      jitter: (_low, high) => high,
      now: () => this.time,
      locks: null,
      protocol,
      ...more,
    });
  }

  /** Invited, and looked at. @param {Fuse} [fuse] */
  async invited(fuse) {
    await this.store.open(TASK, { task: TASK, invitation: "come" });
    return this.open(fuse);
  }

  /** @param {string} what */
  events(what) {
    return this.told.filter(([name]) => name === what).map(([, details]) => details);
  }
}

/** The Web Locks API as far as an agent uses it. */
export class FakeLocks {
  /** @type {Map<string, Promise<unknown>>} */
  _held = new Map();

  /** @param {string} name @param {LockOptions} options @param {(lock: any) => Promise<any>} act */
  async request(name, { ifAvailable = false, signal }, act) {
    while (this._held.has(name)) {
      if (ifAvailable) return act(null);
      await Promise.race([this._held.get(name), aborted(signal)]);
    }
    const done = act({ name });
    const over = done.catch(() => {}).finally(() => this._held.delete(name));
    this._held.set(name, over);
    return done;
  }

  async query() {
    return {};
  }
}

/** @param {AbortSignal} [signal] @returns {Promise<never>} */
function aborted(signal) {
  return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
}

/** Until something is true, without end only in a broken test. @param {() => unknown} look */
export async function until(look) {
  for (let turn = 0; turn < 100_000; turn++) {
    if (await look()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error("it never came");
}
