"""FedAvg in the clear, on the same data and with the same people in each round: what a demo campaign is compared with."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.training import LocalTrainer

Heard = Sequence[tuple[str, Mapping[str, Any]]]  # who said what
Scores = Mapping[int, Mapping[str, float]]  # by person: accuracy, loss, windows


@dataclass(frozen=True)
class Plain:
    """The average of each round (0: the model that it starts from), and how it does on the held-out windows of each person
    who was ever in."""

    averages: Mapping[int, Weights] = field(default_factory=dict)
    accuracy: Mapping[int, Scores] = field(default_factory=dict)
    trainers: Mapping[int, LocalTrainer] = field(default_factory=dict)
    people: Mapping[int, Sequence[int]] = field(default_factory=dict)  # whose uploads each round has
    training: Mapping[str, Any] = field(default_factory=dict)

    def over(self, number: int, people: Sequence[int] | None = None) -> float:
        """The accuracy after a round, over all windows of these people, or of everyone."""
        return weighted(
            [self.accuracy[number][person] for person in self.trainers if people is None or person in people]
        )

    def measure(self, model: Weights) -> float:
        return weighted([trainer.evaluate(model) for trainer in self.trainers.values()])

    def round_from(self, model: Weights, number: int) -> Weights:
        """The average of this round if everyone starts from `model`."""
        learner = next(iter(self.trainers.values())).learner
        trained = [self.trainers[person].train(model, self.training, number) for person in self.people[number]]
        average = fedavg([learner.shape.flat(arrays) for arrays, _ in trained], [samples for _, samples in trained])
        return learner.shape.arrays(average)


def plain_fedavg(task_file: Path, heard: Heard) -> Plain:
    """Every round from the one before it."""
    training, rounds = tomllib.loads(task_file.read_text())["training"], uploads(heard)
    everyone = sorted({person for people in rounds.values() for person in people})
    trainers = {person: LocalTrainer(f"watch:{person}", training) for person in everyone}
    if not trainers:
        return Plain()
    averages = {0: next(iter(trainers.values())).learner.weights()}
    plain = Plain(averages, {}, trainers, rounds, training)
    for number in rounds:
        averages[number] = plain.round_from(averages[max(averages)], number)
    scores = {number: _scores(trainers, model) for number, model in averages.items()}
    return Plain(averages, scores, trainers, rounds, training)


def _scores(trainers: Mapping[int, LocalTrainer], model: Weights) -> Scores:
    return {person: trainer.evaluate(model) for person, trainer in trainers.items()}


def uploads(heard: Heard) -> dict[int, list[int]]:
    """Who sent one, by round."""
    who: dict[int, list[int]] = {}
    for name, details in heard:
        if details["event"] == "uploaded":
            who.setdefault(details["round"], []).append(person_of(name))
    return {number: sorted(people) for number, people in sorted(who.items())}


def person_of(name: str) -> int:
    """3, of "person 3"."""
    return int(name.split()[1])


def weighted(rows: Sequence[Mapping[str, float]]) -> float:
    """Accuracy over the windows of all."""
    return float(np.average([row["accuracy"] for row in rows], weights=[row["windows"] for row in rows]))


def apart(one: Weights, other: Weights) -> float:
    """The largest difference of any weight."""
    return max(float(np.abs(np.asarray(a, np.float64) - b).max()) for a, b in zip(one, other, strict=True))
