"""From a task's training settings to a learner and a person's data. What a task file may name is listed here."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning import watch
from crowdfl.learning.data import Person, Split
from crowdfl.learning.features import features, features_per_window
from crowdfl.learning.learner import Learner, Training
from crowdfl.learning.softmax import SoftmaxLearner
from crowdfl.learning.sources import load_split
from crowdfl.learning.torch_learner import TorchLearner
from crowdfl.roles.participant import Arrays

__all__ = ["Lesson", "in_labels_of", "load_person", "make_learner", "training_of"]

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
    """A person's windows by a short text, such as `watch:3`: see `crowdfl.learning.sources`."""
    return load_split(data)


def in_labels_of(person: Person, names: Sequence[str]) -> Person:
    """The same windows, their labels counted as the task counts them."""
    places = {str(name).lower(): place for place, name in enumerate(names)}
    met = [person.label_names[label] for label in np.unique(person.labels)]
    unknown = [label for label in met if label.lower() not in places]
    if unknown:
        raise DataMalformed(f"the task knows no label {unknown[0]!r}, only {', '.join(map(str, names))}")
    order = np.array([places.get(label.lower(), 0) for label in person.label_names], dtype=np.int64)
    return Person(person.name, person.windows, order[person.labels], tuple(map(str, names)))


class Lesson:
    """A person's data and the task's learner, loaded when first needed: torch alone takes seconds."""

    def __init__(self, data: str, training: Mapping[str, Any]) -> None:
        self._data, self._training = data, training

    def prepare(self) -> None:
        """Load both now, or say what is missing."""
        _ = self.split, self.learner

    @cached_property
    def split(self) -> Split:
        """The person's windows, which go nowhere else."""
        found, names = load_person(self._data), self._training["labels"]
        return Split(in_labels_of(found.train, names), in_labels_of(found.held_out, names))

    @cached_property
    def learner(self) -> Learner:
        """As the task asks."""
        return make_learner(self._training)

    def train(self, arrays: Arrays, settings: Mapping[str, Any], number: int) -> tuple[Arrays, int]:
        """Train on the person's windows."""
        mine, learner = self.split.train, self.learner
        learner.load(arrays)
        inputs = features(str(settings["features"]), mine.windows)
        used = learner.train(inputs, mine.labels, training_of(settings).at(number, mine.name))
        return learner.weights(), used

    def evaluate(self, arrays: Arrays) -> Mapping[str, float]:
        """How a model does on the person's held-out windows."""
        held_out, learner = self.split.held_out, self.learner
        learner.load(arrays)
        metrics = learner.evaluate(features(str(self._training["features"]), held_out.windows), held_out.labels)
        return {"accuracy": metrics.accuracy, "loss": metrics.loss, "windows": float(metrics.samples)}
