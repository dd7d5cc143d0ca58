// @ts-check
// Invitations to print and to cut apart.
import { h } from "../web/common/dom.js";
import { get } from "./api.js";

/** @typedef {import("./invite.js").Invitation} Invitation */

/** @param {AbortSignal} signal @param {string} id */
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
      usable.length ? h("p", null, h("button.main", { type: "button", onClick: () => print() }, "Print")) : h("p", null, "There is no invitation with a link yet: make some first.")),
    h("ul.sheet", null, ...usable.map(one)));
  return { title: "Sheet", element };
}
