"""From a task's training settings to a learner and a person's data. What a task file may name is listed here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from crowdfl.errors import SettingsError
from crowdfl.learning import watch
from crowdfl.learning.data import Split
from crowdfl.learning.features import features, features_per_window
from crowdfl.learning.learner import Learner, Training
from crowdfl.learning.softmax import SoftmaxLearner
from crowdfl.learning.torch_learner import TorchLearner
from crowdfl.roles.participant import Arrays, Evaluate, Train

__all__ = ["evaluator", "load_person", "make_learner", "trainer", "training_of"]

_CHANNELS = 6


@contextmanager
def _wrong_by_name() -> Iterator[None]:
    """A requester wrote these settings: what is missing or wrong in them is told, not tripped over."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as wrong:
        raise SettingsError(f"a training setting is missing or wrong: {wrong}") from None


@_wrong_by_name()
def make_learner(training: Mapping[str, Any]) -> Learner:
    """The learner a task names."""
    labels = len(training["labels"])
    inputs = features_per_window(str(training["features"]), watch.CUT.length, _CHANNELS)
    if training["learner"] == "softmax":
        return SoftmaxLearner(inputs, labels)
    if training["learner"] == "network":
        layers = [part for width in training["hidden"] for part in (f"linear {int(width)}", "relu")]
        return TorchLearner(inputs, [*layers, f"linear {labels}"], seed=int(training["seed"]))
    raise SettingsError(f"a task's learner is 'network' or 'softmax', not {training['learner']!r}")


@_wrong_by_name()
def training_of(training: Mapping[str, Any]) -> Training:
    """How to train."""
    return Training(
        epochs=int(training["epochs"]),
        batch=int(training["batch"]),
        rate=float(training["rate"]),
        seed=int(training["seed"]),
    )


def load_person(data: str) -> Split:
    """A person's windows: `watch:N` is person N of the watch data set."""
    kind, _, rest = data.partition(":")
    if kind == "watch" and rest.isdigit():
        return watch.load_person(int(rest))
    raise SettingsError(f"data is watch:0 to watch:9, not {data!r}")


def trainer(split: Split, learner: Learner) -> Train:
    """Train on a person's windows, which go nowhere else."""

    def train(arrays: Arrays, settings: Mapping[str, Any], number: int) -> tuple[Arrays, int]:
        learner.load(arrays)
        inputs = features(str(settings["features"]), split.train.windows)
        used = learner.train(inputs, split.train.labels, training_of(settings).at(number, split.train.name))
        return learner.weights(), used

    return train


def evaluator(split: Split, learner: Learner, settings: Mapping[str, Any]) -> Evaluate:
    """How a model does on this person's held-out windows."""

    def evaluate(arrays: Arrays) -> Mapping[str, float]:
        learner.load([np.asarray(array) for array in arrays])
        inputs = features(str(settings["features"]), split.held_out.windows)
        metrics = learner.evaluate(inputs, split.held_out.labels)
        return {"accuracy": metrics.accuracy, "loss": metrics.loss, "windows": float(metrics.samples)}

    return evaluate
