"""Dense networks in plain NumPy: linear layers with relu and tanh between, trained as torch would, without torch.

The first weights are torch's to the last bit. Trained ones are within 1e-4 of torch's after an epoch, as a phone's are:
both add in single precision, in another order.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.learning.features import Inputs
from crowdfl.learning.models.layers import Layer, stack_of
from crowdfl.learning.models.learner import AnyScores, Training, batches, check_pairs, scored
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.learning.models.softmax import probabilities

Rows = npt.NDArray[np.float32]
Slope = Callable[[Rows, npt.NDArray[Any]], Rows]
"""How a mean over outputs (n, labels) and their targets grows with each output."""

KEEP, KEEP_SQUARES, SMALL = 0.9, 0.999, 1e-8  # of Adam, as torch has them
_DRAWN_BITS = 24  # of each of torch's random numbers in single precision


class NetworkLearner:
    """Layers written as in a task file, without convolutions; the last is linear, one output per label or value."""

    def __init__(self, inputs: int, layers: Sequence[str], seed: int = 0, loss: str | None = None) -> None:
        """With a loss, which `VALUE_SLOPES` names, outputs are values; without one they are scores of labels."""
        self._inputs = inputs
        self._stack = stack_of(inputs, layers)
        self._loss = loss
        sides = [side for one in self._stack if one.kind == "linear" for side in ((one.size, one.width), (one.size,))]
        names = [
            f"{place}.{part}"
            for place, one in enumerate(self._stack)
            if one.kind == "linear"
            for part in ("weight", "bias")
        ]
        self._shape = ModelShape(tuple(names), tuple(sides))
        self._flat = first_weights(self._stack, seed)
        self._arrays = self._views(self._flat)

    @property
    def shape(self) -> ModelShape:
        """The arrays under torch's names: `0.weight`, `0.bias`, and so on."""
        return self._shape

    def weights(self) -> Weights:
        return [array.astype(np.float64) for array in self._arrays]

    def load(self, weights: Sequence[npt.ArrayLike]) -> None:
        for own, array in zip(self._arrays, self._shape.check(weights), strict=True):
            own[...] = array

    def train(self, inputs: Inputs, labels: npt.NDArray[Any], training: Training) -> int:
        """Adam on the loss, its moments reset in every round: a phone keeps nothing between rounds."""
        check_pairs(inputs, labels, self._inputs)
        rows = inputs.astype(np.float32, copy=False)
        # Deviation D18: Eq. 1 prints a plain gradient step.
        adam = _Adam(self._flat, training)
        slopes = np.zeros_like(self._flat)
        with np.errstate(over="ignore", invalid="ignore"):  # training that diverges is seen in its weights
            for batch in batches(len(labels), training):
                self._backward(rows[batch], labels[batch], self._views(slopes))
                adam.step(slopes)
        return len(labels)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self._forward(inputs.astype(np.float32, copy=False))[-1].astype(np.float64)
            return scores if self._loss is not None else probabilities(scores)

    def evaluate(self, inputs: Inputs, labels: npt.NDArray[Any]) -> AnyScores:
        check_pairs(inputs, labels, self._inputs)
        return scored(self.predict(inputs), labels)

    def _views(self, flat: Rows) -> list[Rows]:
        """Each array of the shape, as a part of one row: what changes the row changes them."""
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in self._shape.shapes)])
        parts = zip(pairwise(ends.tolist()), self._shape.shapes, strict=True)
        return [flat[start:end].reshape(shape) for (start, end), shape in parts]

    def _forward(self, rows: Rows) -> list[Rows]:
        """The rows, and what each layer gives."""
        fed, arrays = [rows], iter(self._arrays)
        for layer in self._stack:
            if layer.kind == "linear":
                fed.append(fed[-1] @ next(arrays).T)
                fed[-1] += next(arrays)
            else:
                fed.append(np.tanh(fed[-1]) if layer.kind == "tanh" else np.maximum(fed[-1], 0))
        return fed

    def _backward(self, rows: Rows, targets: npt.NDArray[Any], slopes: list[Rows]) -> None:
        """The loss's slopes by every parameter, into `slopes`."""
        given = self._forward(rows)
        slope = (_label_slope if self._loss is None else VALUE_SLOPES[self._loss])(given[-1], targets)
        left, first = len(slopes), next(place for place, one in enumerate(self._stack) if one.kind == "linear")
        for place in reversed(
            range(first, len(self._stack))
        ):  # before the first linear layer there is nothing to train
            taken, made = given[place : place + 2]
            match self._stack[place].kind:
                case "linear":
                    left -= 2
                    np.matmul(slope.T, taken, out=slopes[left])
                    slope.sum(axis=0, out=slopes[left + 1])
                    if place > first:
                        slope = slope @ self._arrays[left]
                case "tanh":
                    slope = slope * (1 - made * made)
                case _:
                    slope = slope * (made > 0)


