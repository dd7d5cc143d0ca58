// What all pages say, in English.

export default {
  common: {
    blocked: "This page may not call {place}, so that your phone cannot go on here. It is not your network. Tell whoever invited you: the platform's operator must add that address to `phone_connect` in SP's settings.",
    kgc: "The key centre (KGC) deals the keys: while it does, or if it kept what it must destroy, it could read everything; together with the platform it can read every average until nobody can join any more.",
    language: "Language",
    notKnown: "–",
    notNow: "Not now",
    nothing: "nothing yet",
  },
  shell: {
    skip: "Skip to the content",
    views: "Views",
    table: "The same as a table",
    status: "the service answered with status {status}",
  },
  state: {
    running: "running",
    paused: "paused",
    finished: "finished",
    cancelled: "cancelled",
    settled: "settled",
    open: "open",
    closed: "closed",
    weighed: "weighed",
    rewarded: "rewarded",
    aborted: "aborted",
    pending: "pending",
    confirmed: "confirmed",
    rejected: "rejected",
    unknown: "unknown",
    paid: "paid",
  },
};
