// What states and errors are called when a person reads them.

import { isSaid, t, together } from "../../web/common/text.js";

/** @typedef {import("./types.js").RoundView} RoundView */
/** @typedef {import("./types.js").Campaign} Campaign */

/** A word for what another program calls so; its own where no catalogue has one. @param {string} key @param {string} state */
const wordOf = (key, state) => (isSaid(key) ? t(key) : plainly(state));

/** @param {string} state */
export const roundWord = (state) => wordOf(`round.${state}`, state);
/** @param {RoundView["mine"]} mine */
export const mineWord = (mine) => wordOf(`mine.${mine}`, mine);
/** @param {Campaign["phase"]} phase */
export const phaseWord = (phase) => wordOf(`phase.${phase}`, phase);

/** Why a round pays nothing, or an upload does not count: by this page's own words, else by those of all pages. @param {string} code */
export const reasonWords = (code) => t(isSaid(`reason.${code}`) ? `reason.${code}` : `why.${code}`);

/** Whether the same may succeed in a while. @param {unknown} wrong */
function isAway(wrong) {
  return wrong instanceof Error && /** @type {{ passes?: boolean }} */ (wrong).passes === true;
}

/** What catalogues call an error: by its name, else by the kind that it belongs to. @param {unknown} error */
function known(error) {
  if (!(error instanceof Error)) return undefined;
  const names = [error.name];
  for (let kind = error.constructor; kind?.name; kind = Object.getPrototypeOf(kind)) names.push(kind.name);
  return names.find((name) => isSaid(`errors.${name}`));
}

/** Errors whose sentence leaves something open that helpers may need. */
const DETAILED = new Set(["CrowdFLError", "UnsupportedTask", "SettingsError", "FormatError", "SealBroken", "BadSignature", "DocumentError",
  "ProtocolError", "TooFewParticipants", "NothingToContribute", "ChainBroken", "UploadRejected", "RewardOutOfRange", "ClaimRefused",
  "CampaignError", "InvitationRefused", "LearningError", "StoreUnavailable", "StorageFull", "ServiceError", "NotAuthenticated", "ServiceUnavailable"]);

/**
 * What happened, and what to do; behind it, in English, what only helpers may need. An error that no catalogue knows was made for
 * people: its message is all.
 * @param {unknown} wrong
 */
export function explain(wrong) {
  if (isAway(wrong) && !navigator.onLine) return t("errors.offline");
  const [name, words] = [known(wrong), sentence(wrong instanceof Error ? wrong.message : String(wrong))];
  if (!name) return words;
  return DETAILED.has(name) ? [t(`errors.${name}`), t("errors.detail", { words })].join("\n") : t(`errors.${name}`);
}

/** The same of a link that cannot be read. @param {unknown} wrong */
export function explainLink(wrong) {
  return together(known(wrong) === "FormatError" ? t("errors.linkDamaged") : explain(wrong), t("errors.linkAgain"));
}

const TURNING = /[\u202a-\u202e\u2066-\u2069]|(?!\n)\p{Cc}/gu;

/** What a stranger wrote, without marks that turn the text around it. @param {string} text */
export const plainly = (text) => text.replace(TURNING, "");

/** @param {string} text */
export function sentence(text) {
  const plain = plainly(text).trim();
  if (!plain) return "";
  const whole = plain[0].toUpperCase() + plain.slice(1);
  return /[.!?。！？]$/.test(whole) ? whole : `${whole}.`;
}

/** A long key in groups, as people compare it. @param {string} key */
export const grouped = (key) => (key.match(/.{1,4}/g) ?? []).join(" ");

/** What the platform said of a contribution, and what the second server has signed of it. @param {number} round @param {string} said @param {string} signed */
export function differenceWords(round, said, signed) {
  return t("evidence.round", { round, said: t(`said.${said}`), signed: t(`signed.${signed}`) });
}
