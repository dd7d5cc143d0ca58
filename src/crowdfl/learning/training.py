"""Training: what a participant does in a round, one person's learning curve, and federated averaging in the clear.

The plain rounds are what an encrypted campaign on the same data is compared with.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from crowdfl.errors import DataMalformed, NothingToAverage
from crowdfl.learning.datasets.data import Split
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.learner import AnyScores, Learner, Training
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.learning.oracle import PlainStep, fedavg
from crowdfl.learning.recipe import Recipe


@dataclass(frozen=True)
class Epoch:
    """How a model does after this many epochs; 0 is before the first. `norm` is how far it is from where it started."""

    number: int
    train: AnyScores
    held_out: AnyScores
    norm: float


@dataclass(frozen=True, eq=False)
class PlainRound:
    """The model after a round, and how it does on each person's held-out windows."""

    number: int
    weights: Weights
    scores: Mapping[str, AnyScores]

    @property
    def accuracy(self) -> float:
        return self.mean("accuracy")

    @property
    def loss(self) -> float:
        return self.mean("loss")

    def mean(self, name: str) -> float:
        """A score over everyone's windows: `accuracy` or `loss`, or of values `rmse`, `mae` or `r2`."""
        rows = [(getattr(scores, name), scores.samples) for scores in self.scores.values()]
        return float(np.average([value for value, _ in rows], weights=[samples for _, samples in rows]))


class LocalTrainer:
    """A person's data and the task's learner, loaded when first needed: torch alone takes seconds."""

    def __init__(
        self,
        data: str,
        training: Mapping[str, Any],
        module: str | None = None,
        *,
        learner: str | None = None,
        loss: str | None = None,
    ) -> None:
        """The last three are code that this machine's user agrees to run, where the task has such."""
        self._data, self._training = data, training
        self._module, self._learner, self._loss = module, learner, loss

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
        return self.recipe.make_learner(self._module, learner=self._learner, loss=self._loss)

    @cached_property
    def _inputs(self) -> tuple[Inputs, Inputs]:
        return self.recipe.both_inputs(self.split)

    def train(self, arrays: Weights, _settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        mine, learner = self.split.train, self.learner
        learner.load(arrays)
        training = self.recipe.training.at(number, mine.name)
        used = learner.train(self._inputs[0], self.recipe.targets_of(mine), training)
        return learner.weights(), used

    def evaluate(self, arrays: Weights, _number: int = 0) -> Mapping[str, float]:
        """Nothing, where nothing is held out: short recordings can be trained on all the same."""
        held_out, learner = self.split.held_out, self.learner
        if not len(held_out):
            return {}
        learner.load(arrays)
        metrics = learner.evaluate(self._inputs[1], self.recipe.targets_of(held_out))
        return {**metrics.numbers, "windows": float(metrics.samples)}


def learning_curve(
    recipe: Recipe, learner: Learner, split: Split, on_epoch: Callable[[Epoch], None] = lambda _: None
) -> list[Epoch]:
    """Train as in a round of a campaign and evaluate after every epoch. The weights are the same as without."""
    if not len(split.held_out):
        raise DataMalformed(f"{split.train.name}: no window is held out: record longer, or raise the held-out share")
    inputs, held_out = recipe.both_inputs(split)
    learned, wanted = recipe.targets_of(split.train), recipe.targets_of(split.held_out)
    shape, curve = learner.shape, list[Epoch]()
    start = shape.flat(learner.weights())

    def evaluate(number: int) -> None:
        on_train = learner.evaluate(inputs, learned)
        norm = float(np.linalg.norm(shape.flat(learner.weights()) - start))
        curve.append(Epoch(number, on_train, learner.evaluate(held_out, wanted), norm))
        on_epoch(curve[-1])

    evaluate(0)
    learner.train(inputs, learned, replace(recipe.training, on_epoch=evaluate))
    if curve[-1].number < recipe.epochs:  # a learner of the user's own need not tell of its epochs
        evaluate(recipe.epochs)
    return curve


def plain_rounds(
    learner: Learner,
    people: Sequence[Split],
    training: Training,
    rounds: int,
    recipe: Recipe | None = None,
    *,
    step: PlainStep | None = None,
) -> Iterator[PlainRound]:
    """Start from the learner's weights; in each round everyone trains from the last model. Rounds count from 1.

    The last model is the last average, or what a server step makes of it. The recipe says what a learner is fed and what it
    learns; without one, features `motion` and labels.
    """
    if not people:
        raise NothingToAverage("an average needs at least one person")
    shape, weights, step = learner.shape, learner.weights(), step or PlainStep()
    recipe = recipe or Recipe.of({"labels": ["any"]})
    inputs = [recipe.both_inputs(person) for person in people]
    for number in range(1, rounds + 1):
        models, samples = [], []
        for person, (mine, _) in zip(people, inputs, strict=True):
            learner.load(weights)
            settings = training.at(number, person.train.name)
            samples.append(learner.train(mine, recipe.targets_of(person.train), settings))
            models.append(shape.flat(learner.weights()))
        weights = shape.arrays(step.next_model(shape.flat(weights), fedavg(models, samples)))
        learner.load(weights)
        held_out = zip((person.held_out for person in people), inputs, strict=True)
        scores = {p.name: learner.evaluate(rows, recipe.targets_of(p)) for p, (_, rows) in held_out}
        yield PlainRound(number, weights, scores)


def suggested_bound(lengths: Iterable[float]) -> float | None:
    """A `max_norm` for updates of these lengths: the largest, rounded up to two digits; a device scales a longer one down.

    None where training changed nothing, or did not stay finite.
    """
    largest = max(lengths, default=0.0)
    return rounded_up(largest) if 0 < largest < math.inf else None


def rounded_up(value: float) -> float:
    """To two digits, as a bound is suggested; the value is above zero and finite."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.3g}")
