// A task's [training] section: the same entries, defaults, bounds and refusals as Python's `Recipe`.
import { SettingsError, UnsupportedTask } from "../protocol/errors.js";
import { featuresPerWindow } from "./features.js";
import { expectedShape, noConvolutions, stackOf } from "./networks.js";

/** @typedef {import("./features.js").FeatureName} FeatureName */
/** Asked at the end of a recording. @typedef {{ id: string, text: string, choices: readonly string[], use: "label" | "feature" }} Question */
/**
 * @typedef {object} Recipe
 * @property {"network" | "softmax"} learner
 * @property {readonly (string | number | bigint)[]} layers All but the last.
 * @property {FeatureName} features
 * @property {readonly string[]} labels
 * @property {number} channels Of motion.
 * @property {readonly string[]} sensors Beside motion.
 * @property {readonly Question[]} questions
 * @property {boolean} standardise
 * @property {boolean} scaleInputs
 * @property {number} windowSamples Samples in a window.
 * @property {number} step Samples from one window to the next.
 * @property {number} heldOut Share of a recording that is tested on, at its end.
 * @property {number} gap Samples left out before what is held out.
 * @property {number} hertz
 * @property {number} epochs
 * @property {number} batch
 * @property {number} rate
 * @property {number} proximal FedProx's mu; 0: without it.
 * @property {bigint} seed
 */

/**
 * @typedef {{ read: (value: unknown) => unknown, words: string, usual?: unknown }} Entry `read` gives undefined for a wrong value.
 */

const LONGEST = 10_000; // of what a phone is asked to do
const ENDLESS = 2 ** 63;
const SHOWN = 60; // characters of a wrong value that a message repeats
const LISTED = 5;
const TURNING = /[\u202a-\u202e\u2066-\u2069]|\p{Cc}/u;
const SENSORS = ["speed", "loudness"]; // beside motion
const LONGEST_LINE = 200; // characters
const LEARNERS = ["network", "conv", "softmax", "functions", "torch functions"];
const LOSSES = ["squared", "absolute", "huber"]; // of values
const CODE = /^[\p{ID_Start}_]\p{ID_Continue}*(\.[\p{ID_Start}_]\p{ID_Continue}*)*:[\p{ID_Start}_]\p{ID_Continue}*$/u; // package.module:Name
const MOST_LAYERS = 100;
const MOST_LABELS = 1000;
const LONGEST_LABEL = 200; // characters
const FASTEST = 400; // samples a second: phones give 60 to 200
const MOST_STEPS = 1e9; // for each window in a round; a network of 270-1000-6 in 20 epochs takes 5.5 million
const MOST_ROOM = 1e8; // numbers that all layers give for one batch, at most

/** @param {unknown} value */
const isNumber = (value) => (typeof value === "number" && Number.isFinite(value)) || typeof value === "bigint";

/** @param {unknown} value */
const isWhole = (value) => typeof value === "bigint" || Number.isInteger(value);

/** @param {number} least @param {number} end @param {string} words @param {unknown} usual @returns {Entry} */
function whole(least, end, words, usual) {
  const fits = (/** @type {any} */ value) => isWhole(value) && value >= least && value < end;
  return { read: (value) => (fits(value) ? Number(value) : undefined), words: `a whole number, ${words}`, usual };
}

/** @param {Entry} entry @returns {Entry} */
const optional = (entry) => ({ ...entry, read: (value) => (value === null ? null : entry.read(value)), usual: null });

/** @param {unknown} usual */
const small = (usual) => whole(1, LONGEST + 1, "at least 1 and at most 10,000", usual);

/** @param {number} end @param {string} words @param {number} usual @returns {Entry} */
function above(end, words, usual) {
  const fits = (/** @type {any} */ value) => isNumber(value) && value > 0 && value < end;
  return { read: (value) => (fits(value) ? Number(value) : undefined), words: `a number, above 0 and below ${words}`, usual };
}

