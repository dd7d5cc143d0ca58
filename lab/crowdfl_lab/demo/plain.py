"""FedAvg in the clear, on a finished campaign's data and with the same people in each round."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.learning.models.learner import Learner
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.training import LocalTrainer
from crowdfl_lab.demo.heard import Heard, uploads

Row = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Plain:
    """The average of each round (0: the model that it starts from)."""

    averages: Mapping[int, Weights] = field(default_factory=dict)
    trainers: Mapping[int, LocalTrainer] = field(default_factory=dict)  # of each person who was ever in
    people: Mapping[int, Sequence[int]] = field(default_factory=dict)  # whose uploads each round has
    training: Mapping[str, Any] = field(default_factory=dict)
    alike: bool = False  # whether everyone counts the same in an average, or as often as they have samples

    def measure(self, model: Weights) -> float:
        """The accuracy over everyone's held-out windows."""
        return weighted([trainer.evaluate(model) for trainer in self.trainers.values()])

    def count(self, samples: int) -> int:
        """How often somebody with so many samples counts."""
        return 1 if self.alike else samples

    def trained(self, model: Weights, number: int) -> dict[int, tuple[Row, int]]:
        """Everyone's model of this round and their samples, if they start from `model`."""
        found = {}
        for person in self.people[number]:
            arrays, samples = self.trainers[person].train(model, self.training, number)
            found[person] = self._learner.shape.flat(arrays), samples
        return found

    def round_from(self, model: Weights, number: int) -> Weights:
        """The average of this round if everyone starts from `model`."""
        models, samples = zip(*self.trained(model, number).values(), strict=True)
        return self._learner.shape.arrays(fedavg(models, [self.count(own) for own in samples]))

    @property
    def _learner(self) -> Learner:
        return next(iter(self.trainers.values())).learner


def plain_fedavg(task_file: Path, heard: Heard, data: Callable[[int], str]) -> Plain:
    """Every round from the one before it. `data` names a person's."""
    task, rounds = tomllib.loads(task_file.read_text()), uploads(heard)
    training, alike = task["training"], task.get("shares", {}).get("weighting") == "equal"
    everyone = sorted({person for people in rounds.values() for person in people})
    trainers = {person: LocalTrainer(data(person), training) for person in everyone}
    if not trainers:
        return Plain()
    averages = {0: next(iter(trainers.values())).learner.weights()}
    plain = Plain(averages, trainers, rounds, training, alike)
    for number in rounds:
        averages[number] = plain.round_from(averages[max(averages)], number)
    return plain


def weighted(rows: Sequence[Mapping[str, float]]) -> float:
    """Accuracy over the windows of all."""
    return float(np.average([row["accuracy"] for row in rows], weights=[row["windows"] for row in rows]))


def row_of(arrays: Weights) -> Row:
    return np.concatenate([np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays])
