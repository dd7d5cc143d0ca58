// @ts-check
// Invitations: each is for one person, and as secret as a key.
import { h } from "../web/common/dom.js";
import { get, post } from "./api.js";
import { actionButton, card, guarded, isOver, labelled, notice } from "./parts.js";

/** @typedef {import("./task.js").Task} Task */
/** @typedef {import("./task.js").Standing} Standing */
/** @typedef {{ number: number, file: string, link: string | null, picture: string | null }} Invitation */

/** @param {Task} task @param {AbortSignal} signal */
export function inviteCard(task, signal) {
  const place = h("div", null);
  const list = h("div", null);
  const count = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: 100, value: Math.min(task.least, 100) }));
  const days = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: 1, max: 3660, value: 30 }));
  const button = /** @type {HTMLButtonElement} */ (h("button.main", { type: "submit" }, "Make invitations"));
  const make = async () => {
    const { invitations, no_phones } = await post(`tasks/${task.task}/invitations`, { count: Number(count.value), days: Number(days.value) }, signal);
    place.replaceChildren(notice(`${invitations.length} ${invitations.length === 1 ? "invitation was" : "invitations were"} made.`));
    list.replaceChildren(codes(invitations, no_phones), no_phones ? "" : sheetLink(task));
  };
  const older = actionButton("button", "Show those made before", place, async () => {
    const { invitations, no_phones } = await get(`tasks/${task.task}/invitations`, signal);
    place.replaceChildren(invitations.length ? "" : notice("No invitation was made here yet."));
    list.replaceChildren(codes(invitations, no_phones), invitations.length && !no_phones ? sheetLink(task) : "");
  });
  const form = h("form", { onSubmit: (/** @type {Event} */ event) => { event.preventDefault(); void guarded(button, place, make); } },
    h("div.inline", null, labelled("count", "How many", count), labelled("days", "Good for days", days), h("div", null, button)));
  const element = card("Invite", h("p", null, "An invitation is for one person. Whoever has it can join once: hand each to one person only."), form, place, list, older);
  const show = (/** @type {Standing} */ { status }) => { form.hidden = isOver(status.state); };
  return { element, show };
}

/** @param {Task} task */
const sheetLink = (task) => h("p", null, h("a", { href: `#/tasks/${task.task}/sheet` }, "A sheet to print"));

/** @param {readonly Invitation[]} invitations @param {string | null} noPhones Why a phone cannot take part. */
function codes(invitations, noPhones) {
  const list = h("ul.codes", null, ...invitations.map((one) => h("li", null, h("h3", null, `Invitation ${one.number}`), ...(one.link ? withLink(one) : withFile(one)))));
  return h("div", null, noPhones && invitations.length ? notice(`A phone cannot take part: ${noPhones}.`) : null, list);
}

/** @param {Invitation} invitation */
function withLink({ number, link, picture, file }) {
  const said = h("span.good", { role: "status" });
  const copy = actionButton("button", "Copy the link", said, async () => {
    await navigator.clipboard.writeText(link ?? "");
    said.textContent = "copied";
  });
  copy.setAttribute("aria-label", `Copy the link of invitation ${number}`);
  return [h("img", { src: picture, alt: `QR code of invitation ${number}` }),
    h("details", null, h("summary", null, "Link and file"), h("p.link", null, link), h("p.link", null, file)), h("div.row", null, copy, said)];
}

/** @param {Invitation} invitation */
const withFile = ({ file }) => [h("p", null, "Hand over the file: "), h("p.link", null, file)];