/** @param {number} end @param {string} words @param {number} usual @returns {Entry} */
function notNegative(end, words, usual) {
  const fits = (/** @type {any} */ value) => isNumber(value) && value >= 0 && value < end;
  return { read: (value) => (fits(value) ? Number(value) : undefined), words: `a number, at least 0 and below ${words}`, usual };
}

/** @param {boolean} usual @returns {Entry} */
const flag = (usual) => ({ read: (value) => (typeof value === "boolean" ? value : undefined), words: "true or false", usual });

/** @param {readonly string[]} choices @returns {Entry} */
function oneOf(choices) {
  const words = choices.map((choice) => `"${choice}"`).join(" or ");
  return { read: (value) => choices.find((choice) => choice === value), words, usual: choices[0] };
}

/** @param {(items: unknown[]) => boolean} fits @param {string} words @param {unknown} [usual] @returns {Entry} */
function list(fits, words, usual) {
  return { read: (value) => (Array.isArray(value) && fits(value) ? value : undefined), words: `a list of ${words}`, usual };
}

/** @param {unknown[]} items */
const areTexts = (items) => items.every((item) => typeof item === "string");

/** @param {unknown} value */
const isLoss = (value) => typeof value === "string" && (LOSSES.includes(value) || CODE.test(value));

/** @param {readonly unknown[]} items */
const areDifferent = (items) => new Set(items).size === items.length;

/** @param {unknown} value */
const isLine = (value) => typeof value === "string" && value.length > 0 && value.length <= LONGEST_LINE && !TURNING.test(value);

/** @param {unknown} value @returns {Question | null} */
function questionOf(value) {
  if (value === null || typeof value !== "object") return null;
  const { id, text, choices, use = "feature", ...more } = /** @type {Record<string, any>} */ (value);
  const isSound = typeof id === "string" && /^[a-z][a-z0-9_]{0,39}$/.test(id) && isLine(text) && Array.isArray(choices) && choices.length >= 2
    && choices.length <= 7 && choices.every(isLine) && areDifferent(choices) && ["label", "feature"].includes(use) && !Object.keys(more).length;
  return isSound ? { id, text, choices, use } : null;
}

/** @param {unknown} value @returns {Question[] | undefined} */
function questionsOf(value) {
  const found = Array.isArray(value) ? value.map(questionOf).filter((one) => one !== null) : [];
  const isSound = Array.isArray(value) && found.length === value.length && found.length <= 3
    && areDifferent(found.map(({ id }) => id)) && found.filter(({ use }) => use === "label").length <= 1;
  return isSound ? found : undefined;
}

/** @param {unknown} value */
const seedOf = (value) => (isWhole(value) ? BigInt(/** @type {number | bigint} */ (value)) : -1n);

/** In the order of Python's: of several wrong entries the first is named. @type {Record<string, Entry>} */
const ENTRIES = {
  learner: {
    read: (value) => (typeof value === "string" && (LEARNERS.includes(value) || CODE.test(value)) ? value : undefined),
    words: '"network", "conv", "softmax", package.module:Class, "functions" or "torch functions"',
    usual: "network",
  },
  layers: list((items) => items.every((item) => typeof item === "string" || isWhole(item)),
    'widths and of layers in words, as in [32] or ["conv 8 9", "relu", "pool 4", 32]', [32]),
  features: oneOf(["motion", "flat", "spectral", "windows"]),
  scale_inputs: flag(false),
  target: oneOf(["label", "value"]),
  labels: list((items) => items.length > 0 && areTexts(items) && new Set(items).size === items.length,
    'different strings, as in ["sitting", "walking"]'),
  loss: optional({ read: (value) => (isLoss(value) ? value : undefined), words: '"squared", "absolute", "huber" or package.module:function' }),
  proximal: notNegative(ENDLESS, "2^63", 0),
  channels: small(6),
  sensors: { ...list((items) => items.every((item) => SENSORS.includes(/** @type {string} */ (item))) && areDifferent(items), "", []),
    words: 'a list of "speed" and "loudness", each at most once' },
  questions: {
    read: questionsOf,
    words: "at most 3 tables [[training.questions]], each with an id of its own in small letters, a text, 2 to 7 choices, "
      + 'and use, "label" (of one at most) or "feature"',
    usual: [],
  },
  standardise: flag(false),
  window_samples: small(100),
  step: optional(whole(1, ENDLESS, "at least 1 and below 2^63", null)),
  held_out: above(1, "1", 0.3),
  hertz: above(ENDLESS, "2^63", 50),
  epochs: whole(0, LONGEST + 1, "at least 0 and at most 10,000", 20),
  batch: whole(1, ENDLESS, "at least 1 and below 2^63", 32),
  rate: above(ENDLESS, "2^63", 0.005),
  seed: {
    read: (value) => (seedOf(value) >= 0n && seedOf(value) < 1n << 63n ? seedOf(value) : undefined),
    words: "a whole number, at least 0 and below 2^63",
    usual: 0n,
  },
};

