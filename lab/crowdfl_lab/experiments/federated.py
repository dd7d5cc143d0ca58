"""Federated training round by round, in the clear and through a real run of any profile, by one loop; and who drops out.

Also the settings of an experiment that trains: which profiles its encrypted runs go through, and what `crowdfl reproduce` may
change of it. Each experiment lists the options that it uses, by name; another one is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Progress
from crowdfl.learning.evaluation import Scores
from crowdfl.learning.oracle import PlainStep, fedavg
from crowdfl.protocols.exchange import Silent
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.round import AggregationRound
from crowdfl.settings import TaskSettings
from crowdfl_lab.experiments.crowds import LearningCrowd, LearnSettings, load_crowd
from crowdfl_lab.experiments.experiment import Bench, ExperimentPoint, Record, Records
from crowdfl_lab.parties import LocalParties

Strategy = Literal["discard", "retransmit"]
Flat = npt.NDArray[np.float64]
Updates = Mapping[str, tuple[Flat, int]]  # each participant's trained weights in one row, and on how many samples
PROFILES = ("paper", "hardened", "shares")
_CHECKS = 1024  # lanes of `shares` where nothing is paid: its checks of uploads need some


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
    steps = False  # whether its average has a server step applied already

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        lost = set(attendance.lost(number))
        present = [update for who, update in updates.items() if who not in lost]
        return fedavg([weights for weights, _ in present], [samples for _, samples in present])


@dataclass(frozen=True)
class Keys:
    """Of an encrypted run: profile, key size, digits, and lanes for rewards (0: none; "paper" has exact distances)."""

    key_bits: int = 2048
    insecure_test_key: bool = False
    decimals: int = 6
    lanes: int = 0
    profile: str = "hardened"

    def __str__(self) -> str:
        if self.profile == "shares":
            return "no key"
        return "an insecure test key" if self.insecure_test_key else f"|N| = {self.key_bits}"

    def task(self, crowd: LearningCrowd, budget: str | None = None) -> TaskSettings:
        """The task that such a run is; with a budget, one that pays by the paper's rule in every round."""
        settings: dict[str, Any] = {
            "profile": self.profile,
            "max_participants": crowd.settings.people,
            "max_samples": max(len(split.train) for split in crowd.splits),
            "rounds": crowd.settings.rounds,
            "key_bits": self.key_bits,
            "lanes": self.lanes,
            "decimals": self.decimals,
            **crowd.settings.step,
        }
        if self.profile == "shares":
            settings |= {"lanes": self.lanes or _CHECKS, "pay": "distance" if budget else "none", "budget": budget}
        return TaskSettings(**settings)


class Encrypted:
    """A task with every party in this process: everyone encrypts; what the network loses or delays, SP does not see in time;
    participants read the average of each round, and the requester reads the last."""

    lost_train, steps = True, True

    def __init__(self, crowd: LearningCrowd, keys: Keys, bench: Bench, budget: str | None = None) -> None:
        self.task = keys.task(crowd, budget)
        learner = crowd.learner()
        spec = TaskSpec("experiment", self.task, learner.shape.parameters)
        tools = Tools(bench.backend, Progress(bench.progress), keys.insecure_test_key, observer=Silent())
        self.parties = LocalParties(spec, tools, initial=learner.shape.flat(learner.weights()))

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        round_, _ = self.collect(number, updates, attendance)
        return self.read(round_, number, final=final)

    def read(self, round_: AggregationRound, number: int, *, final: bool) -> Flat:
        """What the requester reads of the last round, and participants of the others. In a chained profile everyone reads all
        rounds: an update is relative to the model that its sender holds."""
        publication, people = self.parties.publish(round_, final=final), list(self.parties.people)
        if not profile_named(self.task.profile).chained:
            return self.parties.read(publication, number, people[:1], final=final).model
        requesters = self.parties.read(publication, number, [], final=True)
        return (requesters if final else self.parties.read(publication, number, people)).model

    def collect(self, number: int, updates: Updates, attendance: Attendance) -> tuple[AggregationRound, list[str]]:
        """Everyone's upload on its way: most arrive, some are sent again later, some never arrive. Whose did, in order."""
        uploads = self.parties.encrypt(updates, number)
        dropped, late = set(attendance.dropped(number)), attendance.late(number)
        arrived = [who for who in uploads if who not in dropped] + [who for who in late if who in uploads]
        round_ = self.parties.open(number)
        for who in arrived:
            round_.collect({who: uploads[who]})
        return round_, arrived


def federated(crowd: LearningCrowd, aggregator: Clear | Encrypted, attendance: Attendance) -> Iterator[Scores]:
    """In each round everyone trains from the last average; the scores of each round's average."""
    learner, training = crowd.learner(), crowd.training()
    shape, model = learner.shape, learner.weights()
    step = PlainStep.of(TaskSettings(profile="shares", **crowd.settings.step))
    for number in range(1, crowd.settings.rounds + 1):
        updates = {}
        idle = set() if aggregator.lost_train else set(attendance.lost(number))
        for one in (one for one in crowd.fed if one.name not in idle):
            learner.load(model)
            used = learner.train(one.inputs, one.labels, training.at(number, one.name))
            updates[one.name] = shape.flat(learner.weights()), used
        final = number == crowd.settings.rounds
        average = aggregator.average(number, updates, attendance, final=final)
        model = shape.arrays(average if aggregator.steps else step.next_model(shape.flat(model), average))
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
        learner = crowd.learner()
        learner.train(*crowd.everyone(), crowd.training())
        return [facts | dict(vars(crowd.score(learner)))]

    return ExperimentPoint("central run", facts, measure)


@dataclass(frozen=True)
class ProfileRun:
    """The size of one profile's encrypted run: hidden units, and lanes where it pays (`paper` has exact distances)."""

    profile: str
    hidden: int
    lanes: int = 0


@dataclass(frozen=True)
class RunSettings:
    """Of an experiment that trains: how, and through which profiles besides in the clear."""

    learn: LearnSettings = field(default_factory=LearnSettings)
    runs: tuple[ProfileRun, ...] = ()
    profiles: tuple[str, ...] = ("hardened", "shares")
    keys: Keys = field(default_factory=Keys)

    @property
    def chosen(self) -> list[ProfileRun]:
        return [run for run in self.runs if run.profile in self.profiles]

    def keys_of(self, run: ProfileRun) -> Keys:
        return replace(self.keys, profile=run.profile, lanes=run.lanes)

    def with_learn(self, **changes: Any) -> Self:  # noqa: ANN401 -- as dataclasses.replace
        return replace(self, learn=replace(self.learn, **changes))

    def with_runs(self, **changes: Any) -> Self:  # noqa: ANN401
        return replace(self, runs=tuple(replace(run, **changes) for run in self.runs))


TRAINING: Mapping[str, Callable[[Any, Any], Any]] = {
    "rounds": lambda settings, rounds: settings.with_learn(rounds=rounds),
    "hidden": lambda settings, hidden: settings.with_learn(hidden=hidden).with_runs(hidden=hidden),
    "profile": lambda settings, profiles: replace(settings, profiles=profiles),
    "data": lambda settings, data: settings.with_learn(data=data.label, people=len(data.source.people)),
}
"""The options of every experiment that trains."""
