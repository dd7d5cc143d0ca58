"""Softmax regression: a learner in plain NumPy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.learning.datasets.data import Labels
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.learner import ModelScores, Training, batches, check_pairs, score
from crowdfl.learning.models.shape import ModelShape, Weights


class SoftmaxLearner:
    """One matrix and one bias, trained by gradient descent. The problem is convex, so that it may start from zero."""

    def __init__(self, inputs: int, labels: int) -> None:
        self._matrix = np.zeros((inputs, labels))
        self._bias = np.zeros(labels)

    @property
    def shape(self) -> ModelShape:
        return ModelShape.of({"weight": self._matrix, "bias": self._bias})

    def weights(self) -> Weights:
        return [self._matrix.copy(), self._bias.copy()]

    def load(self, weights: Sequence[npt.ArrayLike]) -> None:
        matrix, bias = self.shape.check(weights)
        self._matrix, self._bias = matrix.copy(), bias.copy()

    def train(self, inputs: Inputs, labels: Labels, training: Training) -> int:
        check_pairs(inputs, labels, len(self._matrix))
        start = self.weights()
        pace = training.rate * training.proximal
        for batch in batches(len(labels), training):
            rows = inputs[batch]
            here = self.weights() if pace else start
            error = self.predict(rows)
            error[np.arange(len(batch)), labels[batch]] -= 1  # the loss's gradient before the matrix
            self._matrix -= training.rate * (rows.T @ error) / len(batch)
            self._bias -= training.rate * error.mean(axis=0)
            if pace:  # FedProx: back towards the start, by the gradient where this step began
                self._matrix -= pace * (here[0] - start[0])
                self._bias -= pace * (here[1] - start[1])
        return len(labels)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        return probabilities(inputs @ self._matrix + self._bias)

    def evaluate(self, inputs: Inputs, labels: Labels) -> ModelScores:
        check_pairs(inputs, labels, len(self._matrix))
        return score(self.predict(inputs), labels)


def probabilities(scores: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of each label, from its scores in rows."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))  # the shift cancels and keeps exp finite
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
