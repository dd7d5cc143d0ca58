// @ts-check
// Texts from numbers and from the program's own words, without the page.
import { money } from "../web/common/format.js";

const LABEL = 15; // columns, as `crowdfl task explain` writes its lines

/**
 * The lines of an explanation as terms and what is said of each; a line without a term goes on with the one before.
 * @param {string} widths @returns {[string, string][]}
 */
export function explainedRows(widths) {
  /** @type {[string, string][]} */
  const rows = [];
  for (const line of widths.split("\n").filter((one) => one.trim())) {
    const term = line.slice(0, LABEL).trim();
    const last = rows.at(-1);
    if (!/\s$/.test(line.slice(0, LABEL))) rows.push(["", line.trim()]);
    else if (term || !last) rows.push([term, line.slice(LABEL).trim()]);
    else last[1] += ` ${line.trim()}`;
  }
  return rows;
}

/**
 * What all rounds cost, or nothing if that cannot be told from what is typed.
 * @param {string} budget @param {string} rounds @returns {string}
 */
export function costOfRounds(budget, rounds) {
  const [whole, decimals = "", ...more] = budget.trim().split(".");
  if (more.length || !/^\d{1,10}$/.test(whole) || !/^\d{0,6}$/.test(decimals) || !/^\d{1,7}$/.test(rounds.trim())) return "";
  return money(BigInt(whole + decimals.padEnd(6, "0")) * BigInt(rounds.trim()));
}

/**
 * What is still to be paid in for all rounds, in millionths.
 * @param {{ budget: number, rounds: number }} task @param {{ paid_in: number, pending: number }} report
 */
export function unpaid({ budget, rounds }, { paid_in, pending }) {
  return Math.max(0, budget * rounds - paid_in - pending);
}
