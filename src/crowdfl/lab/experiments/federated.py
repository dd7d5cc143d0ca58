"""Federated training round by round, in the clear and through a real `hardened` run, by the same loop.

Who takes part: the 36 people of the paper's data set, their windows by real user or dealt at random; and who drops out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Progress
from crowdfl.errors import DataMalformed, DataMissing, SettingsError
from crowdfl.lab.experiments.experiment import Bench, ExperimentPoint
from crowdfl.lab.experiments.records import Record, Records
from crowdfl.lab.parties import LocalParties
from crowdfl.learning.datasets.data import Cut, Person, Source, Split
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.synthetic import Synthetic
from crowdfl.learning.features import flat
from crowdfl.learning.metrics import Scores, scores
from crowdfl.learning.models.learner import Training
from crowdfl.learning.models.networks import mlp
from crowdfl.learning.models.torch_learner import TorchLearner
from crowdfl.learning.oracle import fedavg
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.round import AggregationRound
from crowdfl.settings import TaskSettings

SPLITS = ("user", "random")
Strategy = Literal["discard", "retransmit"]
Flat = npt.NDArray[np.float64]
Updates = Mapping[str, tuple[Flat, int]]  # each participant's trained weights in one row, and on how many samples
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


@dataclass(frozen=True, eq=False)
class Crowd:
    """The people of a run, the windows that all of them are tested on, and a learner at its first weights."""

    settings: LearnSettings
    splits: Sequence[Split]

    @property
    def names(self) -> list[str]:
        return [split.train.name for split in self.splits]

    def everyone(self) -> Person:
        return merged("everyone", [split.train for split in self.splits])

    def learner(self) -> TorchLearner:
        person = self.splits[0].train
        inputs = person.windows.shape[1] * person.windows.shape[2]
        return TorchLearner(inputs, mlp([self.settings.hidden], len(person.label_names)), seed=self.settings.seed)

    def training(self) -> Training:
        s = self.settings
        return Training(epochs=s.epochs, batch=s.batch, rate=s.rate, seed=s.seed)

    def score(self, learner: TorchLearner) -> Scores:
        held_out = merged("held out", [split.held_out for split in self.splits])
        predicted = learner.predict(flat(held_out.windows)).argmax(axis=1)
        return scores(held_out.labels, predicted, len(held_out.label_names))


def merged(name: str, people: Sequence[Person]) -> Person:
    """Everyone's windows as one person's, as if they had been collected."""
    if not people or any(person.label_names != people[0].label_names for person in people):
        raise DataMalformed(f"{name}: merging needs at least one person, and the same label names for all")
    windows = np.concatenate([person.windows for person in people])
    return Person(name, windows, np.concatenate([person.labels for person in people]), people[0].label_names)


def dealt_at_random(people: Sequence[Split], seed: int) -> list[Split]:
    """As many people as before, the windows dealt at random; what was held out stays held out.

    Everyone gets as many as the person in their place had. The paper does not say whose windows are whose.
    """
    order = np.random.default_rng(seed)
    train = _deal([split.train for split in people], order)
    held_out = _deal([split.held_out for split in people], order)
    return [Split(*sides) for sides in zip(train, held_out, strict=True)]


def _deal(people: Sequence[Person], order: np.random.Generator) -> list[Person]:
    everyone = merged("everyone", people)
    ends = np.cumsum([len(person) for person in people])[:-1]
    hands = enumerate(np.split(order.permutation(len(everyone)), ends), start=1)
    windows, labels, names = everyone.windows, everyone.labels, everyone.label_names
    return [Person(f"dealt-{n:02}", windows[hand], labels[hand], names) for n, hand in hands]


def load_crowd(settings: LearnSettings, bench: Bench) -> Crowd:
    source = _source(settings, bench)
    if len(source.people) < settings.people:
        raise SettingsError(f"{settings.people} people are asked for, the data set has {len(source.people)}")
    splits = [source.load_person(i) for i in range(settings.people)]
    if settings.split == "random":
        splits = dealt_at_random(splits, settings.seed)
    return Crowd(settings, splits)


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
        generator = np.random.default_rng([self.seed, round_number])
        drawn = generator.choice(len(self.names), round(self.rate * len(self.names)), replace=False)
        return [self.names[i] for i in drawn]

    def late(self, round_number: int) -> list[str]:
        return self.dropped(round_number)[::2] if self.strategy == "retransmit" else []

    def lost(self, round_number: int) -> list[str]:
        dropped = self.dropped(round_number)
        return dropped[1::2] if self.strategy == "retransmit" else dropped


class Clear:
    """FedAvg in the clear (Eq. 2), which needs no model that does not arrive."""

    lost_train = False  # whether those whose models will be lost train at all

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        lost = set(attendance.lost(number))
        present = [update for who, update in updates.items() if who not in lost]
        return fedavg([weights for weights, _ in present], [samples for _, samples in present])


@dataclass(frozen=True)
class Keys:
    """Of an encrypted run: key size, digits, and lanes for rewards (0: none)."""

    key_bits: int = 2048
    insecure_test_key: bool = False
    decimals: int = 6
    lanes: int = 0

    def __str__(self) -> str:
        return "an insecure test key" if self.insecure_test_key else f"|N| = {self.key_bits}"


class Encrypted:
    """A `hardened` task with every party in this process: everyone encrypts; what the network loses or delays, SP does not see
    in time; participants read the average of each round, and the requester reads the last."""

    lost_train = True

    def __init__(self, crowd: Crowd, keys: Keys, bench: Bench) -> None:
        self.task = TaskSettings(
            max_participants=crowd.settings.people,
            max_samples=max(len(split.train) for split in crowd.splits),
            rounds=crowd.settings.rounds,
            key_bits=keys.key_bits,
            lanes=keys.lanes,
            decimals=keys.decimals,
        )
        spec = TaskSpec("experiment", self.task, crowd.learner().shape.parameters)
        tools = Tools(bench.backend, Progress(bench.progress), keys.insecure_test_key, observer=Silent())
        self.parties = LocalParties(spec, tools)

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        round_, _ = self.collect(number, updates, attendance)
        return self.parties.read(round_.average(final=final), number, list(updates)[:1], final=final).weights

    def collect(self, number: int, updates: Updates, attendance: Attendance) -> tuple[AggregationRound, list[str]]:
        """Everyone's upload on its way: most arrive, some are sent again later, some never arrive. Whose did, in order."""
        uploads = self.parties.encrypt(updates, number)
        dropped, late = set(attendance.dropped(number)), attendance.late(number)
        arrived = [who for who in uploads if who not in dropped] + [who for who in late if who in uploads]
        round_ = self.parties.open(number)
        for who in arrived:
            round_.collect({who: uploads[who]})
        return round_, arrived


