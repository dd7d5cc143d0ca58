// A network's layers, written as in a task file: `linear N`, `relu`, `tanh`.
import { ModelMismatch, SettingsError, UnsupportedTask } from "../protocol/errors.js";

/**
 * @typedef {{ kind: "linear", width: number, size: number } | { kind: "relu" | "tanh" }} Layer `width` numbers in, `size` out.
 */
/** @typedef {[name: string, sides: readonly number[]]} ArrayShape */

const LARGEST = 10 ** 8;

export const noConvolutions = () =>
  new UnsupportedTask("this task trains a convolutional network, which this page cannot: take part with the Python program");

/**
 * The layers of a recipe, or why they cannot be built. Softmax regression has none.
 * @param {{ learner: string, layers: readonly (string | number | bigint)[], labels: readonly string[] }} recipe
 * @param {number} inputs @returns {Layer[]}
 */
export function stackOf({ learner, layers, labels }, inputs) {
  if (learner === "softmax") return [];
  const words = layers.flatMap((layer) => (typeof layer === "string" ? [layer] : [`linear ${layer}`, "relu"]));
  const end = words.at(-1) ?? "";
  if (end.startsWith("linear")) {
    throw new SettingsError(`the last of \`layers\` is '${end.slice(0, 60)}'; the one with an output per label follows by itself: leave it out`);
  }
  const lines = [...words, `linear ${labels.length}`];
  let width = inputs;
  return lines.map((line) => {
    const layer = layerOf(line, width);
    if (layer.kind === "linear") width = layer.size;
    return layer;
  });
}

/** @param {string} line @param {number} width @returns {Layer} */
function layerOf(line, width) {
  const words = line.split(/\s+/).filter(Boolean);
  const [kind, size] = words;
  if (kind === "conv" || kind === "pool") {
    throw noConvolutions();
  }
  if ((kind === "relu" || kind === "tanh") && words.length === 1) return { kind };
  if (kind !== "linear" || words.length !== 2 || !/^[0-9]{1,9}$/.test(size) || Number(size) === 0) {
    throw new SettingsError(`'${line.slice(0, 60)}' is not a layer: use \`linear N\`, \`conv N K\`, \`pool K\`, \`relu\` or \`tanh\``);
  }
  if (width * Number(size) > LARGEST) {
    throw new SettingsError(`'${line.slice(0, 60)}' takes over 100,000,000 steps per window: too many for a phone`);
  }
  return { kind, width, size: Number(size) };
}

/**
 * The arrays of a model in order. A network's have torch's names: `0.weight`, `0.bias`, counted over all layers.
 * @param {string} learner @param {number} inputs @param {number} labels @param {readonly Layer[]} stack
 * @returns {ArrayShape[]}
 */
export function expectedShape(learner, inputs, labels, stack) {
  if (learner === "softmax") return [["weight", [inputs, labels]], ["bias", [labels]]];
  return stack.flatMap((layer, place) => (layer.kind === "linear"
    ? [/** @type {ArrayShape} */ ([`${place}.weight`, [layer.size, layer.width]]), [`${place}.bias`, [layer.size]]]
    : []));
}

/**
 * The error names the first array that differs.
 * @param {readonly ArrayShape[]} wanted The task's. @param {readonly ArrayShape[]} found What the recipe makes.
 */
export function requireSameShape(wanted, found) {
  for (let place = 0; place < Math.max(wanted.length, found.length); place++) {
    const [one, other] = [wanted[place], found[place]].map((array) => (array ? `'${array[0]}' of ${array[1].join(" x ")}` : "nothing"));
    if (one !== other) {
      throw new ModelMismatch(`the task's model does not follow from its training: it has the array ${one} where training makes ${other}`);
    }
  }
}
