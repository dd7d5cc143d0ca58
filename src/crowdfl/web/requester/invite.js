// Invitations: each is for one person, and as secret as a key.
import { h } from "../web/common/dom.js";
import { actionButton, button, card, form, labelled, notice } from "../web/common/parts.js";
import { get, post } from "./api.js";
import { isOver } from "./list.js";

/** @typedef {import("./task.js").Task} Task */
/** @typedef {import("./task.js").Standing} Standing */
/** @typedef {{ number: number, file: string, link: string | null, picture: string | null }} Invitation */

/** @param {Task} task @param {AbortSignal} signal */
export function inviteCard(task, signal) {
  const [place, list, path] = [h("div"), h("div"), `tasks/${task.task}/invitations`];
  const count = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: 100, value: Math.min(task.least, 100) }));
  const days = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: 3660, value: 30 }));
  const send = button("Make invitations", null, { kind: "main", type: "submit" });
  const make = async () => {
    const made = await post(path, { count: Number(count.value), days: Number(days.value) }, signal);
    place.replaceChildren(notice("good", `${made.invitations.length} invitations made.`));
    list.replaceChildren(...codes(task, made));
  };
  const older = actionButton("Show those made before", place, async () => {
    const made = await get(path, signal);
    if (!made.invitations.length) place.replaceChildren(notice("good", "No invitation was made here yet."));
    list.replaceChildren(...codes(task, made));
  });
  const making = form(send, place, make,
    h("div.inline", null, labelled("count", "How many", count), labelled("days", "Good for days", days), h("div", null, send)));
  const element = card("Invite", h("p", null, "An invitation is for one person. Whoever has it can join once: hand each to one person only."), making, place, list, older);
  const show = (/** @type {Standing} */ { status }) => { making.hidden = isOver(status.state); };
  return { element, show };
}

/** @param {Task} task @param {{ invitations: readonly Invitation[], no_phones: string | null }} made `no_phones`: why a phone cannot take part. */
function codes({ task }, { invitations, no_phones: noPhones }) {
  if (!invitations.length) return [];
  return [
    noPhones ? notice("warn", `A phone cannot take part: ${noPhones}.`) : "",
    h("ul.codes", null, ...invitations.map((one) => h("li", null, h("h3", null, `Invitation ${one.number}`), ...(one.link ? withLink(one) : withFile(one))))),
    noPhones ? "" : h("p", null, h("a", { href: `#/tasks/${task}/sheet` }, "A sheet to print")),
  ];
}

/** @param {Invitation} invitation */
function withLink({ number, link, picture, file }) {
  const done = h("span.good", { role: "status" });
  const copy = actionButton("Copy the link", done, async () => {
    await navigator.clipboard.writeText(link ?? "");
    done.textContent = "copied";
  }, { label: `Copy the link of invitation ${number}` });
  return [h("img", { src: picture, alt: `QR code of invitation ${number}` }),
    h("details", null, h("summary", null, "Link and file"), h("p.link", null, link), h("p.link", null, file)), h("div.row", null, copy, done)];
}

/** @param {Invitation} invitation */
const withFile = ({ file }) => [h("p", null, "Hand over the file: "), h("p.link", null, file)];

/** To print and to cut apart. @param {AbortSignal} signal @param {string} id */
export async function sheetView(signal, id) {
  const [task, { invitations }] = await Promise.all([get(`tasks/${id}`, signal), get(`tasks/${id}/invitations`, signal)]);
  const usable = /** @type {Invitation[]} */ (invitations).filter(({ link }) => link);
  const one = (/** @type {Invitation} */ { number, picture }) => h("li", null,
    h("h2", null, task.purpose),
    h("img", { src: picture, alt: `QR code of invitation ${number}` }),
    h("p", null, "Open this with the camera of your phone. It is for one person, and good once."),
    h("p", null, `Invitation ${number}`));
  const element = h("div", null,
    h("div.screen", null, h("h1", null, "A sheet to print"), h("p", null, h("a", { href: `#/tasks/${id}` }, "Back to the task")),
      usable.length ? h("p", null, button("Print", () => print(), { kind: "main" })) : h("p", null, "There is no invitation with a link yet: make some first.")),
    h("ul.sheet", null, ...usable.map(one)));
  return { title: "Sheet", element };
}
