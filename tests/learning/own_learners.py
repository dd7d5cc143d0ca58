"""Learners and losses as users write them, good and bad."""

import numpy as np

from crowdfl.learning.models.learner import Training, ValueScores, value_score
from crowdfl.learning.models.shape import ModelShape

__all__ = ["Bare", "Full", "Means", "not_a_class"]


class Bare:
    """The least that a learner needs: nearest class means, moved towards the data."""

    def __init__(self, inputs: int, labels: int) -> None:
        self.means = np.zeros((labels, inputs), dtype=np.float32)

    def weights(self):
        """The array itself, not a copy."""
        return [self.means]

    def load(self, weights):
        self.means = np.asarray(weights[0], dtype=np.float32)

    def train(self, inputs, labels, training: Training):
        """Says nothing about how many samples it used."""
        for label in np.unique(labels):
            target = inputs[labels == label].mean(axis=0)
            self.means[label] += training.rate * (target - self.means[label])

    def predict(self, inputs):
        """Softmax of the negative distances."""
        distances = ((inputs[:, None, :] - self.means[None]) ** 2).mean(axis=2)
        powers = np.exp(distances.min(axis=1, keepdims=True) - distances)
        return powers / powers.sum(axis=1, keepdims=True)


class Full(Bare):
    """All that a constructor may ask for, and a shape with names."""

    def __init__(self, inputs, labels, *, seed, recipe) -> None:
        super().__init__(inputs, labels)
        self.asked = (inputs, labels, seed, recipe.epochs)

    @property
    def shape(self) -> ModelShape:
        return ModelShape(("means",), (self.means.shape,))


class Means:
    """Of values: the mean of what it saw, whatever the inputs; takes whole windows."""

    def __init__(self, inputs: tuple[int, int], labels: int) -> None:
        self.inputs, self.mean = inputs, np.zeros(labels)

    def weights(self):
        return [self.mean]

    def load(self, weights):
        self.mean = weights[0]

    def train(self, inputs, values, training: Training):
        """Checks what it is handed."""
        assert inputs.shape[1:] == self.inputs
        assert values.dtype == np.float32
        self.mean = values.mean(axis=0, dtype=np.float64)
        return len(values)

    def predict(self, inputs):
        """The same for every sample."""
        return np.tile(self.mean, (len(inputs), 1))

    def evaluate(self, inputs, values) -> ValueScores:
        return value_score(self.predict(inputs), values)


class Rough(Bare):
    """Changes what it is handed."""

    def train(self, inputs, labels, training):
        inputs *= 0
        labels *= 0

    def predict(self, inputs):
        found = super().predict(inputs)
        inputs *= 0
        return found


class NoMethods:
    """Not a learner."""

    def __init__(self, inputs, labels) -> None:
        pass


class WantsMore(Bare):
    """Nobody knows the depth."""

    def __init__(self, inputs, labels, depth) -> None:
        super().__init__(inputs, labels)


class FailsAtOnce(Bare):
    def __init__(self, inputs, labels) -> None:
        raise KeyError("tree")


class Breaks(Bare):
    def train(self, inputs, labels, training):
        raise ZeroDivisionError("no reason")


def bare_with(**changed) -> type[Bare]:
    """A learner of which one thing is wrong."""
    return type("Wrong", (Bare,), changed)


Forgetful = bare_with(load=lambda self, weights: None)
NoList = bare_with(weights=lambda self: self.means)
Words = bare_with(weights=lambda self: [np.array(["a"])])
Narrow = bare_with(predict=lambda self, inputs: Bare.predict(self, inputs)[:, 1:])
Scores = bare_with(predict=lambda self, inputs: Bare.predict(self, inputs) * 3)  # they do not add up to one
Nan = bare_with(predict=lambda self, inputs: Bare.predict(self, inputs) * np.nan)
WrongShape = bare_with(shape=ModelShape(("means",), ((1, 1),)))
ShapeOfText = bare_with(shape="means")
Lavish = bare_with(train=lambda self, inputs, labels, training: len(labels) + 1)  # more samples than there are
Clumsy = bare_with(train=lambda self, inputs, labels, training: np.mean(inputs, axis=7))  # fails inside NumPy
Loose = bare_with(evaluate=lambda self, inputs, labels: 0.5)


def not_a_class(inputs, labels):
    return Bare(inputs, labels)
