"""What an encrypted campaign is compared with: FedAvg in the clear, on the same data, with the same people in each round."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.training import LocalTrainer

__all__ = ["Heard", "Plain", "plain_fedavg", "uploads_of", "weighted"]

Heard = Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Plain:
    """The average of each round, and how it does on the held-out windows of each person who was ever in."""

    averages: Mapping[int, Weights]
    accuracy: Mapping[int, Mapping[int, tuple[float, float]]]  # by round and person: accuracy, windows
    trainers: Mapping[int, LocalTrainer]

    def over(self, number: int, people: Sequence[int]) -> float:
        """Accuracy over the held-out windows of these people."""
        return weighted([self.accuracy[number][person] for person in people])

    def measure(self, model: Weights) -> float:
        """Another model, on the held-out windows of everyone."""
        return weighted([_measured(trainer, model) for trainer in self.trainers.values()])


def uploads_of(heard: Heard) -> dict[int, list[int]]:
    """Who was in which round, as the receipts say."""
    who: dict[int, list[int]] = {}
    for name, details in heard:
        if details["event"] == "uploaded":
            who.setdefault(details["round"], []).append(int(name.split()[1]))
    return {number: sorted(people) for number, people in sorted(who.items())}


def plain_fedavg(task_file: Path, heard: Heard) -> Plain:
    """Train once more, in the clear, with the same people in each round."""
    training, rounds = tomllib.loads(task_file.read_text())["training"], uploads_of(heard)
    trainers = {person: LocalTrainer(f"watch:{person}", training) for people in rounds.values() for person in people}
    averages: dict[int, Weights] = {}
    accuracy = {}
    model: Weights | None = None
    for number, people in rounds.items():
        shape = trainers[people[0]].learner.shape
        start = model if model is not None else trainers[people[0]].learner.weights()
        trained = [trainers[person].train(start, training, number) for person in people]
        average = fedavg([shape.flat(arrays) for arrays, _ in trained], [samples for _, samples in trained])
        model = averages[number] = shape.arrays(average)
        accuracy[number] = {person: _measured(trainer, model) for person, trainer in trainers.items()}
    return Plain(averages, accuracy, trainers)


def weighted(rows: Sequence[tuple[float, float]]) -> float:
    """The mean of the first, weighted by the second."""
    values = np.array(rows)
    return float(np.average(values[:, 0], weights=values[:, 1]))


def _measured(trainer: LocalTrainer, model: Weights) -> tuple[float, float]:
    row = trainer.evaluate(model)
    return row["accuracy"], row["windows"]