def first_weights(stack: Sequence[Layer], seed: int) -> Rows:
    """Those that torch's linear layers start from, by its own generator: even to either side of 0, as wide as inputs allow."""
    generator = np.random.RandomState(seed % 2**32)  # the Mersenne Twister, begun as torch begins it
    parts = []
    for layer in stack:
        if layer.kind == "linear":
            bound = float(np.float32(layer.width**-0.5))
            drawn = generator.randint(0, 2**32, (layer.width + 1) * layer.size, dtype=np.uint32) % 2**_DRAWN_BITS
            parts.append((drawn * 2.0**-_DRAWN_BITS * (bound + bound) - bound).astype(np.float32))
    return np.concatenate(parts)


def _label_slope(outputs: Rows, labels: npt.NDArray[Any]) -> Rows:
    """Of the cross entropy."""
    slope: Rows = probabilities(outputs)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= len(labels)
    return slope


def _squared(outputs: Rows, values: npt.NDArray[Any]) -> Rows:
    return np.asarray((outputs - values) * np.float32(2 / outputs.size))


def _absolute(outputs: Rows, values: npt.NDArray[Any]) -> Rows:
    return np.asarray(np.sign(outputs - values) * np.float32(1 / outputs.size))


def _huber(outputs: Rows, values: npt.NDArray[Any]) -> Rows:
    return np.asarray(np.clip(outputs - values, -1, 1) * np.float32(1 / outputs.size))


VALUE_SLOPES: Mapping[str, Slope] = {"squared": _squared, "absolute": _absolute, "huber": _huber}


class _Adam:
    """Adam (Kingma and Ba, 2015) on one row, in place, as `torch_models.Adam` computes it; with FedProx's pull to the start."""

    def __init__(self, flat: Rows, training: Training) -> None:
        self._flat, self._rate, self._proximal = flat, training.rate, np.float32(training.proximal)
        self._start = flat.copy() if training.proximal else flat
        self._means, self._squares = np.zeros_like(flat), np.zeros_like(flat)
        self._room = np.empty_like(flat)
        self._steps = 0

    def step(self, slopes: Rows) -> None:
        """Changes `slopes` too."""
        self._steps += 1
        pace = self._rate / (1 - KEEP**self._steps)
        spread = (1 - KEEP_SQUARES**self._steps) ** 0.5
        room = self._room
        if self._proximal:
            np.subtract(self._flat, self._start, out=room)
            slopes += np.multiply(room, self._proximal, out=room)
        np.subtract(slopes, self._means, out=room)
        self._means += np.multiply(room, np.float32(1 - KEEP), out=room)
        np.multiply(slopes, slopes, out=slopes)
        self._squares *= np.float32(KEEP_SQUARES)
        self._squares += np.multiply(slopes, np.float32(1 - KEEP_SQUARES), out=slopes)
        np.sqrt(self._squares, out=room)
        room /= np.float32(spread)
        room += np.float32(SMALL)
        np.divide(self._means, room, out=room)
        self._flat -= np.multiply(room, np.float32(pace), out=room)