/**
 * @param {unknown} training What a task's definition holds as `training`. A stranger may have written it.
 * @returns {Recipe} or SettingsError for what nobody can follow, UnsupportedTask for what this page cannot.
 */
export function parseRecipe(training) {
  if (training === null || typeof training !== "object" || Array.isArray(training)) {
    throw new SettingsError(`[training]: expected a table, not ${shown(training)}`);
  }
  const found = /** @type {Record<string, unknown>} */ (training);
  requireKnown(found);
  const wrong = Object.keys(ENTRIES).find((name) => isGiven(found, name) && ENTRIES[name].read(found[name]) === undefined);
  if (wrong) throw new SettingsError(`[training]: \`${wrong}\` is ${shown(found[wrong])}; expected ${ENTRIES[wrong].words}`);
  if (!isGiven(found, "labels")) {
    throw new SettingsError(`[training]: \`labels\` is missing; expected ${ENTRIES.labels.words}`);
  }
  return supported(/** @type {any} */ (Object.fromEntries(Object.entries(ENTRIES).map(([name, { read, usual }]) =>
    [name, isGiven(found, name) ? read(found[name]) : usual]))));
}

/** Questions whose answers the model is fed. @param {Pick<Recipe, "questions">} recipe */
export const askedFor = ({ questions }) => questions.filter(({ use }) => use === "feature");

/** Numbers that the model is fed per window: of motion, mean and deviation of each sensor beside it, and one for each choice. @param {Recipe} recipe */
export function inputs(recipe) {
  const answers = askedFor(recipe).reduce((sum, { choices }) => sum + choices.length, 0);
  return featuresPerWindow(recipe.features, recipe.windowSamples, recipe.channels) + 2 * recipe.sensors.length + answers;
}

/**
 * What of a phone a task may ask for. Whoever writes a task could else make a page work for ever, or fill its memory each time that
 * it opens. The Python program takes part in more.
 * @param {Recipe} recipe
 */
export function requireBearable(recipe) {
  const { learner, layers, labels, hertz, epochs, batch } = recipe;
  if (layers.length > MOST_LAYERS) throw tooMuch(`more than ${MOST_LAYERS} layers`);
  if (labels.length > MOST_LABELS || labels.some((label) => label.length > LONGEST_LABEL)) throw tooMuch("too many activities, or too long names of them");
  if (labels.some((label) => TURNING.test(label))) throw new UnsupportedTask("a name of an activity in this task holds marks that turn text around: ask the requester for another");
  if (hertz > FASTEST) throw tooMuch(`${hertz} samples a second`);
  const width = inputs(recipe);
  const stack = stackOf(recipe, width);
  const linear = stack.flatMap((layer) => (layer.kind === "linear" ? [layer] : []));
  const parameters = learner === "softmax" ? width * labels.length : linear.reduce((sum, layer) => sum + layer.width * layer.size, 0);
  const widest = Math.max(width, ...linear.map(({ size }) => size));
  if (epochs * parameters > MOST_STEPS) throw tooMuch("so much training that a phone would not finish");
  if (widest * Math.max(1, stack.length - 1) * Math.min(batch, LONGEST) > MOST_ROOM) throw tooMuch("batches that a phone cannot hold");
}

/** @param {string} what */
const tooMuch = (what) => new UnsupportedTask(`this task asks for ${what}, which is too much for a page: take part with the Python program`);

