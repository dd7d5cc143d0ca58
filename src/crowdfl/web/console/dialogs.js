// Questions before something is done. A dialog stays open with the server's words when it is refused.
import { h } from "../web/common/dom.js";

/**
 * @typedef {{ name: string, label: string, hint?: string, kind?: "text" | "checkbox", pattern?: string, inputmode?: string }} Field
 * @typedef {Record<string, string | boolean>} Values
 */

/**
 * @param {{ title: string, text: (Node | string)[], fields: Field[], action: string, danger?: boolean }} question
 * @param {(values: Values) => Promise<unknown>} act
 */
export function ask({ title, text, fields, action, danger = false }, act) {
  const opener = document.activeElement;
  const wrong = h("p.wrong", { role: "alert" });
  const inputs = fields.map(input);
  const send = /** @type {HTMLButtonElement} */ (h(danger ? "button.danger" : "button.main", { type: "submit" }, action));
  const back = h("button", { type: "button", onclick: () => dialog.close() }, "Not now");
  const form = h("form", { onsubmit: submit, novalidate: true },
    h("h2", { id: "dialog-title" }, title), ...text, ...inputs.map(({ shown }) => shown), wrong, h("div.row", null, back, send));
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-labelledby": "dialog-title", onclose: leave }, form));

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    send.disabled = true;
    wrong.textContent = "";
    try {
      await act(Object.fromEntries(inputs.map(({ name, value }) => [name, value()])));
      dialog.close();
    } catch (refusal) {
      wrong.textContent = refusal instanceof Error ? refusal.message : String(refusal);
      send.disabled = false;
    }
  }

  function leave() {
    dialog.remove();
    const again = opener?.id ? document.getElementById(opener.id) : opener;
    if (again instanceof HTMLElement) again.focus();
  }

  document.body.append(dialog);
  dialog.showModal();
}

/** @param {Field} field */
function input(field) {
  const id = `field-${field.name}`;
  const hint = field.hint ? `${id}-hint` : null;
  const box = /** @type {HTMLInputElement} */ (h("input", {
    id, name: field.name, type: field.kind ?? "text", inputmode: field.inputmode, autocomplete: "off", spellcheck: "false",
    autocapitalize: "none", "aria-describedby": hint,
  }));
  const words = hint ? [h("p.soft", { id: hint }, field.hint)] : [];
  const shown = field.kind === "checkbox"
    ? h("div", null, h("label.check", { for: id }, box, field.label), ...words)
    : h("div", null, h("label", { for: id }, field.label), box, ...words);
  return { name: field.name, shown, value: () => (field.kind === "checkbox" ? box.checked : box.value.trim()) };
}
