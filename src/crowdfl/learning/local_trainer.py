"""The task's recipe and one person's data: what a participant trains and evaluates with."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from crowdfl.learning.datasets.data import Split
from crowdfl.learning.models.learner import Learner
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.learning.recipe import Recipe

__all__ = ["LocalTrainer"]


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
        """The person's windows, which go nowhere else."""
        return self.recipe.load(self._data)

    @cached_property
    def learner(self) -> Learner:
        return self.recipe.make_learner(self._module)

    def train(self, arrays: Weights, _settings: Mapping[str, Any], number: int) -> tuple[Weights, int]:
        """Train on the person's windows; the new weights, and how many windows were used."""
        mine, learner = self.split.train, self.learner
        learner.load(arrays)
        training = self.recipe.training.at(number, mine.name)
        used = learner.train(self.recipe.inputs_of(mine.windows), mine.labels, training)
        return learner.weights(), used

    def evaluate(self, arrays: Weights) -> Mapping[str, float]:
        """How a model does on the person's held-out windows."""
        held_out, learner = self.split.held_out, self.learner
        learner.load(arrays)
        metrics = learner.evaluate(self.recipe.inputs_of(held_out.windows), held_out.labels)
        return {"accuracy": metrics.accuracy, "loss": metrics.loss, "windows": float(metrics.samples)}
