"""Who takes part: the 36 people of the paper's data set, their windows by real user or dealt at random, and who drops out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crowdfl.errors import DataMissing, SettingsError
from crowdfl.lab.experiments.experiment import Bench, Record
from crowdfl.lab.experiments.people import dealt_at_random, merged
from crowdfl.learning.datasets.data import Cut, Labels, Person, Source, Split
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.synthetic import Synthetic
from crowdfl.learning.features import Inputs, flat
from crowdfl.learning.metrics import Scores, scores
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.networks import mlp
from crowdfl.learning.models.torch_learner import TorchLearner

__all__ = ["SPLITS", "Attendance", "Crowd", "LearnSettings", "Strategy", "load_crowd"]

SPLITS = ("user", "random")
Strategy = Literal["discard", "retransmit"]
_SECONDS = Cut(length=8, step=8, held_out=0.3, gap=8, hertz=8.0)  # of made-up people, for tests
_WISDM = "wisdm_v1.1_crowdfl_2520x90x3.npz"


@dataclass(frozen=True)
class LearnSettings:
    """The paper's settings of a run: section 8, "Configuration"."""

    hidden: int = 1000
    epochs: int = 30
    batch: int = 50
    rate: float = 0.001
    rounds: int = 5
    people: int = 36
    source: str = "wisdm"
    split: str = "user"
    seed: int = 0

    def facts(self) -> Record:
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class Crowd:
    """The people of a run, the windows that all of them are tested on, and a learner at its first weights."""

    settings: LearnSettings
    splits: Sequence[Split]
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [split.train.name for split in self.splits]

    def data(self, who: str) -> tuple[Inputs, Labels]:
        """What a person trains on: the samples of a window in a row."""
        person = next(split.train for split in self.splits if split.train.name == who)
        return flat(person.windows), person.labels

    def everyone(self) -> Person:
        """All training windows, as if they had been handed in."""
        return merged("everyone", [split.train for split in self.splits])

    def learner(self) -> TorchLearner:
        person = self.splits[0].train
        inputs = person.windows.shape[1] * person.windows.shape[2]
        return TorchLearner(inputs, mlp([self.settings.hidden], len(person.label_names)), seed=self.settings.seed)

    def training(self) -> Training:
        s = self.settings
        return Training(epochs=s.epochs, batch=s.batch, rate=s.rate, seed=s.seed)

    def score(self, learner: TorchLearner) -> Scores:
        """On everyone's held-out windows together."""
        held_out = merged("held out", [split.held_out for split in self.splits])
        predicted = learner.predict(flat(held_out.windows)).argmax(axis=1)
        return scores(held_out.labels, predicted, len(held_out.label_names))


def load_crowd(settings: LearnSettings, bench: Bench) -> Crowd:
    """From the paper's data set, or made-up people for tests."""
    source = _source(settings, bench)
    if len(source.people) < settings.people:
        raise SettingsError(f"{settings.people} people are asked for, the data set has {len(source.people)}")
    splits = [source.load_person(i) for i in range(settings.people)]
    if settings.split == "random":
        splits = dealt_at_random(splits, settings.seed)
    return Crowd(settings, splits, tuple(source.notes))


def _source(settings: LearnSettings, bench: Bench) -> Source:
    if settings.source == "synthetic":
        return Synthetic(settings.people, seed=settings.seed, cut=_SECONDS)
    if bench.data is None or not (bench.data / _WISDM).exists():
        raise DataMissing(f"{_WISDM} was not found in {bench.data}: name its folder with --data")
    return WindowFile(bench.data / _WISDM)


@dataclass(frozen=True)
class Attendance:
    """Who drops out of a round, drawn anew in each; with `retransmit`, half of them come back in time.

    The same rate and seed drop the same people under both strategies.
    """

    names: Sequence[str]
    rate: float = 0.0
    strategy: Strategy = "discard"
    seed: int = 0

    def dropped(self, round_number: int) -> list[str]:
        """In the order in which they were drawn."""
        generator = np.random.default_rng([self.seed, round_number])
        drawn = generator.choice(len(self.names), round(self.rate * len(self.names)), replace=False)
        return [self.names[i] for i in drawn]

    def late(self, round_number: int) -> list[str]:
        """Those who come back: every other one of the dropped."""
        return self.dropped(round_number)[::2] if self.strategy == "retransmit" else []

    def lost(self, round_number: int) -> list[str]:
        """Those whose model is not in the average."""
        back = set(self.late(round_number))
        return [who for who in self.dropped(round_number) if who not in back]
