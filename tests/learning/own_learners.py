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
        """As given."""
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
        """One array."""
        return ModelShape(("means",), (self.means.shape,))


class Means:
    """Of values: the mean of what it saw, whatever the inputs; takes whole windows."""

    def __init__(self, inputs: tuple[int, int], labels: int) -> None:
        self.inputs, self.mean = inputs, np.zeros(labels)

    def weights(self):
        """A list."""
        return [self.mean]

    def load(self, weights):
        """As given."""
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
        """Its own."""
        return value_score(self.predict(inputs), values)


class Rough(Bare):
    """Changes what it is handed."""

    def train(self, inputs, labels, training):
        """In place."""
        inputs *= 0
        labels *= 0

    def predict(self, inputs):
        """In place."""
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
    """In its constructor."""

    def __init__(self, inputs, labels) -> None:
        raise KeyError("tree")


class Forgetful(Bare):
    """Loads nothing."""

    def load(self, weights):
        """Ignores it."""


class NoList(Bare):
    """One array in place of a list."""

    def weights(self):
        """Not a list."""
        return self.means


class Words(Bare):
    """Arrays of text."""

    def weights(self):
        """Not numbers."""
        return [np.array(["a"])]


class Narrow(Bare):
    """One column too few."""

    def predict(self, inputs):
        """Of the wrong shape."""
        return super().predict(inputs)[:, 1:]


class Scores(Bare):
    """No probabilities."""

    def predict(self, inputs):
        """They do not add up."""
        return super().predict(inputs) * 3


class Nan(Bare):
    """Not finite."""

    def predict(self, inputs):
        """Zero over zero."""
        return super().predict(inputs) * np.nan


class WrongShape(Bare):
    """Says another shape than it has."""

    shape = ModelShape(("means",), ((1, 1),))


class ShapeOfText(Bare):
    """A shape of another kind."""

    shape = "means"


class Lavish(Bare):
    """Uses more samples than there are."""

    def train(self, inputs, labels, training):
        """As if."""
        return len(labels) + 1


class Clumsy(Bare):
    """Fails inside a library."""

    def train(self, inputs, labels, training):
        """Where the innermost line is NumPy's."""
        np.mean(inputs, axis=7)


class Breaks(Bare):
    """While it trains."""

    def train(self, inputs, labels, training):
        """Where the person at the device must find it."""
        raise ZeroDivisionError("no reason")


class Loose(Bare):
    """Scores in a form of its own."""

    def evaluate(self, inputs, labels):
        """A plain number."""
        return 0.5


def not_a_class(inputs, labels):
    """A function."""
    return Bare(inputs, labels)
