// The phone's sensors, as samples with the times that the browser measured: motion in g and 2 rad/s, which is what training takes, and
// beside it speed in 10 m/s and loudness in 50 dB, where a task asks for them. Of a place or a sound nothing is kept.

import { listOf, t } from "../../web/common/text.js";
import { stayAwake } from "./signals.js";

/** @typedef {import("./types.js").Samples} Samples */
/** @typedef {import("./types.js").DefinitionBody} DefinitionBody */
/** @typedef {"speed" | "loudness"} SlowName */
/** @typedef {{ read: () => number, close: () => void }} Slow A sensor that is asked for its newest number with each sample of motion. */

const GRAVITY = 9.80665; // m/s^2 in a g
const TURN = Math.PI / 180 / 2; // 2 rad/s in a degree per second
const FAST = 10; // m/s
const LOUD = 50; // dB
const SILENCE = -100; // dB: the level of a microphone that is off
const PATIENCE = 3000; // milliseconds until a device that says nothing has no sensors
const FIRST_PLACE = 30_000; // milliseconds until a device that finds no satellites has none
export const TRIMMED = 2; // seconds at each end: the phone is on its way into the pocket, or out of it

export class NoSensors extends Error {
  name = "NoSensors";
}

/** Only the accelerometer, or the gyroscope too. @param {DefinitionBody} definition */
const motionNames = ({ training }) => ((training.channels ?? 6) > 3 ? ["accelerometer", "gyroscope"] : ["accelerometer"]);

/** @param {DefinitionBody} definition @returns {SlowName[]} */
export const slowNames = ({ training }) => training.sensors ?? [];

/** What the task records with. @param {DefinitionBody} definition */
export const sensorNames = (definition) => [...motionNames(definition), ...slowNames(definition)];

/** Those that this browser does not have at all; what a device lacks is seen when it records. @param {DefinitionBody} definition */
export const missingSensors = (definition) => sensorNames(definition).filter((name) => !HAS[name]?.());

/** @type {Record<string, () => boolean>} */
const HAS = {
  accelerometer: () => "DeviceMotionEvent" in globalThis,
  gyroscope: () => "DeviceMotionEvent" in globalThis,
  speed: () => Boolean(globalThis.navigator?.geolocation),
  loudness: () => Boolean(globalThis.navigator?.mediaDevices) && "AudioContext" in globalThis,
};

/** Browsers on iOS count acceleration the other way round than the standard, Android and the task's data do. An iPad says that it is a Mac. */
function sign() {
  const isApple = /iPhone|iPad|iPod/.test(navigator.userAgent) || (/Macintosh/.test(navigator.userAgent) && navigator.maxTouchPoints > 1);
  return isApple ? -1 : 1;
}

/** Must be called by a tap: iOS, for one, asks the person then. */
export async function askForMotion() {
  const motion = /** @type {{ requestPermission?: () => Promise<string> } | undefined} */ (globalThis.DeviceMotionEvent);
  if (!motion) throw new NoSensors(t("sensor.noBrowser"));
  if (motion.requestPermission && (await motion.requestPermission()) !== "granted") throw new NoSensors(t("sensor.refused"));
}

/** @type {Record<SlowName, () => Promise<Slow>>} */
export const OPEN = { speed: openSpeed, loudness: openLoudness };

/** How fast the phone is. A browser that gives a place without a speed has seen no movement. @returns {Promise<Slow>} */
function openSpeed() {
  return new Promise((resolve, reject) => {
    let speed = NaN;
    const close = () => navigator.geolocation.clearWatch(watch);
    const watch = navigator.geolocation.watchPosition(({ coords }) => {
      speed = Math.max(coords.speed ?? 0, 0);
      resolve({ read: () => speed / FAST, close });
    }, ({ code }) => {
      if (Number.isFinite(speed)) return; // a tunnel is no reason to stop
      close();
      reject(new NoSensors(t(code === 1 ? "sensor.noSpeedAllowed" : "sensor.noSpeed")));
    }, { enableHighAccuracy: true, maximumAge: 0, timeout: FIRST_PLACE });
  });
}