def federated(crowd: Crowd, aggregator: Clear | Encrypted, attendance: Attendance) -> Iterator[Scores]:
    """In each round everyone trains from the last average; the scores of each round's average."""
    learner, training = crowd.learner(), crowd.training()
    shape, model = learner.shape, learner.weights()
    for number in range(1, crowd.settings.rounds + 1):
        updates = {}
        idle = set() if aggregator.lost_train else set(attendance.lost(number))
        for person in (split.train for split in crowd.splits if split.train.name not in idle):
            learner.load(model)
            used = learner.train(flat(person.windows), person.labels, training.at(number, person.name))
            updates[person.name] = shape.flat(learner.weights()), used
        final = number == crowd.settings.rounds
        model = shape.arrays(aggregator.average(number, updates, attendance, final=final))
        learner.load(model)
        yield crowd.score(learner)


def run_point(
    settings: LearnSettings, *, keys: Keys | None = None, rate: float = 0.0, strategy: Strategy = "discard"
) -> ExperimentPoint:
    facts: Record = dict(vars(settings)) | {"rate": rate, "strategy": strategy if rate else "discard"}
    if keys is not None:
        facts |= dict(vars(keys))

    def measure(bench: Bench) -> Records:
        crowd = load_crowd(settings, bench)
        attendance = Attendance(crowd.names, rate, strategy, settings.seed)
        aggregator = Clear() if keys is None else Encrypted(crowd, keys, bench)
        return [
            facts | {"round": number} | dict(vars(found))
            for number, found in enumerate(federated(crowd, aggregator, attendance), start=1)
        ]

    return ExperimentPoint("federated run" if keys is None else "encrypted run", facts, measure)


def baseline_point(settings: LearnSettings) -> ExperimentPoint:
    facts = dict(vars(settings))

    def measure(bench: Bench) -> Records:
        crowd = load_crowd(settings, bench)
        learner, everyone = crowd.learner(), crowd.everyone()
        learner.train(flat(everyone.windows), everyone.labels, crowd.training())
        return [facts | dict(vars(crowd.score(learner)))]

    return ExperimentPoint("central run", facts, measure)
