// What a phone in a pocket can tell its owner: sounds and vibration; and a screen that stays on while something depends on it.

/** @typedef {"tick" | "begin" | "end"} Signal */

/** Pitches in hertz one after the other, and how the phone shakes, in milliseconds. @type {Record<Signal, { tones: number[], shakes: number[] }>} */
const SIGNALS = {
  tick: { tones: [660], shakes: [40] },
  begin: { tones: [990, 990], shakes: [300] },
  end: { tones: [880, 660, 440], shakes: [150, 100, 150, 100, 150] },
};
const LENGTH = 0.14; // seconds of a tone

export class Signals {
  /** By a tap: a page may make sounds then. */
  constructor() {
    this.context = new AudioContext();
    void this.context.resume();
  }

  /** @param {Signal} name */
  give(name) {
    const { tones, shakes } = SIGNALS[name];
    navigator.vibrate?.(shakes);
    tones.forEach((pitch, place) => this.tone(pitch, this.context.currentTime + place * LENGTH * 1.3));
  }

  /** @param {number} pitch @param {number} at */
  tone(pitch, at) {
    const [source, gain] = [this.context.createOscillator(), this.context.createGain()];
    source.frequency.value = pitch;
    gain.gain.setValueAtTime(0.5, at);
    gain.gain.exponentialRampToValueAtTime(0.001, at + LENGTH); // without a click at its end
    source.connect(gain).connect(this.context.destination);
    source.start(at);
    source.stop(at + LENGTH);
  }

  close() {
    void this.context.close();
  }
}

/** Why the screen stays on. @type {Set<string>} */
const reasons = new Set();
/** @type {WakeLockSentinel | null} */
let lock = null;

/** @param {string} reason @param {boolean} [on] */
export function stayAwake(reason, on = true) {
  if (on) reasons.add(reason);
  else reasons.delete(reason);
  void settle();
}

async function settle() {
  if (!reasons.size) {
    void lock?.release();
    lock = null;
  } else if (!lock || lock.released) {
    lock = (await navigator.wakeLock?.request("screen").catch(() => null)) ?? null; // refused on a low battery: it works as long as the screen does
    if (!reasons.size) void settle();
  }
}

globalThis.document?.addEventListener("visibilitychange", () => document.visibilityState === "visible" && settle()); // a hidden page loses it
