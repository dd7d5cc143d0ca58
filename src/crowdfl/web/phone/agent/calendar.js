// A task's rounds as a calendar file (RFC 5545), made on the phone from the plan that the requester signed.

/** @typedef {{round: number, at: number, until: number}} Opening Seconds since 1970. */
/** @typedef {{now: number, next?: number | null, done?: number}} When `next` as the platform says; `done`: the last round that has opened. */

const DAY = 86_400;
const MOST = 1000; // rounds of a file
const FOLDED = 75; // bytes of a line
const bytes = new TextEncoder();

/**
 * When the rounds that are left open, if the plan says and people and money are there; none where it names no time.
 * @param {any} body Of a definition. @param {When} when @returns {Opening[]}
 */
export function openings({ plan, settings }, { now, next = null, done = 0 }) {
  const start = plan.start_at === null ? null : Date.parse(plan.start_at) / 1000;
  const [daily, apart] = typeof plan.every === "string" ? [plan.every.slice("day at ".length), null] : [null, plan.every];
  if (next === null && daily === null && (start === null || start < now)) return [];
  /** @type {Opening[]} */
  const found = [];
  let earliest = next ?? Math.max(now, start ?? now);
  for (let round = done + 1; round <= settings.rounds && found.length < MOST; round++) {
    const at = daily === null ? earliest : nextTime(daily, earliest);
    if (at === null) return [];
    found.push({ round, at, until: at + settings.window + (settings.late ?? 0) });
    if (plan.every === null) break; // the next follows when this one is over, and nobody knows when
    earliest = Math.max(at + settings.window, at + (apart ?? 0));
  }
  return found;
}

/** The first moment from then on at which it is that time of day there; null where the browser knows no such place. @param {string} daily @param {number} earliest */
function nextTime(daily, earliest) {
  const [clock, zone = "UTC"] = daily.split(" ");
  const [hours, minutes] = clock.split(":").map(Number);
  try {
    const here = wallTime(earliest, zone);
    for (let day = Math.floor(here / DAY) - 1; ; day++) {
      const wanted = day * DAY + hours * 3600 + minutes * 60;
      const at = wanted - (wallTime(wanted, zone) - wanted);
      const right = wanted - (wallTime(at, zone) - at); // once more: the clocks may change in between
      if (right >= earliest) return right;
    }
  } catch {
    return null;
  }
}

/** What a clock there shows at a moment, as if it were UTC; seconds. @param {number} at @param {string} zone */
function wallTime(at, zone) {
  const options = /** @type {const} */ ({ year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" });
  const parts = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...options }).formatToParts(at * 1000);
  const of = (/** @type {string} */ type) => Number(parts.find((part) => part.type === type)?.value);
  return Date.UTC(of("year"), of("month") - 1, of("day"), of("hour"), of("minute"), of("second")) / 1000;
}

/**
 * The file, or null where the plan names no time. Texts are the reader's own; {round} and {rounds} are filled in.
 * @param {any} body Of a definition. @param {string} task @param {When & {texts: {title: string, body: string, claim?: {title: string, body: string}}}} options `claim`: of a task that pays.
 */
export function calendarOf(body, task, { texts, ...when }) {
  const found = openings(body, when);
  const claims = texts.claim && body.claims_until > when.now ? [claimEvent(body, task, when.now, texts.claim)] : [];
  if (!found.length && !claims.length) return null;
  const fill = (/** @type {string} */ text, /** @type {number} */ round) =>
    text.replaceAll("{round}", String(round)).replaceAll("{rounds}", String(body.settings.rounds));
  const events = found.flatMap(({ round, at, until }) => [
    "BEGIN:VEVENT",
    `UID:${task.slice(0, 32)}-${round}@crowdfl`, // the same when it is made again: a calendar then replaces it
    `DTSTAMP:${utc(when.now)}`,
    `DTSTART:${utc(at)}`,
    `DTEND:${utc(Math.max(until, at + 60))}`,
    `SUMMARY:${escaped(fill(texts.title, round))}`,
    `DESCRIPTION:${escaped(fill(texts.body, round))}`,
    "TRANSP:TRANSPARENT",
    ...["BEGIN:VALARM", "ACTION:DISPLAY", `DESCRIPTION:${escaped(fill(texts.title, round))}`, "TRIGGER:PT0S", "END:VALARM"],
    "END:VEVENT",
  ]);
  const lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//CrowdFL//Rounds//EN", ...events, ...claims.flat(), "END:VCALENDAR"];
  return lines.map((line) => `${folded(line)}\r\n`).join("");
}

const WARNING = 5 * DAY; // before claims end

/** Say where to be paid, and claim, before the day that was signed. @param {any} body @param {string} task @param {number} now @param {{title: string, body: string}} words */
function claimEvent({ claims_until: until, rounds_until: from }, task, now, { title, body }) {
  const at = Math.max(now, Math.min(until - DAY, Math.max(from, until - WARNING)));
  return [
    "BEGIN:VEVENT", `UID:${task.slice(0, 32)}-claim@crowdfl`, `DTSTAMP:${utc(now)}`, `DTSTART:${utc(at)}`, `DTEND:${utc(Math.max(until, at + 60))}`,
    `SUMMARY:${escaped(title)}`, `DESCRIPTION:${escaped(body)}`, "TRANSP:TRANSPARENT",
    "BEGIN:VALARM", "ACTION:DISPLAY", `DESCRIPTION:${escaped(title)}`, "TRIGGER:PT0S", "END:VALARM", "END:VEVENT",
  ];
}

/** @param {number} at Seconds. */
const utc = (at) => `${new Date(Math.round(at) * 1000).toISOString().replace(/[-:]|\.\d+/g, "")}`;

/** @param {string} text */
const escaped = (text) => text.replace(/[\\;,]/g, "\\$&").replace(/\r\n|\r|\n/g, "\\n").replace(/\p{Cc}/gu, "");

/** A long line goes on in the next, behind a space; no character is cut. @param {string} line */
function folded(line) {
  const lines = [""];
  for (const one of line) {
    if (bytes.encode(lines[lines.length - 1] + one).length > FOLDED) lines.push(" ");
    lines[lines.length - 1] += one;
  }
  return lines.join("\r\n");
}
