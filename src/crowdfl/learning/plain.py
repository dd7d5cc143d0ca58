"""Federated averaging in the clear, round after round: what an encrypted campaign on the same data is compared with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crowdfl.errors import NothingToAverage
from crowdfl.learning.datasets.data import Split
from crowdfl.learning.features import features
from crowdfl.learning.fedavg import fedavg
from crowdfl.learning.models.learner import Learner, Metrics, Training
from crowdfl.learning.models.shape import Weights

__all__ = ["PlainRound", "plain_rounds"]


@dataclass(frozen=True, eq=False)
class PlainRound:
    """The average of a round, and how it does on each person's held-out windows."""

    number: int
    weights: Weights
    metrics: Mapping[str, Metrics]

    @property
    def accuracy(self) -> float:
        """Over all held-out windows, whoever they belong to."""
        return self._mean([m.accuracy for m in self.metrics.values()])

    @property
    def loss(self) -> float:
        """The same for the loss."""
        return self._mean([m.loss for m in self.metrics.values()])

    def _mean(self, values: Sequence[float]) -> float:
        return float(np.average(values, weights=[m.samples for m in self.metrics.values()]))


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
