// What noise costs in privacy, as crowdfl/accounting.py computes it: the same formula over the same list of orders.

const SHARE = 0.9; // of delta, that noise may use
const DELTA = 1e-5; // where a task sets none
const ORDERS = Array.from({ length: 401 }, (_, step) => 2 ** ((step - 160) / 16)); // less 1

/** @param {number} length @param {number} sigma @param {number} rounds */
const rhoOf = (length, sigma, rounds) => (rounds * length * length) / (2 * sigma * sigma);

/** The logarithm of a delta with which rho-concentrated privacy is (epsilon, delta)-differential. @param {number} rho @param {number} epsilon */
export function logDelta(rho, epsilon) {
  return Math.min(...ORDERS.map((order) => order * ((order + 1) * rho - epsilon) - (order + 1) * Math.log1p(1 / order) - Math.log(order)));
}

/** An epsilon for this delta. @param {number} rho @param {number} delta */
export function epsilonOf(rho, delta) {
  if (rho <= 0) return 0;
  const wanted = Math.log(delta * SHARE);
  const found = ORDERS.map((order) => (order + 1) * rho - ((order + 1) * Math.log1p(1 / order) + Math.log(order) + wanted) / order);
  return Math.max(0, Math.min(...found));
}

/** @typedef {{ epsilon: number, delta: number, sigma: number, length: number }} Privacy */

/** What a definition promises each person; null: nothing. @param {Record<string, any>} settings @returns {Privacy | null} */
export function privacyOf({ epsilon, delta, sigma, max_norm: norm, decimals }) {
  return epsilon == null ? null : { epsilon, delta: delta ?? DELTA, sigma, length: Math.ceil(norm * 10 ** decimals) };
}

/** Whether the noise keeps what is promised over so many rounds. @param {Privacy} privacy @param {number} rounds */
export const isEnough = ({ epsilon, delta, sigma, length }, rounds) =>
  logDelta(rhoOf(length, sigma, rounds), epsilon) <= Math.log(delta * SHARE);

/** What so many opened rounds have cost, of epsilon. @param {Privacy} privacy @param {number} opened */
export const spent = ({ delta, sigma, length }, opened) => epsilonOf(rhoOf(length, sigma, opened), delta);