/** How loud it is around. Each level is computed from some hundredths of a second of sound, which are overwritten. @returns {Promise<Slow>} */
async function openLoudness() {
  const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false }; // else a browser makes all equally loud
  const stream = await navigator.mediaDevices.getUserMedia({ audio: plain }).catch(() => {
    throw new NoSensors(t("sensor.noLoudness"));
  });
  const context = new AudioContext();
  void context.resume();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const sound = new Float32Array(analyser.fftSize);
  const read = () => {
    analyser.getFloatTimeDomainData(sound);
    return levelOf(sound) / LOUD;
  };
  const close = () => {
    for (const track of stream.getTracks()) track.stop();
    void context.close();
  };
  return { read, close };
}

/** In decibels below the loudest that the microphone can take. @param {Float32Array} sound */
export function levelOf(sound) {
  const power = sound.reduce((sum, value) => sum + value * value, 0) / sound.length;
  return Math.max(10 * Math.log10(power), SILENCE);
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

/** Listens from `start` to `stop`, and collects from the last `begin` on. The screen stays on meanwhile. */
export class Recorder {
  /**
   * @param {DefinitionBody} definition @param {readonly Slow[]} slow
   * @param {{ onSample?: (sample: number[], seconds: number) => void, onHidden?: (hidden: boolean) => void }} [watch]
   */
  constructor(definition, slow, { onSample = () => {}, onHidden = () => {} } = {}) {
    this.names = motionNames(definition);
    this.motion = definition.training.channels ?? 6;
    this.slow = slow;
    this.onSample = onSample;
    this.onHidden = onHidden;
    this.listen = this.listen.bind(this);
    this.watch = this.watch.bind(this);
    this.running = false;
    this.begin();
  }

  /** What was collected is dropped. */
  begin() {
    /** @type {number[]} */
    this.times = [];
    /** @type {number[]} */
    this.signal = [];
  }

  get seconds() {
    return this.times.length ? this.times[this.times.length - 1] - this.times[0] : 0;
  }

  /** Resolves with the first sample. */
  async start() {
    this.running = true;
    document.addEventListener("visibilitychange", this.watch);
    const first = new Promise((resolve) => (this.first = resolve));
    addEventListener("devicemotion", this.listen);
    stayAwake("recording");
    let timer = 0;
    const silence = new Promise((_, reject) => (timer = window.setTimeout(() => reject(new NoSensors(this.silent())), PATIENCE)));
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
    return t("sensor.silent", { sensors: listOf(this.names.map((name) => t(`sensor.${name}`))) });
  }

  /** @param {DeviceMotionEvent} event */
  listen(event) {
    const sample = sampleOf(event, this.motion);
    if (!sample || !this.running) return;
    this.first?.(undefined);
    sample.push(...this.slow.map(({ read }) => read()));
    this.times.push(event.timeStamp / 1000);
    this.signal.push(...sample);
    this.onSample(sample, this.seconds);
  }

  watch() {
    this.onHidden(document.visibilityState === "hidden");
  }

  stop() {
    this.running = false;
    removeEventListener("devicemotion", this.listen);
    document.removeEventListener("visibilitychange", this.watch);
    stayAwake("recording", false);
  }

  /** What was recorded so far, but for its first and last seconds. */
  samples() {
    const channels = this.motion + this.slow.length;
    return trimmed({ times: Float64Array.from(this.times), signal: Float64Array.from(this.signal), channels });
  }
}

/** Without the first and the last seconds, from second 0 on. @param {Samples} samples @param {number} [seconds] @returns {Samples} */
export function trimmed({ times, signal, channels }, seconds = TRIMMED) {
  const [begin, end] = [times[0] + seconds, times[times.length - 1] - seconds];
  const first = times.findIndex((time) => time >= begin);
  const last = times.findLastIndex((time) => time <= end) + 1;
  const [from, to] = first < 0 || last <= first ? [0, 0] : [first, last];
  return { times: times.slice(from, to).map((time) => time - times[from]), signal: signal.slice(from * channels, to * channels), channels };
}
