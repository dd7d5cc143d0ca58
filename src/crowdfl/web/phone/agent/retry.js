// How long to wait before trying, or looking, again. The port of retry.py: sleep, clock and jitter are passed in.

const MOST_STEPS = 100; // a delay has long reached its cap

/** @typedef {(seconds: number, signal?: AbortSignal) => Promise<void>} Sleep */

/**
 * @typedef {object} BackoffOptions Seconds.
 * @property {number} [first]
 * @property {number} [longest]
 * @property {number} [factor]
 * @property {number} [deadline] After the start; no wait goes past it.
 * @property {(low: number, high: number) => number} [jitter] Spreads phones that lost one server together.
 * @property {Sleep} [sleep]
 * @property {() => number} [clock]
 * @property {AbortSignal} [signal] Ends a wait.
 */

/** @param {number} low @param {number} high */
export const uniform = (low, high) => low + Math.random() * (high - low);

/** Waits, and wakes up early when the phone has a network again or the page is looked at. @type {Sleep} */
export function sleep(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => finish(resolve), seconds * 1000);
    const wake = (/** @type {Event} */ { type }) => {
      if (type === "online" || document.visibilityState === "visible") finish(resolve);
    };
    const stop = () => finish(() => reject(signal?.reason));
    const finish = (/** @type {() => void} */ end) => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", wake);
      globalThis.document?.removeEventListener("visibilitychange", wake);
      signal?.removeEventListener("abort", stop);
      end();
    };
    globalThis.addEventListener?.("online", wake);
    globalThis.document?.addEventListener("visibilitychange", wake);
    signal?.addEventListener("abort", stop);
    if (signal?.aborted) stop();
  });
}

/** Delays that grow by `factor` from `first` to `longest`. */
export class Backoff {
  /** @param {BackoffOptions} [options] */
  constructor(options = {}) {
    this.first = options.first ?? 0.2;
    this.longest = options.longest ?? 10;
    this.factor = options.factor ?? 2;
    this.deadline = options.deadline ?? Infinity;
    this.jitter = options.jitter ?? uniform;
    this.sleep = options.sleep ?? sleep;
    this.clock = options.clock ?? (() => performance.now() / 1000);
    this.signal = options.signal;
  }

  /** @param {number} failures @param {number} [atLeast] */
  delay(failures, atLeast = 0) {
    const most = Math.min(this.longest, this.first * this.factor ** Math.min(failures, MOST_STEPS));
    return Math.max(atLeast, this.jitter(most / 2, most));
  }

  start() {
    return new Attempts(this);
  }
}

/** Attempts at one thing: how many failed in a row. */
export class Attempts {
  /** @param {Backoff} backoff */
  constructor(backoff) {
    this.backoff = backoff;
    this.failures = 0;
    this.started = backoff.clock();
  }

  succeed() {
    this.failures = 0;
  }

  /**
   * Count a failure and sleep; false, at once, where that would go past the deadline.
   * @param {number} [atLeast] @param {(seconds: number) => void} [tell] Hears how long.
   */
  async wait(atLeast = 0, tell = () => {}) {
    const { clock, deadline, sleep: rest, signal } = this.backoff;
    const delay = this.backoff.delay(this.failures++, atLeast);
    if (clock() - this.started + delay > deadline) return false;
    tell(delay);
    await rest(delay, signal);
    return true;
  }
}

/**
 * The call's result. An error that `passes` says yes to is waited out, until the deadline; others are thrown.
 * @template T @param {() => Promise<T>} call @param {Backoff} backoff
 * @param {(error: unknown) => boolean | Promise<boolean>} passes
 * @param {(error: unknown, seconds: number) => void} [tell] @returns {Promise<T>}
 */
export async function retry(call, backoff, passes, tell = () => {}) {
  const attempts = backoff.start();
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(await passes(error)) || !(await attempts.wait(0, (seconds) => tell(error, seconds)))) throw error;
    }
  }
}
