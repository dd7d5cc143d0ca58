"""FedAvg in the clear, on the same data and with the same people in each round: what a demo campaign is compared with.

A finished demo campaign, as its processes told it and as their files show it.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.documents.signed import Definition
from crowdfl.learning.models.forms import from_safetensors, read_arrays
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.oracle import fedavg
from crowdfl.learning.training import LocalTrainer
from crowdfl.storage.model_files import read_model
from crowdfl_lab.demo.servers import KeySight, Row, Sight, look_at

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


ROUNDS = 3


@dataclass
class FinishedCampaign:
    """A finished campaign, as its processes told it and as their files show it."""

    folder: Path
    task: str
    heard: Heard
    report: dict[str, Any]
    plain: Plain = field(repr=False)
    keys: KeySight = field(repr=False)
    profile: str
    seconds: float = 0.0
    _apart: dict[int, tuple[float | None, float | None]] = field(default_factory=dict, init=False, repr=False)

    def said(self, event: str) -> Heard:
        return [(name, details) for name, details in self.heard if details.get("event") == event]

    @cached_property
    def rewards(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for name, details in self.said("rewarded"):
            found.setdefault(name, {})[details["round"]] = details["millionths"]
        return dict(sorted(found.items()))

    @cached_property
    def names(self) -> dict[str, str]:
        """Who is who: a participant's pseudonym, and what we call the person."""
        return {details["who"]: name for name, details in self.said("joined")}

    @cached_property
    def definition(self) -> Definition | None:
        return read_model(self._model)[0] if self._model.exists() else None

    @property
    def _model(self) -> Path:
        return self.folder / "model.npz"

    @cached_property
    def initial(self) -> Weights:
        """What everyone starts from; it is public."""
        path = self.folder / "roles" / "sp" / "blobs" / self.task / "initial"
        if self.definition is None:  # no model was fetched, and nothing is computed from this one
            return list(read_arrays(path.read_bytes(), ".safetensors").values())
        return from_safetensors(self.definition.shape, path.read_bytes())

    @cached_property
    def averages(self) -> dict[int, Weights]:
        """What readers hold of each round: a participant's copy, and the requester's of the last."""
        if self.definition is None:
            return {}
        found = {ROUNDS: read_model(self._model)[1]}
        for number in range(1, ROUNDS):
            for path in sorted(self.folder.glob(f"person-*/rounds/{number}/average"))[:1]:
                found[number] = from_safetensors(self.definition.shape, path.read_bytes())
        return dict(sorted(found.items()))

    @cached_property
    def models(self) -> dict[int, Weights]:
        """With the initial one, as round 0."""
        return {0: self.initial} | self.averages

    def apart(self, number: int) -> tuple[float | None, float | None]:
        """The largest difference of any weight, and what is left of it if FedAvg starts from CrowdFL's last model."""
        if number not in self._apart:
            self._apart[number] = self._measured_apart(number)
        return self._apart[number]

    def _measured_apart(self, number: int) -> tuple[float | None, float | None]:
        models, plain = self.models, self.plain
        if number not in models or number not in plain.averages:
            return None, None
        whole = apart(models[number], plain.averages[number])
        if number < 2 or number - 1 not in models:
            return whole, whole if number == 1 else None
        return whole, apart(models[number], plain.round_from(models[number - 1], number))

    @cached_property
    def sights(self) -> list[Sight]:
        averages = [row_of(model) for model in self.averages.values()]
        return look_at(self.folder / "roles", self.task, self.keys, averages, row_of(self.initial))


def row_of(arrays: Weights) -> Row:
    return np.concatenate([np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays])
