"""What a participant does in a round of a task: train, and evaluate."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from crowdfl.learning.datasets.data import Split
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.learner import Learner
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.learning.recipe import Recipe


class LocalTrainer:
    """A person's data and the task's learner, loaded when first needed: torch alone takes seconds."""

    def __init__(
        self,
        data: str,
        training: Mapping[str, Any],
        learner: str | None = None,
        *,
        loss: str | None = None,
    ) -> None:
        """The last two are code that this machine's user agrees to run, where the task has such."""
        self._data, self._training = data, training
        self._learner, self._loss = learner, loss

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
        return self.recipe.make_learner(self._learner, loss=self._loss)

    @cached_property
    def _inputs(self) -> tuple[Inputs, Inputs]:
        return self.recipe.both_inputs(self.split)

    def train(self, arrays: Weights, _settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        mine = self.split.train
        learner = self.learner
        learner.load(arrays)
        training = self.recipe.training.at(number, mine.name)
        used = learner.train(self._inputs[0], self.recipe.targets_of(mine), training)
        return learner.weights(), used

    def evaluate(self, arrays: Weights, _number: int = 0) -> Mapping[str, float]:
        """Nothing, where nothing is held out: short recordings can be trained on all the same."""
        held_out = self.split.held_out
        learner = self.learner
        if not len(held_out):
            return {}
        learner.load(arrays)
        metrics = learner.evaluate(self._inputs[1], self.recipe.targets_of(held_out))
        return {**metrics.numbers, "windows": float(metrics.samples)}
