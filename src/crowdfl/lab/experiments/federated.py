"""Federated training round by round, in the clear and through a real `hardened` run, by the same loop."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Progress
from crowdfl.lab.experiments.crowd import Attendance, Crowd, LearnSettings, Strategy, load_crowd
from crowdfl.lab.experiments.points import Bench, Point, Row, Rows
from crowdfl.learning.features import flat
from crowdfl.learning.fedavg import fedavg
from crowdfl.learning.metrics import Scores
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.parties import LocalDealer
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import TaskSettings

__all__ = ["Aggregator", "Clear", "Encrypted", "Flat", "Keys", "Trained", "baseline_point", "federated", "run_point"]

Flat = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trained:
    """A participant's model after training, in one row, and on how many samples."""

    weights: Flat
    samples: int


class Aggregator(Protocol):
    """Averages a round's models. `lost_train`: whether those whose models will be lost have to train at all."""

    lost_train: bool

    def average(self, number: int, updates: Mapping[str, Trained], attendance: Attendance, *, final: bool) -> Flat:
        """Of everyone who is not lost."""


class Clear:
    """FedAvg in the clear, which needs no model that does not arrive."""

    lost_train = False

    def average(self, number: int, updates: Mapping[str, Trained], attendance: Attendance, *, final: bool) -> Flat:
        """Eq. 2, over those who are not lost."""
        lost = set(attendance.lost(number))
        present = [update for who, update in updates.items() if who not in lost]
        return fedavg([update.weights for update in present], [update.samples for update in present])


@dataclass(frozen=True)
class Keys:
    """Of an encrypted run: key size, digits, and lanes for rewards (0: none)."""

    key_bits: int = 2048
    insecure_test_key: bool = False
    decimals: int = 6
    lanes: int = 0


class Encrypted:
    """A `hardened` task with every party in this process: everyone encrypts; what the network loses or delays, SP does not see
    in time; participants read the average of each round, and the requester reads the last."""

    lost_train = True

    def __init__(
        self,
        crowd: Crowd,
        keys: Keys,
        bench: Bench,
        network: Callable[[int, str, bytes], bytes] = lambda number, who, upload: upload,
    ) -> None:
        settings = crowd.settings
        samples = max(len(split.train) for split in crowd.splits)
        self.task = TaskSettings(
            max_participants=settings.people,
            max_samples=samples,
            rounds=settings.rounds,
            key_bits=keys.key_bits,
            lanes=keys.lanes,
            decimals=keys.decimals,
        )
        self.parameters = crowd.learner().shape.parameters
        tools = Tools(bench.backend, Progress(bench.progress), keys.insecure_test_key)
        self.dealer = LocalDealer(TaskSpec("experiment", self.task, self.parameters), tools)
        self.sp, self.csp = self.dealer.sp(), self.dealer.csp()
        self.requester = self.dealer.requester()
        self.people = {who: self.dealer.participant(who) for who in crowd.names}
        self._network = network

    def average(self, number: int, updates: Mapping[str, Trained], attendance: Attendance, *, final: bool) -> Flat:
        """Upload, average, publish, read."""
        self.collect(number, updates, attendance)
        run_exchange(self.sp.publish(final=final), ask_directly(self.csp.answer))
        publication = self.sp.publication()
        reader = self.requester if final else next(iter(self.people.values()))
        return reader.read(publication, number).weights

    def collect(self, number: int, updates: Mapping[str, Trained], attendance: Attendance) -> dict[str, bytes]:
        """Everyone's upload on its way: most arrive, some are sent again later, some never arrive. Those that did."""
        uploads = {
            who: self.people[who].encrypt_update(update.weights, update.samples) for who, update in updates.items()
        }
        dropped, late = set(attendance.dropped(number)), attendance.late(number)
        self.sp.open_round(number)
        arrived = [who for who in uploads if who not in dropped] + [who for who in late if who in uploads]
        found = {who: self._network(number, who, uploads[who]) for who in arrived}
        for who, upload in found.items():
            self.sp.add(who, upload)
        return found


def federated(crowd: Crowd, aggregator: Aggregator, attendance: Attendance) -> Iterator[Scores]:
    """In each round everyone trains from the last average; the scores of each round's average."""
    learner, training = crowd.learner(), crowd.training()
    shape, weights = learner.shape, learner.weights()
    for number in range(1, crowd.settings.rounds + 1):
        updates = {}
        idle = set() if aggregator.lost_train else set(attendance.lost(number))
        for who in (name for name in crowd.names if name not in idle):
            learner.load(weights)
            used = learner.train(*crowd.data(who), training.at(number, who))
            updates[who] = Trained(shape.flat(learner.weights()), used)
        final = number == crowd.settings.rounds
        weights = shape.arrays(aggregator.average(number, updates, attendance, final=final))
        learner.load(weights)
        yield crowd.score(learner)


def run_point(
    settings: LearnSettings, *, keys: Keys | None = None, rate: float = 0.0, strategy: Strategy = "discard"
) -> Point:
    """A whole federated run: in the clear, or with `keys` encrypted."""
    facts: Row = settings.facts() | {"rate": rate, "strategy": strategy if rate else "discard"}
    if keys is not None:
        facts |= dict(vars(keys))

    def measure(bench: Bench) -> Rows:
        crowd = load_crowd(settings, bench)
        attendance = Attendance(crowd.names, rate, strategy, settings.seed)
        aggregator = Clear() if keys is None else Encrypted(crowd, keys, bench)
        return [
            facts | {"round": number} | dict(vars(found))
            for number, found in enumerate(federated(crowd, aggregator, attendance), start=1)
        ]

    return Point("federated run" if keys is None else "encrypted run", facts, measure)


def baseline_point(settings: LearnSettings) -> Point:
    """NN: the same network on everyone's windows together."""
    facts = settings.facts()

    def measure(bench: Bench) -> Rows:
        crowd = load_crowd(settings, bench)
        learner, everyone = crowd.learner(), crowd.everyone()
        learner.train(flat(everyone.windows), everyone.labels, crowd.training())
        return [facts | dict(vars(crowd.score(learner)))]

    return Point("central run", facts, measure)
