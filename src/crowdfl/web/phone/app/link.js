// @ts-check
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

take();
addEventListener("hashchange", take);