/** The names and sides of the arrays that the recipe's model has. @param {Recipe} recipe */
export function modelShape(recipe) {
  return expectedShape(recipe.learner, inputs(recipe), recipe.labels.length, stackOf(recipe, inputs(recipe)));
}

/** @param {Record<string, unknown>} found @param {string} name */
const isGiven = (found, name) => Object.hasOwn(found, name);

/** A mistyped name must not leave another at its default. @param {Record<string, unknown>} found */
function requireKnown(found) {
  const unknown = Object.keys(found).filter((name) => !isGiven(ENTRIES, name)).sort();
  if (!unknown.length) return;
  const listed = unknown.slice(0, LISTED).map((name) => `\`${name.slice(0, SHOWN)}\``).join(", ");
  const known = Object.keys(ENTRIES).sort().join(", ");
  throw new SettingsError(`[training]: unknown setting ${listed}; the settings here are ${known}`);
}

/** What nobody can follow, whatever the program. @param {string} learner @param {string} target @param {string | null} loss */
function requireFitting(learner, target, loss) {
  if (target === "label" && loss !== null && LOSSES.includes(loss)) {
    throw new SettingsError(`[training]: \`loss\` is '${loss}', which is of values; with labels leave it out, or say target = "value"`);
  }
  if (target === "value" && learner === "softmax") {
    throw new SettingsError('[training]: softmax tells labels apart; for values say learner = "network" (layers = [] is linear)');
  }
}

/** @param {any} entries */
function requireFittingQuestions({ sensors, questions, features, labels, target }) {
  if ((sensors.length || questions.length) && !["motion", "spectral"].includes(features)) {
    throw new SettingsError('[training]: `sensors` and `questions` add to features: say features = "motion" or "spectral"');
  }
  const asked = questions.find((/** @type {Question} */ { use }) => use === "label");
  if (asked && (JSON.stringify(asked.choices) !== JSON.stringify(labels) || target === "value")) {
    throw new SettingsError(`[training]: the choices of \`${asked.id}\` are what is learned: \`labels\` must be the same, in this order`);
  }
}

/** @param {any} entries @returns {Recipe} */
function supported({ held_out, scale_inputs, window_samples: windowSamples, step, target, loss, ...rest }) {
  requireFittingQuestions({ ...rest, target });
  requireFitting(rest.learner, target, loss);
  if (!["network", "conv", "softmax"].includes(rest.learner)) {
    throw refused(`trains its own code (${rest.learner.slice(0, SHOWN)}), which a web page does not run`);
  }
  if (rest.learner === "conv") throw noConvolutions();
  if (target === "value") throw refused("learns values, and this page learns labels only");
  if (loss !== null) throw refused("names a loss, and this page knows the cross entropy only");
  if (rest.features === "windows") throw refused("feeds whole windows to code of its own, which a web page does not run");
  const recipe = {
    ...rest,
    heldOut: held_out,
    scaleInputs: scale_inputs,
    windowSamples,
    step: step ?? Math.max(1, windowSamples >> 2),
    gap: windowSamples, // one window: nothing that a training window holds goes on into one that is tested on
  };
  stackOf(recipe, inputs(recipe)); // refuses layers that cannot be built
  return Object.freeze(recipe);
}

/** @param {string} what */
const refused = (what) => new UnsupportedTask(`this task ${what}: take part with the Python program`);

/** A wrong value as Python's messages show it. @param {unknown} value */
function shown(value) {
  const text = typeof value === "boolean" ? String(value) : written(value);
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}...`;
}

/** @param {unknown} value @returns {string} */
function written(value) {
  if (typeof value === "string") return value.includes("'") && !value.includes('"') ? `"${value}"` : `'${value.replaceAll("'", "\\'")}'`;
  if (Array.isArray(value)) return `[${value.slice(0, SHOWN).map(written).join(", ")}]`;
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "object") return `{${Object.entries(value).map(([key, item]) => `${written(key)}: ${written(item)}`).join(", ")}}`;
  return String(value).replace("Infinity", "inf").replace("NaN", "nan");
}
