"""A participant's lesson: the task's recipe and a person's data, as the roles' `Train` and `Evaluate`."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from crowdfl.learning.datasets.data import Split
from crowdfl.learning.models.learner import Learner
from crowdfl.learning.models.shape import ModelShape
from crowdfl.learning.recipe import Recipe
from crowdfl.roles.participant import Arrays

__all__ = ["LocalTrainer"]


class LocalTrainer:
    """A person's data and the task's learner, loaded when first needed: torch alone takes seconds."""

    def __init__(self, data: str, training: Mapping[str, Any], module: str | None = None) -> None:
        self._data, self._training, self._module = data, training, module

    def prepare(self, shape: ModelShape) -> None:
        """Load everything now, or say what is missing; `shape` is the task's model, and which array differs is told."""
        _ = self.recipe, self.split
        shape.match(self.learner.shape)

    @cached_property
    def recipe(self) -> Recipe:
        """What the task asks for."""
        return Recipe.of(self._training)

    @cached_property
    def split(self) -> Split:
        """The person's windows, which go nowhere else."""
        return self.recipe.load(self._data)

    @cached_property
    def learner(self) -> Learner:
        """The task's."""
        return self.recipe.make_learner(self._module)

    def train(self, arrays: Arrays, _settings: Mapping[str, Any], number: int) -> tuple[Arrays, int]:
        """Train on the person's windows."""
        mine, learner = self.split.train, self.learner
        learner.load(arrays)
        training = self.recipe.training.at(number, mine.name)
        used = learner.train(self.recipe.inputs_of(mine.windows), mine.labels, training)
        return learner.weights(), used

    def evaluate(self, arrays: Arrays) -> Mapping[str, float]:
        """How a model does on the person's held-out windows."""
        held_out, learner = self.split.held_out, self.learner
        learner.load(arrays)
        metrics = learner.evaluate(self.recipe.inputs_of(held_out.windows), held_out.labels)
        return {"accuracy": metrics.accuracy, "loss": metrics.loss, "windows": float(metrics.samples)}
