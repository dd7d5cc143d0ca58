// People: invitations, each as secret as a key; what became of each; who has sent, and when.
import { h, table } from "../web/common/dom.js";
import { formatTime } from "../web/common/format.js";
import { actionButton, ask, button, card, form, labelled, messageOf, notice, part } from "../web/common/parts.js";
import { said } from "../web/common/said.js";
import { t } from "../web/common/text.js";
import { get, post } from "./api.js";
import { isOver } from "./list.js";

/** @typedef {import("./api.js").Task} Task */
/** @typedef {import("./api.js").Standing} Standing */
/** @typedef {{ number: number | null, file: string | null, link: string | null, replaces: string | null, who: string | null, state: string, came?: string, sent: number[], drawn: number[], missing?: number[], taken_back?: number[], consent?: string | null, joined?: number | null, agreed?: number | null, withdrawn?: number | null, replaced_by?: string | null }} Person A person, or an invitation that nobody has used. */
/** @typedef {{ invitations: Person[], rounds: { number: number, opened: number }[], folder: string, no_phones: string | null }} People */

const SHOWN = 25;
const CODES = 50; // of one answer
const ROSTER = 250; // rows on the page; its file has all
const HERE = ["in", "joining"];

/** @type {Record<string, (person: Person, open: number) => boolean>} */
const FILTERS = {
  all: () => true,
  unused: ({ state }) => ["unused", "expired"].includes(state),
  joined: ({ who }) => who !== null,
  notSent: (person, open) => owes(person, open),
};

/** Whether a round waits for this person. @param {Person} person @param {number} round 0: none is open. */
const owes = ({ missing = [] }, round) => round > 0 && missing.includes(round);

/** @param {Task} task @param {AbortSignal} signal */
export function inviteCard(task, signal) {
  const [place, warning, path] = [h("div"), h("div"), `tasks/${task.task}/invitations`];
  const count = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: 1000, value: task.least }));
  const days = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: 3660, value: 30 }));
  const send = button(t("invite.make"), null, { kind: "main", type: "submit" });
  const list = new PeopleList(task, signal, (people) => {
    if (people.no_phones) warning.replaceChildren(notice("warn", t("invite.noPhones", { why: said(people.no_phones) })));
  });
  const make = async () => {
    const { made, warning: words } = await post(path, { count: Number(count.value), days: Number(days.value) }, signal);
    place.replaceChildren(notice("good", t("invite.made", { count: made.length })), ...(words ? [notice("warn", t("invite.waitsForNobody", { count: task.least }))] : []));
    await list.load();
  };
  const making = form(send, place, make,
    h("div.inline", null, labelled("count", t("invite.count"), count), labelled("days", t("invite.days"), days), h("div", null, send)));
  let seen = "";
  const show = (/** @type {Standing} */ { status }) => {
    making.hidden = isOver(status.state);
    const now = JSON.stringify([status.enrolled, status.rounds]);
    if (now !== seen) void list.load(status.rounds.find(({ state }) => state === "open")?.number ?? 0);
    seen = now;
  };
  return { element: card(t("invite.title"), h("p", null, t("invite.intro")), making, place, warning, list.element), show };
}

/** Everyone who was invited or has joined. */
class PeopleList {
  /** @type {People | null} */
  #people = null;
  #open = 0;
  #most = SHOWN;
  #trouble = h("div");
  #filter = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => this.#draw() }, ...Object.keys(FILTERS).map((name) => h("option", { value: name }, t(`filter.${name}`)))));
  #shown = part("div", null, (/** @type {[People, string, number, number]} */ shown) => this.#render(...shown));

