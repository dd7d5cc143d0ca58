// Why a round pays a person nothing: a code, which pages put into words.

const CENT = 10_000n; // millionths
const OVER = ["rewarded", "closed", "weighed"];
const TOO_LATE = ["TooLate", "RoundNotOpen", "TaskNotRunning", "TaskEnded"];

/**
 * Why a round pays this person nothing that can be paid out; null where it pays, or where nothing is known yet.
 * @param {{paid: boolean, state: string, reward?: {amount: string}, receipt?: string, refused?: {kind?: string}, nothing?: unknown,
 *   noReward?: import("../protocol/reasons.js").Reason, givenUp?: unknown, undrawn?: unknown}} known What is kept of it.
 * @returns {"no_pay" | "not_drawn" | "not_sent" | "too_little" | "late" | "refused" | "void" | "small" | "not_shown"
 *   | import("../protocol/reasons.js").Reason | null}
 */
export function reasonFor({ paid, state, reward, receipt, refused, nothing, noReward, givenUp, undrawn }) {
  const isVoid = state === "aborted" || givenUp;
  if (noReward === "not_in_line") return noReward;
  if (!paid) return noReward ?? (isVoid ? "void" : "no_pay");
  if (reward) return BigInt(reward.amount) < CENT ? "small" : null;
  if (isVoid) return "void";
  if (noReward !== undefined) return noReward;
  if (receipt) return state === "rewarded" ? "not_shown" : null;
  if (refused) return TOO_LATE.includes(refused.kind ?? "") ? "late" : refused.kind === "NotDrawn" ? "not_drawn" : "refused";
  if (undrawn) return "not_drawn";
  if (!OVER.includes(state)) return null;
  return nothing ? "too_little" : "not_sent";
}
