// What a recording was, and the task's own questions about it: asked when it ends, and open to change later.

import { h } from "../../web/common/dom.js";
import { t } from "../../web/common/text.js";
import { textsOf, theirWord } from "./theirs.js";

/** @typedef {import("./types.js").DefinitionBody} DefinitionBody */
/** @typedef {import("./types.js").Question} Question */
/** @typedef {import("./types.js").About} About */

/** @param {DefinitionBody} definition @returns {Question[]} */
export const questionsOf = ({ training }) => training.questions ?? [];

/** The question whose answer is what the model learns, in place of an activity that is chosen before. @param {DefinitionBody} definition */
export const labelQuestion = (definition) => questionsOf(definition).find(({ use }) => use === "label");

/**
 * Fields for what is known about a recording; nobody must answer.
 * @param {DefinitionBody} definition @param {About} about @param {boolean} withLabel Also where no question asks for it.
 */
export function aboutFields(definition, about, withLabel) {
  const texts = textsOf(definition);
  const asked = labelQuestion(definition);
  const others = questionsOf(definition).filter(({ use }) => use === "feature");
  const label = asked || withLabel ? choices("label", asked ? theirWord(texts, asked.text) : t("record.whichActivity"), definition.training.labels, about.label, texts) : null;
  const answers = others.map(({ id, text, choices: all }) => ({ id, ...choices(id, theirWord(texts, text), all, about.answers[id], texts) }));
  return {
    elements: [...(label ? [label] : []), ...answers].map(({ element }) => element),
    value: () => ({
      label: label ? label.value() ?? about.label : about.label,
      answers: Object.fromEntries(answers.map(({ id, value }) => [id, value()]).filter(([, value]) => value !== null)),
    }),
  };
}

/** The questions as the phone asks them, for whoever writes them; what is answered is kept nowhere. @param {DefinitionBody} definition */
export const askedSample = (definition) => questionsOf(definition).length
  ? [h("section", { id: "asked" }, h("h2", null, t("record.shortQuestion")), ...aboutFields(definition, { label: "", answers: {} }, false).elements)] : [];

/** @param {string} name @param {Node | string} legend @param {readonly string[]} all @param {string | undefined} chosen @param {ReturnType<typeof textsOf>} texts */
function choices(name, legend, all, chosen, texts) {
  const inputs = all.map((value) => /** @type {HTMLInputElement} */ (h("input", { type: "radio", name, value, checked: value === chosen })));
  const labels = inputs.map((input) => h("label.choice", null, input, theirWord(texts, input.value)));
  const element = h("fieldset.choices", null, h("legend", null, legend), ...labels);
  return { element, value: () => inputs.find(({ checked }) => checked)?.value ?? null };
}
