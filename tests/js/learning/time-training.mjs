// Seconds per epoch of the 270-1000-6 network on 500 windows in batches of 32: `node tests/js/learning/time-training.mjs`.
import { makeLearner } from "#web/phone/learning/learners.js";
import { modelShape, parseRecipe } from "#web/phone/learning/recipe.js";

const recipe = parseRecipe({ labels: [..."abcdef"], channels: 3, window_samples: 90, features: "flat", layers: [1000] });
const learner = makeLearner(recipe, modelShape(recipe));
learner.load(Float64Array.from({ length: 277_006 }, (_, at) => Math.sin(at * 12.9898) / 10));
const inputs = Float32Array.from({ length: 500 * 270 }, (_, at) => Math.sin(at * 78.233));
const labels = Int32Array.from({ length: 500 }, (_, at) => at % 6);
const [started, used] = [performance.now(), process.cpuUsage()];
learner.train(inputs, labels, { epochs: 10, batch: 32, rate: 0.005, seed: 1 });
const { user } = process.cpuUsage(used);
console.log(`${((performance.now() - started) / 10_000).toFixed(2)} s per epoch, ${(user / 1e7).toFixed(2)} s of a processor`);
