// The secret of an invitation lies behind # in the link. It leaves the address bar before anything else runs. What is kept of it, the
// store keeps; no request carries it in its address.

import { t } from "../../web/common/text.js";

/** @type {string | null} */
let waiting = null;

const HIDDEN = "#/campaigns";

/** Words of this page begin with `#/`; `#view` is where "skip to the content" leads. */
function isInvitation() {
  return location.hash.length > 1 && !location.hash.startsWith("#/") && location.hash !== "#view";
}

function take() {
  if (!isInvitation()) return;
  waiting = location.hash.slice(1);
  history.replaceState(null, "", HIDDEN);
}

/** What the page was opened with, which stays to be taken. */
export const waitingInvitation = () => waiting;

/** Back into the address bar, for an app that hands its address on to a browser; or out of it again. @param {boolean} [shown] */
export function showInvitation(shown = true) {
  if (waiting !== null) history.replaceState(null, "", shown ? linkOf(waiting) : HIDDEN);
}

/** @param {string} fragment */
export const linkOf = (fragment) => `${location.origin}${location.pathname}#${fragment}`;

/** The invitation that the page was opened with; once. */
export function takeInvitation() {
  const fragment = waiting;
  waiting = null;
  return fragment;
}

/**
 * The part of a pasted link that holds the invitation.
 * @param {string} pasted @param {{ origin: string, host: string }} page
 */
export function fragmentOf(pasted, page) {
  const text = pasted.trim();
  if (!text.includes("#")) throw new Error(t("invite.noLink"));
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && url.origin !== page.origin) {
    throw new Error(t("invite.otherPage", { place: url.host, here: page.host }));
  }
  return text.slice(text.indexOf("#") + 1);
}

if ("location" in globalThis) { // a test has no address bar
  take();
  addEventListener("hashchange", take);
}
