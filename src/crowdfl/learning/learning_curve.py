"""One person's learning curve: how a model does after each epoch."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Split
from crowdfl.learning.models.learner import AnyScores, Learner
from crowdfl.learning.recipe import Recipe


@dataclass(frozen=True)
class Epoch:
    """How a model does after this many epochs; 0 is before the first. `norm` is how far it is from where it started."""

    number: int
    train: AnyScores
    held_out: AnyScores
    norm: float


def learning_curve(
    recipe: Recipe, learner: Learner, split: Split, on_epoch: Callable[[Epoch], None] = lambda _: None
) -> list[Epoch]:
    """Train as in a round of a campaign and evaluate after every epoch. The weights are the same as without."""
    if not len(split.held_out):
        raise DataMalformed(f"{split.train.name}: no window is held out: record longer, or raise the held-out share")
    inputs, held_out = recipe.both_inputs(split)
    learned, wanted = recipe.targets_of(split.train), recipe.targets_of(split.held_out)
    shape = learner.shape
    curve = list[Epoch]()
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
