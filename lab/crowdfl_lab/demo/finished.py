"""A finished demo campaign, as its processes told it and as their files show it; and FedAvg in the clear, on the same data and
with the same people in each round, which it is compared with."""

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

ROUNDS = 3
Heard = Sequence[tuple[str, Mapping[str, Any]]]  # who said what


@dataclass(frozen=True)
class Plain:
    """The average of each round (0: the model that it starts from)."""

    averages: Mapping[int, Weights] = field(default_factory=dict)
    trainers: Mapping[int, LocalTrainer] = field(default_factory=dict)  # of each person who was ever in
    people: Mapping[int, Sequence[int]] = field(default_factory=dict)  # whose uploads each round has
    training: Mapping[str, Any] = field(default_factory=dict)

    def measure(self, model: Weights) -> float:
        """The accuracy over everyone's held-out windows."""
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
    plain = Plain(averages, trainers, rounds, training)
    for number in rounds:
        averages[number] = plain.round_from(averages[max(averages)], number)
    return plain


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


def row_of(arrays: Weights) -> Row:
    return np.concatenate([np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays])


@dataclass
class FinishedCampaign:
    """A finished campaign."""

    folder: Path
    task: str
    heard: Heard
    report: dict[str, Any]
    plain: Plain = field(repr=False)
    keys: KeySight = field(repr=False)
    profile: str
    seconds: float = 0.0

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
    def models(self) -> dict[int, Weights]:
        """What readers hold of each round: a participant's copy, and the requester's of the last. 0 is what everyone starts
        from; it is public."""
        initial = (self.folder / "roles/sp/blobs" / self.task / "initial").read_bytes()
        if self.definition is None:  # no model was fetched, and nothing is computed from the first one
            return {0: list(read_arrays(initial, ".safetensors").values())}
        found = {0: from_safetensors(self.definition.shape, initial), ROUNDS: read_model(self._model)[1]}
        for number in range(1, ROUNDS):
            for path in sorted(self.folder.glob(f"person-*/rounds/{number}/average"))[:1]:
                found[number] = from_safetensors(self.definition.shape, path.read_bytes())
        return dict(sorted(found.items()))

    @property
    def averages(self) -> list[Row]:
        """Of all rounds, each in a row."""
        return [row_of(model) for number, model in self.models.items() if number]

    @cached_property
    def apart(self) -> dict[int, float]:
        """By round, the largest difference of any weight to FedAvg from the same model: what this round alone made."""
        before = [number for number in self.plain.people if {number, number - 1} <= self.models.keys()]
        clear = {number: self.plain.round_from(self.models[number - 1], number) for number in before}
        return {number: float(np.abs(row_of(self.models[number]) - row_of(clear[number])).max()) for number in clear}

    @cached_property
    def sights(self) -> list[Sight]:
        return look_at(self.folder / "roles", self.task, self.keys, self.averages, row_of(self.models[0]))
