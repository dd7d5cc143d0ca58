// NumPy's `default_rng(seed).permutation(n)`, bit for bit: everyone who knows a seed can repeat the order of the batches.
// SeedSequence spreads the seed, PCG64 (XSL-RR) draws, and numbers above a bound are drawn again.

const WORD = 0xffffffffn;
const LONG = (1n << 64n) - 1n;
const WIDE = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;
const POOL = 4; // words that a seed is spread over

/** @param {number} a @param {number} b */
const times = (a, b) => Math.imul(a, b) >>> 0;

/** SeedSequence's hash, whose constant moves on with every use. @param {number} start @param {number} factor */
function hasher(start, factor) {
  let constant = start;
  return (/** @type {number} */ value) => {
    const mixed = (value ^ constant) >>> 0;
    constant = times(constant, factor);
    const product = times(mixed, constant);
    return (product ^ (product >>> 16)) >>> 0;
  };
}

/** @param {number} x @param {number} y */
function mix(x, y) {
  const sum = (times(0xca01f9dd, x) - times(0x4973f715, y)) >>> 0;
  return (sum ^ (sum >>> 16)) >>> 0;
}

/** The words of a seed, the lowest first. @param {bigint} seed */
function wordsOf(seed) {
  const words = [Number(seed & WORD)];
  for (let rest = seed >> 32n; rest > 0n; rest >>= 32n) words.push(Number(rest & WORD));
  return words;
}

/** @param {readonly number[]} words */
function poolOf(words) {
  const hash = hasher(0x43b0d7e5, 0x931e8875);
  const pool = Array.from({ length: POOL }, (_, place) => hash(words[place] ?? 0));
  for (let from = 0; from < POOL; from++) {
    for (let to = 0; to < POOL; to++) if (from !== to) pool[to] = mix(pool[to], hash(pool[from]));
  }
  for (const word of words.slice(POOL)) {
    for (let to = 0; to < POOL; to++) pool[to] = mix(pool[to], hash(word));
  }
  return pool;
}

/** Four numbers of 64 bits from a seed. @param {bigint} seed */
function spread(seed) {
  const pool = poolOf(wordsOf(seed));
  const hash = hasher(0x8b51f9dd, 0x58f38ded);
  const words = Array.from({ length: 8 }, (_, place) => BigInt(hash(pool[place % POOL])));
  return [0, 2, 4, 6].map((place) => words[place] | (words[place + 1] << 32n));
}

export class Generator {
  #state = 0n;
  #step;
  /** The upper half of the last draw, which the next word is taken from. @type {number | null} */
  #kept = null;

  /** @param {number | bigint} seed A whole number, not negative. */
  constructor(seed) {
    const [high, low, stepHigh, stepLow] = spread(BigInt(seed));
    this.#step = ((((stepHigh << 64n) | stepLow) << 1n) | 1n) & WIDE;
    this.#next();
    this.#state = (this.#state + ((high << 64n) | low)) & WIDE;
    this.#next();
  }

  /** 0 to n - 1 in a random order. @param {number} n */
  permutation(n) {
    const order = Int32Array.from({ length: n }, (_, place) => place);
    for (let last = n - 1; last > 0; last--) {
      const other = this.#upTo(last);
      [order[last], order[other]] = [order[other], order[last]];
    }
    return order;
  }

  #next() {
    this.#state = (this.#state * MULTIPLIER + this.#step) & WIDE;
    return this.#state;
  }

  #long() {
    const state = this.#next();
    const folded = (state >> 64n) ^ (state & LONG);
    const turn = state >> 122n;
    return ((folded >> turn) | (folded << (64n - turn))) & LONG;
  }

  #word() {
    if (this.#kept !== null) {
      const word = this.#kept;
      this.#kept = null;
      return word;
    }
    const long = this.#long();
    this.#kept = Number(long >> 32n);
    return Number(long & WORD);
  }

  /**
   * A number from 0 to `most`, each as likely: drawn with as many bits as it has, again while it is above.
   * @param {number} most
   */
  #upTo(most) {
    const mask = 2 ** (32 - Math.clz32(most)) - 1;
    for (;;) {
      const drawn = (this.#word() & mask) >>> 0;
      if (drawn <= most) return drawn;
    }
  }
}

/** @param {number | bigint} seed @param {number} n */
export function permutation(seed, n) {
  return new Generator(seed).permutation(n);
}

/**
 * The seed of a round and a participant, as Python's `Training.at` derives it.
 * @param {number | bigint} seed @param {number} round @param {string} name @returns {Promise<number>}
 */
export async function trainingSeed(seed, round, name) {
  const text = new TextEncoder().encode(`${seed}/${round}/${name}`);
  return new DataView(await crypto.subtle.digest("SHA-256", text)).getUint32(0);
}
