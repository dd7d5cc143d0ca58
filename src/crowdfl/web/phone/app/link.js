// The secret of an invitation lies behind # in the link. It leaves the address bar before anything else runs: a module of its
// own, which needs no other. What is kept of it, the store keeps; no request carries it in its address.

/** @type {string | null} */
let waiting = null;

/** Words of this page begin with `#/`; `#view` is where "skip to the content" leads. */
function isInvitation() {
  return location.hash.length > 1 && !location.hash.startsWith("#/") && location.hash !== "#view";
}

function take() {
  if (!isInvitation()) return;
  waiting = location.hash.slice(1);
  history.replaceState(null, "", `${location.pathname}#/campaigns`);
}

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
  if (!text.includes("#")) throw new Error("This is not an invitation link: it has no #");
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && url.origin !== page.origin) {
    throw new Error(`This link leads to ${url.host}, and this page is of ${page.host}: open it in your browser`);
  }
  return text.slice(text.indexOf("#") + 1);
}

if ("location" in globalThis) { // a test has no address bar
  take();
  addEventListener("hashchange", take);
}
