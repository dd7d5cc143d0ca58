"""Federated averaging in the clear: what an encrypted campaign on the same data is compared with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crowdfl.errors import NothingToAverage
from crowdfl.learning.datasets.data import Split
from crowdfl.learning.models.learner import AnyScores, Learner, Training
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.server_steps import PlainStep


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
    shape = learner.shape
    weights = learner.weights()
    step = step or PlainStep()
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
