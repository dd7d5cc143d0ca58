"""What trains: the interface of a learner, with its settings and scores."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Labels
from crowdfl.learning.features import Inputs
from crowdfl.learning.models.forms import named_arrays
from crowdfl.learning.models.shape import ModelShape, Weights


@dataclass(frozen=True, eq=False)
class Update:
    """What a participant trained: a model's weights, and on how many samples.

    The weights are copied, as float64: a model that is trained further does not change an update that was made of it. Lists
    of arrays are taken, single arrays, dictionaries and torch's `state_dict`; of any real type, tensors that require grad too.
    Integers in a dictionary, such as BatchNorm's `num_batches_tracked`, are left out: they are not averaged.

    Args:
        weights: The trained model.
        samples: How many samples it was trained on; the average counts it that often. `simulate` takes any positive weight.
        metrics: What the training says of itself, such as its loss, as numbers by name.

    Raises:
        EncodingError: Something in the weights is not an array of real numbers; the error names it.
    """

    weights: Weights = field(repr=False)  # what the whole protocol hides
    names: tuple[str, ...]
    samples: int
    metrics: Mapping[str, float] | None

    def __init__(self, weights: object, samples: float, metrics: Mapping[str, float] | None = None) -> None:
        arrays = named_arrays(weights)
        values = {"weights": list(arrays.values()), "names": tuple(arrays), "samples": samples, "metrics": metrics}
        for name, value in values.items():
            object.__setattr__(self, name, value)  # frozen: only here


@dataclass(frozen=True)
class Training:
    """How to train in one round. The same settings, weights and data give the same result."""

    epochs: int = 20
    batch: int = 32
    rate: float = 0.005
    seed: int = 0
    proximal: float = 0.0  # FedProx's mu: adds mu / 2 * |weights - weights at the start|^2 to the loss
    on_epoch: Callable[[int], None] | None = field(default=None, compare=False, repr=False)  # called from epoch 1 on

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch < 1 or not 0 < self.rate < math.inf:
            raise SettingsError("training needs epochs >= 0, a batch >= 1 and a rate > 0")
        if not 0 <= self.proximal < math.inf:
            raise SettingsError("`proximal` is a number, at least 0")
        if not 0 <= self.seed < 2**63:
            raise SettingsError("a seed is a whole number from 0 to 2^63 - 1")

    def at(self, round_number: int, who: str) -> "Training":
        """The same with a seed of its own for this round and participant, which anyone can derive again."""
        return replace(self, seed=seed_of(self.seed, round_number, who))


def seed_of(seed: int, round_number: int, who: str) -> int:
    digest = hashlib.sha256(f"{seed}/{round_number}/{who}".encode()).digest()
    return int.from_bytes(digest[:4])


@dataclass(frozen=True)
class ModelScores:
    """How well a model tells labels apart on some windows."""

    accuracy: float
    loss: float
    samples: int

    @property
    def numbers(self) -> dict[str, float]:
        return {"accuracy": self.accuracy, "loss": self.loss}


@dataclass(frozen=True)
class ValueScores:
    """How near a model's values are: root mean square and mean absolute error, and the share of the variance explained."""

    rmse: float
    mae: float
    r2: float
    samples: int

    @property
    def numbers(self) -> dict[str, float]:
        return {"rmse": self.rmse, "mae": self.mae, "r2": self.r2}


AnyScores = ModelScores | ValueScores


class Learner(Protocol):
    """A model that can be loaded, trained and evaluated.

    Where a task learns values, `labels` are the values, float32 of shape (n, values), and `predict` returns such.
    """

    @property
    def shape(self) -> ModelShape: ...
    def weights(self) -> Weights: ...  # copies, in the order of `shape`
    def load(self, weights: Sequence[npt.ArrayLike]) -> None: ...  # ModelMismatch names the first that does not fit
    def train(
        self, inputs: Inputs, labels: npt.NDArray[Any], training: Training
    ) -> int: ...  # how many samples were used
    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]: ...  # the probability of each label, (n, labels)
    def evaluate(self, inputs: Inputs, labels: npt.NDArray[Any]) -> AnyScores: ...


def score(probabilities: npt.NDArray[np.float64], labels: Labels) -> ModelScores:
    """Accuracy, and the mean negative log-likelihood."""
    check_pairs(probabilities, labels)
    if not len(labels):
        raise DataMalformed("there is nothing to evaluate on: no samples are held out")
    right = probabilities[np.arange(len(labels)), labels]
    loss = -np.log(np.maximum(right, np.finfo(np.float64).tiny)).mean()
    return ModelScores(float((probabilities.argmax(axis=1) == labels).mean()), float(loss), len(labels))


def value_score(found: npt.NDArray[np.float64], values: npt.NDArray[np.floating]) -> ValueScores:
    """Over all values alike, but R2, which is the mean of each value's own. Where a value never changes, R2 is 1 or 0."""
    check_pairs(found, values)
    if not len(values):
        raise DataMalformed("there is nothing to evaluate on: no samples are held out")
    if not np.isfinite(found).all():
        raise DataMalformed(
            "the model's values are not finite: training diverged; lower `rate`, or scale the values nearer to 1"
        )
    wanted = values.astype(np.float64)
    errors = found - wanted
    left = (errors**2).sum(axis=0)
    spread = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    still = spread == 0
    shares = np.where(still, (left == 0).astype(np.float64), 1 - left / np.where(still, 1.0, spread))
    return ValueScores(
        float(np.sqrt((errors**2).mean())), float(np.abs(errors).mean()), float(shares.mean()), len(values)
    )


def scored(predicted: npt.NDArray[np.float64], targets: npt.NDArray[Any]) -> AnyScores:
    """Of labels, which are integers, or of values."""
    return score(predicted, targets) if targets.dtype.kind in "iu" else value_score(predicted, targets)


def batches(samples: int, training: Training) -> Iterator[npt.NDArray[np.int64]]:
    """The indices of each batch, every epoch in a new order, the same for every kind of learner."""
    generator = np.random.default_rng(training.seed)
    for epoch in range(1, training.epochs + 1):
        order = generator.permutation(samples)
        for start in range(0, samples, training.batch):
            yield order[start : start + training.batch]
        if training.on_epoch is not None:  # the last batch has been trained on by now
            training.on_epoch(epoch)


def check_pairs(
    inputs: npt.NDArray[np.floating], labels: npt.NDArray[Any], each: int | tuple[int, ...] | None = None
) -> None:
    """A label, or a row of values, for every sample; `each` is what the model takes per sample."""
    sides = 1 if labels.dtype.kind in "iu" else 2
    if inputs.ndim < 2 or labels.ndim != sides or len(labels) != len(inputs):
        what = "labels" if sides == 1 else "values"
        raise DataMalformed(f"inputs of shape {inputs.shape} do not match {what} of shape {labels.shape}")
    if each is not None and inputs.shape[1:] != (each if isinstance(each, tuple) else (each,)):
        found = inputs.shape[1] if inputs.ndim == 2 else inputs.shape[1:]
        raise DataMalformed(f"the model takes {each} inputs per sample, not {found}")
