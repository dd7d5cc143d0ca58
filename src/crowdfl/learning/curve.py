"""A learning curve: how a model does after each epoch, on what it learns from and on what is held out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Split
from crowdfl.learning.models.learner import Learner, Metrics
from crowdfl.learning.recipe import Recipe

__all__ = ["Epoch", "learning_curve"]


@dataclass(frozen=True)
class Epoch:
    """After this many epochs; 0 is before the first."""

    number: int
    train: Metrics
    held_out: Metrics


def learning_curve(
    recipe: Recipe, learner: Learner, split: Split, told: Callable[[Epoch], None] = lambda _: None
) -> list[Epoch]:
    """Train as a round of a campaign does, looking on after every epoch. The weights come out the same as without."""
    if not len(split.held_out):
        raise DataMalformed(f"{split.train.name}: no window is held out: record longer, or raise the held-out share")
    inputs, held_out = (recipe.inputs_of(side.windows) for side in (split.train, split.held_out))
    curve: list[Epoch] = []

    def look(number: int) -> None:
        on_train, on_held_out = (
            learner.evaluate(inputs, split.train.labels),
            learner.evaluate(held_out, split.held_out.labels),
        )
        curve.append(Epoch(number, on_train, on_held_out))
        told(curve[-1])

    look(0)
    learner.train(inputs, split.train.labels, replace(recipe.training, on_epoch=look))
    return curve
