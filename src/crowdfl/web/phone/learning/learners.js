// A task's learner by its recipe.
import { NetworkLearner } from "./network.js";
import { requireSameShape, stackOf } from "./networks.js";
import { inputs, modelShape } from "./recipe.js";
import { SoftmaxLearner } from "./softmax.js";

/**
 * @param {import("./recipe.js").Recipe} recipe
 * @param {readonly import("./networks.js").ArrayShape[]} shape The task's; ModelMismatch if the recipe makes another.
 * @returns {import("./training.js").Learner} All zero: the weights come from the platform.
 */
export function makeLearner(recipe, shape) {
  requireSameShape(shape, modelShape(recipe));
  const [width, labels] = [inputs(recipe), recipe.labels.length];
  return recipe.learner === "softmax"
    ? new SoftmaxLearner(width, labels)
    : new NetworkLearner(width, labels, stackOf(recipe, width));
}
