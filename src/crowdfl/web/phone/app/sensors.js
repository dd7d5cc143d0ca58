// The phone's motion sensors, as samples in g and 2 rad/s (what training takes) with the times that the browser measured.

/** @typedef {import("./types.js").Samples} Samples */

const GRAVITY = 9.80665; // m/s^2 in a g
const PATIENCE = 3000; // milliseconds until a device that says nothing has no sensors
const TURN = Math.PI / 180 / 2; // 2 rad/s in a degree per second

export class NoSensors extends Error {
  name = "NoSensors";
}

/** Where the browser asks before it shows motion. */
function asking() {
  const motion = /** @type {{ requestPermission?: () => Promise<string> } | undefined} */ (globalThis.DeviceMotionEvent);
  return typeof motion?.requestPermission === "function" ? () => /** @type {any} */ (motion).requestPermission() : null;
}

/** Browsers on iOS count acceleration the other way round than the standard, Android and the task's data do. An iPad says that it is a Mac. */
function sign() {
  const isApple = /iPhone|iPad|iPod/.test(navigator.userAgent) || (/Macintosh/.test(navigator.userAgent) && navigator.maxTouchPoints > 1);
  return isApple ? -1 : 1;
}

/** Must be called by a tap: iOS, for one, asks the person then. */
export async function askForSensors() {
  if (!("DeviceMotionEvent" in globalThis)) throw new NoSensors("This browser does not show motion sensors to pages.");
  const ask = asking();
  if (ask && (await ask()) !== "granted") {
    throw new NoSensors("You did not allow motion sensors. Close this page, open it again, and allow them.");
  }
}

/**
 * One event as numbers, or null where the device has no such sensor.
 * @param {DeviceMotionEvent} event @param {number} channels 3: acceleration; 6: rotation too.
 * @returns {number[] | null}
 */
export function sampleOf(event, channels) {
  const moved = event.accelerationIncludingGravity;
  const turned = event.rotationRate;
  const scale = sign() / GRAVITY;
  const values = [moved?.x, moved?.y, moved?.z].map((value) => (value ?? NaN) * scale);
  if (channels > 3) values.push(...[turned?.alpha, turned?.beta, turned?.gamma].map((value) => (value ?? NaN) * TURN));
  return values.every(Number.isFinite) ? values : null;
}

/** Collects samples from `start` to `stop`, and keeps the screen on meanwhile. */
export class Recorder {
  /**
   * @param {number} channels
   * @param {{ onSample?: (sample: number[], seconds: number) => void, onHidden?: (hidden: boolean) => void }} [watch]
   */
  constructor(channels, { onSample = () => {}, onHidden = () => {} } = {}) {
    this.channels = channels;
    /** @type {number[]} */
    this.times = [];
    /** @type {number[]} */
    this.signal = [];
    this.onSample = onSample;
    this.onHidden = onHidden;
    this.listen = this.listen.bind(this);
    this.watch = this.watch.bind(this);
    /** @type {WakeLockSentinel | null} */
    this.awake = null;
    this.running = false;
  }

  get seconds() {
    return this.times.length ? this.times[this.times.length - 1] - this.times[0] : 0;
  }

  /** Samples per second so far. */
  get rate() {
    return this.seconds > 0 ? (this.times.length - 1) / this.seconds : 0;
  }

  /** Resolves with the first sample. */
  async start() {
    this.running = true;
    document.addEventListener("visibilitychange", this.watch);
    const first = new Promise((resolve) => (this.first = resolve));
    addEventListener("devicemotion", this.listen);
    void this.stayAwake();
    let timer = 0;
    const silence = new Promise((_, reject) => (timer = setTimeout(() => reject(new NoSensors(this.silent())), PATIENCE)));
    try {
      await Promise.race([first, silence]);
    } catch (wrong) {
      this.stop();
      throw wrong;
    } finally {
      clearTimeout(timer);
    }
  }

  silent() {
    return this.channels > 3
      ? "This device shows no accelerometer and gyroscope. Use a phone that has both, or import a CSV file."
      : "This device shows no accelerometer. Use a phone that has one, or import a CSV file.";
  }

  /** @param {DeviceMotionEvent} event */
  listen(event) {
    const sample = sampleOf(event, this.channels);
    if (!sample || !this.running) return;
    this.first?.(undefined);
    this.times.push(event.timeStamp / 1000);
    this.signal.push(...sample);
    this.onSample(sample, this.seconds);
  }

  watch() {
    const hidden = document.visibilityState === "hidden";
    this.onHidden(hidden);
    if (!hidden) void this.stayAwake(); // the lock is gone once a page was hidden
  }

  async stayAwake() {
    try {
      const lock = (await navigator.wakeLock?.request("screen")) ?? null;
      if (this.running) this.awake = lock;
      else void lock?.release();
    } catch {
      this.awake = null; // low battery, for example: the recording goes on as long as the screen does
    }
  }

  stop() {
    this.running = false;
    removeEventListener("devicemotion", this.listen);
    document.removeEventListener("visibilitychange", this.watch);
    void this.awake?.release();
    this.awake = null;
  }

  /** What was recorded so far. @returns {Samples} */
  samples() {
    const begin = this.times[0] ?? 0;
    return {
      times: Float64Array.from(this.times, (time) => time - begin),
      signal: Float64Array.from(this.signal),
      channels: this.channels,
    };
  }
}
