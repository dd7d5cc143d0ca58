"""Training in the clear: one person's learning curve, and federated averaging round after round.

The rounds are what an encrypted campaign on the same data is compared with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crowdfl.errors import DataMalformed, NothingToAverage
from crowdfl.learning.datasets.data import Split
from crowdfl.learning.features import features
from crowdfl.learning.fedavg import fedavg
from crowdfl.learning.models.learner import Learner, ModelScores, Training
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.recipe import Recipe

__all__ = ["Epoch", "PlainRound", "learning_curve", "plain_rounds"]


@dataclass(frozen=True)
class Epoch:
    """How a model does after this many epochs; 0 is before the first."""

    number: int
    train: ModelScores
    held_out: ModelScores


@dataclass(frozen=True, eq=False)
class PlainRound:
    """The average of a round, and how it does on each person's held-out windows."""

    number: int
    weights: Weights
    scores: Mapping[str, ModelScores]

    @property
    def accuracy(self) -> float:
        """Over all held-out windows, whoever they belong to."""
        return self._mean([scores.accuracy for scores in self.scores.values()])

    @property
    def loss(self) -> float:
        """Over all held-out windows."""
        return self._mean([scores.loss for scores in self.scores.values()])

    def _mean(self, values: Sequence[float]) -> float:
        return float(np.average(values, weights=[scores.samples for scores in self.scores.values()]))


def learning_curve(
    recipe: Recipe, learner: Learner, split: Split, on_epoch: Callable[[Epoch], None] = lambda _: None
) -> list[Epoch]:
    """Train as in a round of a campaign and evaluate after every epoch. The weights are the same as without."""
    if not len(split.held_out):
        raise DataMalformed(f"{split.train.name}: no window is held out: record longer, or raise the held-out share")
    inputs, held_out = (recipe.inputs_of(side.windows) for side in (split.train, split.held_out))
    curve: list[Epoch] = []

    def evaluate(number: int) -> None:
        on_train = learner.evaluate(inputs, split.train.labels)
        curve.append(Epoch(number, on_train, learner.evaluate(held_out, split.held_out.labels)))
        on_epoch(curve[-1])

    evaluate(0)
    learner.train(inputs, split.train.labels, replace(recipe.training, on_epoch=evaluate))
    return curve


def plain_rounds(
    learner: Learner, people: Sequence[Split], training: Training, rounds: int, feature_name: str = "motion"
) -> Iterator[PlainRound]:
    """Start from the learner's weights; in each round everyone trains from the last average. Rounds count from 1."""
    if not people:
        raise NothingToAverage("an average needs at least one person")
    shape, weights = learner.shape, learner.weights()
    for number in range(1, rounds + 1):
        models, samples = [], []
        for person in people:
            learner.load(weights)
            data, settings = person.train, training.at(number, person.train.name)
            samples.append(learner.train(features(feature_name, data.windows), data.labels, settings))
            models.append(shape.flat(learner.weights()))
        weights = shape.arrays(fedavg(models, samples))
        learner.load(weights)
        held_out = [person.held_out for person in people]
        scores = {p.name: learner.evaluate(features(feature_name, p.windows), p.labels) for p in held_out}
        yield PlainRound(number, weights, scores)
