"""Training: what a participant does in a round, one person's learning curve, and federated averaging in the clear.

The plain rounds are what an encrypted campaign on the same data is compared with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from crowdfl.errors import DataMalformed, NothingToAverage
from crowdfl.learning.datasets.data import Split
from crowdfl.learning.features import features
from crowdfl.learning.models.learner import Learner, ModelScores, Training
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.learning.oracle import PlainStep, fedavg
from crowdfl.learning.recipe import Recipe


@dataclass(frozen=True)
class Epoch:
    """How a model does after this many epochs; 0 is before the first. `norm` is how far it is from where it started."""

    number: int
    train: ModelScores
    held_out: ModelScores
    norm: float


@dataclass(frozen=True, eq=False)
class PlainRound:
    """The model after a round, and how it does on each person's held-out windows."""

    number: int
    weights: Weights
    scores: Mapping[str, ModelScores]

    @property
    def accuracy(self) -> float:
        return self._mean("accuracy")

    @property
    def loss(self) -> float:
        return self._mean("loss")

    def _mean(self, name: str) -> float:
        rows = [(getattr(scores, name), scores.samples) for scores in self.scores.values()]
        return float(np.average([value for value, _ in rows], weights=[samples for _, samples in rows]))


class LocalTrainer:
    """A person's data and the task's learner, loaded when first needed: torch alone takes seconds."""

    def __init__(self, data: str, training: Mapping[str, Any], module: str | None = None) -> None:
        self._data, self._training, self._module = data, training, module

    def prepare(self, shape: ModelShape) -> None:
        """Load everything now and compare with the shape of the task's model; raises what would fail later."""
        _ = self.recipe, self.split
        shape.match(self.learner.shape)

    @cached_property
    def recipe(self) -> Recipe:
        return Recipe.of(self._training)

    @cached_property
    def split(self) -> Split:
        return self.recipe.load(self._data)

    @cached_property
    def learner(self) -> Learner:
        return self.recipe.make_learner(self._module)

    def train(self, arrays: Weights, _settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        mine, learner = self.split.train, self.learner
        learner.load(arrays)
        training = self.recipe.training.at(number, mine.name)
        used = learner.train(self.recipe.inputs_of(mine.windows), mine.labels, training)
        return learner.weights(), used

    def evaluate(self, arrays: Weights) -> Mapping[str, float]:
        held_out, learner = self.split.held_out, self.learner
        learner.load(arrays)
        metrics = learner.evaluate(self.recipe.inputs_of(held_out.windows), held_out.labels)
        return {"accuracy": metrics.accuracy, "loss": metrics.loss, "windows": float(metrics.samples)}


def learning_curve(
    recipe: Recipe, learner: Learner, split: Split, on_epoch: Callable[[Epoch], None] = lambda _: None
) -> list[Epoch]:
    """Train as in a round of a campaign and evaluate after every epoch. The weights are the same as without."""
    if not len(split.held_out):
        raise DataMalformed(f"{split.train.name}: no window is held out: record longer, or raise the held-out share")
    inputs, held_out = (recipe.inputs_of(side.windows) for side in (split.train, split.held_out))
    shape, curve = learner.shape, list[Epoch]()
    start = shape.flat(learner.weights())

    def evaluate(number: int) -> None:
        on_train = learner.evaluate(inputs, split.train.labels)
        norm = float(np.linalg.norm(shape.flat(learner.weights()) - start))
        curve.append(Epoch(number, on_train, learner.evaluate(held_out, split.held_out.labels), norm))
        on_epoch(curve[-1])

    evaluate(0)
    learner.train(inputs, split.train.labels, replace(recipe.training, on_epoch=evaluate))
    return curve


def plain_rounds(
    learner: Learner,
    people: Sequence[Split],
    training: Training,
    rounds: int,
    feature_name: str = "motion",
    *,
    step: PlainStep | None = None,
) -> Iterator[PlainRound]:
    """Start from the learner's weights; in each round everyone trains from the last model. Rounds count from 1.

    The last model is the last average, or what a server step makes of it.
    """
    if not people:
        raise NothingToAverage("an average needs at least one person")
    shape, weights, step = learner.shape, learner.weights(), step or PlainStep()
    for number in range(1, rounds + 1):
        models, samples = [], []
        for person in people:
            learner.load(weights)
            data, settings = person.train, training.at(number, person.train.name)
            samples.append(learner.train(features(feature_name, data.windows), data.labels, settings))
            models.append(shape.flat(learner.weights()))
        weights = shape.arrays(step.next_model(shape.flat(weights), fedavg(models, samples)))
        learner.load(weights)
        held_out = [person.held_out for person in people]
        scores = {p.name: learner.evaluate(features(feature_name, p.windows), p.labels) for p in held_out}
        yield PlainRound(number, weights, scores)