  /** @param {Task} task @param {AbortSignal} signal @param {(people: People) => void} tell */
  constructor(task, signal, tell) {
    this.task = task;
    this.signal = signal;
    this.tell = tell;
    this.element = h("div", null, this.#trouble, this.#shown.element);
  }

  /** @param {number} [open] The round that is open, or 0. */
  async load(open = this.#open) {
    this.#open = open;
    try {
      this.#people = await get(`tasks/${this.task.task}/invitations`, this.signal);
      this.#trouble.replaceChildren();
      this.#draw();
    } catch (failure) {
      if (!this.signal.aborted) this.#trouble.replaceChildren(notice("bad", t("people.notKnown"), "\n", /** @type {Error} */ (failure).message));
    }
  }

  #draw() {
    if (!this.#people) return;
    this.tell(this.#people);
    this.#shown.show([this.#people, this.#filter.value, this.#open, this.#most]);
  }

  /** @param {People} people @param {string} filter @param {number} open @param {number} most */
  #render(people, filter, open, most) {
    const all = people.invitations;
    if (!all.length) return [h("p.soft", null, t("people.nobody"))];
    const chosen = all.filter((person) => FILTERS[filter](person, open));
    const columns = ["number", "state", "sent", "who", "actions"].map((name) => t(`column.${name}`));
    return [
      h("p.headline", null, sums(all, open)),
      h("div.inline", null, labelled("people-filter", t("people.filter"), this.#filter),
        h("div.row", null, ...this.#files(people))),
      table(t("people.title", { count: chosen.length }), columns, chosen.slice(0, most).map((person) => this.#row(person, open)), { numbers: [0], empty: t("people.none") }),
      all.some(({ who }) => who) && h("details", { id: "roster" }, h("summary", null, t("people.rosterTitle")), rosterTable(people)),
      chosen.length > most && button(t("people.more", { count: chosen.length - most }), () => { this.#most += 10 * SHOWN; this.#draw(); }, { id: "more-people" }),
    ];
  }

  /** @param {People} people */
  #files(people) {
    const name = this.task.task.slice(0, 8);
    const links = people.invitations.some(({ link }) => link);
    return [
      button(t("people.csv"), () => save(`invitations-${name}.csv`, invitationsCsv(people))),
      button(t("people.compliance"), () => save(`compliance-${name}.csv`, complianceCsv(people))),
      button(t("people.roster"), () => save(`roster-${name}.csv`, rosterCsv(people))),
      this.task.consent && actionButton(t("people.consents"), this.#trouble, async () => save(`consents-${name}.csv`, consentsCsv(await get(`tasks/${this.task.task}/consents`, this.signal)))),
      links && h("a.button", { href: `#/tasks/${this.task.task}/sheet` }, t("sheet.title")),
    ].filter((one) => typeof one === "object");
  }

  /** @param {Person} person @param {number} open */
  #row(person, open) {
    const { number, link, file, replaces, who, state, sent, came } = person;
    const last = sent.at(-1);
    const named = number ?? who ?? "";
    const [code, done] = [h("div"), h("span.good", { role: "status" })];
    const copy = link && actionButton(t("invite.copy"), done, async () => {
      await navigator.clipboard.writeText(link);
      done.textContent = t("invite.copied");
    }, { small: true, label: t("invite.copyOf", { number: named }) });
    const show = link && number !== null && actionButton(t("invite.code"), code, async () => {
      const pictures = await get(`tasks/${this.task.task}/codes/${number}`, this.signal);
      code.replaceChildren(h("img", { src: pictures[number], alt: t("invite.codeOf", { number }), width: 220 }));
    }, { small: true, label: t("invite.codeShow", { number: named }) });
    const replace = who && HERE.includes(state) && button(t("replace.action"), () => this.#replace(person), { small: true, label: t("replace.of", { who }) });
    const actions = h("div.row", null, ...(who ? [replace] : [copy, show, !link && file && h("span.link", null, file)]).filter((one) => !!one), done, code);
    const by = came === "listed" ? ` · ${t("people.listed")}` : "";
    return [replaces === null ? number ?? "" : h("span", null, `${number} `, h("strong.warn", null, t("people.replaces", { replaces }))), h(`span.state${owes(person, open) ? ".warn" : ""}`, null, t(`person.${state}`), by),
      last ? t("people.sentIn", { number: last }) : who ? t("people.neverSent") : "", who ? h("code", null, who) : "", actions];
  }

  /** @param {Person} person */
  #replace({ who }) {
    return ask({ title: t("replace.title"), text: [t("replace.text"), t("replace.money")], action: t("replace.make"), danger: false }, async () => {
      await post(`tasks/${this.task.task}/invitations`, { count: 1, days: 30, replaces: who }, this.signal);
      await this.load();
    });
  }
}

/** @param {readonly Person[]} all @param {number} open */
function sums(all, open) {
  const joined = all.filter(({ who }) => who !== null).length;
  const words = [t("people.invited", { count: all.length }), t("people.joined", { count: joined })];
  if (open) words.push(t("people.waiting", { count: all.filter((person) => owes(person, open)).length, number: open }));
  return words.join(" · ");
}

const QUOTE = "\u0022";

/** @param {string} text */
const quoted = (text) => (/[\u0022,\r\n]/.test(text) ? QUOTE + text.replaceAll(QUOTE, QUOTE + QUOTE) + QUOTE : text);

/** @param {readonly (readonly (string | number | null)[])[]} rows */
const csv = (rows) => rows.map((row) => `${row.map((cell) => quoted(String(cell ?? ""))).join(",")}\r\n`).join("");

/** For a mail merge: columns keep their names in every language, as programs read them. @param {People} people */
export const invitationsCsv = ({ invitations }) => csv([["invitation", "replaces", "state", "participant", "sent", "link"],
  ...invitations.map(({ number, replaces, state, who, sent, link }) => [number, replaces, state, who, sent.join(" "), link])]);

/** @typedef {"sent" | "takenBack" | "missing" | "unasked"} RoundState */

/** What became of a round for one person, as the platform says it. @param {Person} person @param {number} number @returns {RoundState} */
export function roundState({ sent, taken_back: back = [], missing = [] }, number) {
  if (sent.includes(number)) return "sent";
  if (back.includes(number)) return "takenBack";
  return missing.includes(number) ? "missing" : "unasked";
}

/** Seconds as a moment that people and programs read. @param {number | null | undefined} at */
const moment = (at) => (typeof at === "number" ? new Date(at * 1000).toISOString().slice(0, 16).replace("T", " ") : "");

/** A row for each person, a column for each round; times are UTC. @param {People} people */
export function rosterCsv({ invitations, rounds }) {
  const named = ["participant", "invitation", "replaces", "replaced_by", "state", "consent", "joined", "agreed", "withdrawn"];
  return csv([[...named, ...rounds.map(({ number }) => `round ${number}`)], ...invitations.filter(({ who }) => who).map((one) =>
    [one.who, one.number, one.replaces, one.replaced_by ?? "", one.state, one.consent ?? "", moment(one.joined), moment(one.agreed), moment(one.withdrawn),
      ...rounds.map(({ number }) => roundState(one, number))])]);
}

/** @param {People} people */
function rosterTable({ invitations, rounds }) {
  const people = invitations.filter(({ who }) => who);
  const rows = people.slice(0, ROSTER).map((one) => [h("code", null, one.who), one.number ?? "", t(`person.${one.state}`), one.consent ?? "",
    one.agreed ? formatTime(one.agreed) : "", rounds.map(({ number }) => `${number}: ${t(`roundState.${roundState(one, number)}`)}`).join(" · "),
    one.replaced_by ? h("code", null, one.replaced_by) : "", one.withdrawn ? formatTime(one.withdrawn) : ""]);
  const shown = table(t("people.rosterTitle"), ["who", "number", "state", "consent", "agreed", "rounds", "replacedBy", "withdrawn"].map((name) => t(`column.${name}`)), rows, { numbers: [1] });
  return people.length > ROSTER ? h("div", null, shown, h("p", null, t("people.rosterMore", { count: people.length - ROSTER }))) : shown;
}

/** A row for each person and round, with the day on which the round opened; `expected`: whether this person could have sent. @param {People} people */
export function complianceCsv({ invitations, rounds }) {
  const day = (/** @type {number} */ opened) => new Date(opened * 1000).toISOString().slice(0, 10);
  return csv([["participant", "invitation", "came", "state", "round", "day", "expected", "sent"], ...invitations.filter(({ who }) => who).flatMap((person) =>
    rounds.map((round) => [person.who, person.number, person.came ?? "", person.state, round.number, day(round.opened), ["sent", "missing"].includes(roundState(person, round.number)) ? 1 : 0, person.sent.includes(round.number) ? 1 : 0]))]);
}

const CONSENT = ["who", "state", "version", "language", "agreed", "received", "withdrawn", "document"];

/** Who agreed to which version, with the signed proof, as `crowdfl task consents` writes it. @param {Record<string, string | number | null>[]} rows */
export const consentsCsv = (rows) => csv([CONSENT, ...rows.map((row) => CONSENT.map((name) => row[name]))]);

/** @param {string} name @param {string} text */
function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** To print and to cut apart: those that nobody has used, and that take nobody's place: such a one is for one person, by hand. @param {AbortSignal} signal @param {string} id */
export async function sheetView(signal, id) {
  const [task, people] = await Promise.all([get(`tasks/${id}`, signal), get(`tasks/${id}/invitations`, signal)]);
  const usable = /** @type {People} */ (people).invitations.filter(({ link, state, replaces }) => link && state === "unused" && replaces === null);
  const [list, progress] = [h("ul.sheet"), h("p.screen", { role: "status" })];
  const one = (/** @type {Person} */ { number }, /** @type {string} */ picture) => h("li", null, h("h2", null, task.purpose),
    h("img", { src: picture, alt: t("invite.codeOf", { number: number ?? 0 }) }), h("p", null, t("sheet.how")), h("p", null, t("sheet.number", { number: number ?? 0 })));
  const fill = async () => {
    for (let from = 0; from < usable.length && !signal.aborted;) {
      const pictures = await get(`tasks/${id}/codes/${usable[from].number}`, signal);
      const some = usable.slice(from, from + CODES).filter(({ number }) => pictures[number ?? -1]);
      list.append(...some.map((person) => one(person, pictures[person.number ?? -1])));
      from += Math.max(some.length, 1);
      progress.textContent = from < usable.length ? t("sheet.progress", { done: from, all: usable.length }) : "";
    }
  };
  void fill().catch((failure) => { if (!signal.aborted) progress.replaceChildren(notice("bad", messageOf(failure))); });
  const element = h("div", null,
    h("div.screen", null, h("h1", null, t("sheet.title")), h("p", null, h("a", { href: `#/tasks/${id}` }, t("sheet.back"))),
      h("p", null, t("sheet.made", { when: formatTime(Date.now()) })),
      usable.length ? h("p", null, button(t("sheet.print"), () => print(), { kind: "main" })) : h("p", null, t("sheet.none"))),
    progress, list);
  return { title: t("sheet.title"), element };
}
