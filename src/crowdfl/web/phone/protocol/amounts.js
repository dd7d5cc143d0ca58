// Amounts of money, and what one person may earn: an invitation shows it, so that this needs little else.

import { DocumentError } from "./errors.js";

const AMOUNT = /^\s*([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?\s*$/;
const LARGEST_AMOUNT = 10n ** 15n; // millionths

/**
 * An amount of money as millionths.
 * @param {string | number} amount
 */
export function toMillionths(amount) {
  const [, sign, whole, part = "", power = "0"] = AMOUNT.exec(String(amount)) ?? [];
  const digits = `${whole ?? ""}${part}`.replace(/^0+/, "");
  const exponent = Number(power) - part.length;
  const given = whole !== undefined && whole.length + part.length > 0 && !(sign === "-" && digits);
  const fits = given && exponent >= -40 && exponent <= 20 && digits.length <= 60;
  const scaled = fits ? BigInt(digits || "0") * 10n ** BigInt(exponent + 46) : -1n; // times 10^40
  const millionths = scaled / 10n ** 40n;
  if (scaled < 0n || scaled % 10n ** 40n || millionths > LARGEST_AMOUNT) throw new DocumentError("its budget is not an amount of money");
  return millionths;
}

/**
 * What one person may earn in the whole task, in millionths, as `estimate` of documents/task_summary.py. `varies`: rewards follow
 * samples or distances, and these are their middle.
 * @param {any} body Of a definition.
 * @returns {{low: bigint, high: bigint, varies: boolean} | null} null: nothing is paid.
 */
export function estimateOf({ settings, plan }) {
  const budget = isPaid({ settings }) ? toMillionths(settings.budget) : 0n;
  if (budget === 0n) return null;
  const inRound = settings.per_round ?? settings.max_participants;
  const planned = BigInt(plan.goal ?? Math.min(plan.start_with ?? settings.min_participants, inRound));
  const [everyone, rounds] = [BigInt(settings.max_participants), BigInt(settings.rounds)];
  if (settings.pay === "fixed") {
    const [each, bonus] = [toMillionths(settings.each), toMillionths(settings.bonus ?? 0)];
    return { low: 0n, high: rounds * each + bonus, varies: false };
  }
  const varies = settings.pay === "samples" || settings.pay === "distance";
  return { low: (rounds * budget) / everyone, high: (rounds * budget) / planned, varies };
}

/** Whether anyone can compute from CSP's record what a round pays: its claim shows nothing, and need not wait. @param {Record<string, any>} settings */
export const claimsEarly = ({ pay }) => ["equal", "fixed"].includes(pay ?? "equal");

/** @param {any} definition */
export function isPaid(definition) {
  return Boolean(definition) && definition.settings.budget !== null && definition.settings.pay !== "none";
}
