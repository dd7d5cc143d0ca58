"""What a participant needs of a model, in plain NumPy arrays: torch, scikit-learn, JAX or anything else can implement it."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Labels
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.shape import ModelShape, Weights


@dataclass(frozen=True)
class Training:
    """How to train in one round. The same settings, weights and data give the same result."""

    epochs: int = 20
    batch: int = 32
    rate: float = 0.005
    seed: int = 0
    on_epoch: Callable[[int], None] | None = field(default=None, compare=False, repr=False)  # called from epoch 1 on

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch < 1 or not 0 < self.rate < math.inf:
            raise SettingsError("training needs epochs >= 0, a batch >= 1 and a rate > 0")
        if not 0 <= self.seed < 2**63:
            raise SettingsError("a seed is a whole number from 0 to 2^63 - 1")

    def at(self, round_number: int, who: str) -> "Training":
        """The same with a seed of its own for this round and participant, which anyone can derive again."""
        digest = hashlib.sha256(f"{self.seed}/{round_number}/{who}".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:4]))


@dataclass(frozen=True)
class ModelScores:
    """How well a model does on some windows."""

    accuracy: float
    loss: float
    samples: int


class Learner(Protocol):
    """A model that can be loaded, trained and evaluated."""

    @property
    def shape(self) -> ModelShape: ...
    def weights(self) -> Weights: ...  # copies, in the order of `shape`
    def load(self, weights: Sequence[npt.ArrayLike]) -> None: ...  # ModelMismatch names the first that does not fit
    def train(self, inputs: Inputs, labels: Labels, training: Training) -> int: ...  # how many samples were used
    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]: ...  # the probability of each label, (n, labels)
    def evaluate(self, inputs: Inputs, labels: Labels) -> ModelScores: ...


def score(probabilities: npt.NDArray[np.float64], labels: Labels) -> ModelScores:
    """Accuracy, and the mean negative log-likelihood."""
    check_pairs(probabilities, labels)
    if not len(labels):
        raise DataMalformed("there is nothing to evaluate on: no samples are held out")
    right = probabilities[np.arange(len(labels)), labels]
    loss = -np.log(np.maximum(right, np.finfo(np.float64).tiny)).mean()
    return ModelScores(float((probabilities.argmax(axis=1) == labels).mean()), float(loss), len(labels))


def batches(samples: int, training: Training) -> Iterator[npt.NDArray[np.int64]]:
    """The indices of each batch, every epoch in a new order, the same for every kind of learner."""
    generator = np.random.default_rng(training.seed)
    for epoch in range(1, training.epochs + 1):
        order = generator.permutation(samples)
        for start in range(0, samples, training.batch):
            yield order[start : start + training.batch]
        if training.on_epoch is not None:  # the last batch has been trained on by now
            training.on_epoch(epoch)


def check_pairs(inputs: npt.NDArray[np.floating], labels: Labels, width: int | None = None) -> None:
    if inputs.ndim != 2 or labels.shape != (len(inputs),):
        raise DataMalformed(f"inputs of shape {inputs.shape} do not match labels of shape {labels.shape}")
    if width is not None and inputs.shape[1] != width:
        raise DataMalformed(f"the model takes {width} inputs per sample, not {inputs.shape[1]}")
