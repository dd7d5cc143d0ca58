"""Federated training round by round, in the clear and through a real `hardened` run, by the same loop; with rewards or without.

Of rewards also distances and weights are shown. No party may see them, and no message carries them. The experiment holds both
shares of the task's key, as KGC once did, and opens with them what SP computes on: `_WatchedSide` keeps those ciphertexts, in
this process alone.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.compute import Progress
from crowdfl.crypto.packing import Packing
from crowdfl.crypto.randomness import Coins
from crowdfl.crypto.vector import CipherVector
from crowdfl.lab.experiments.crowd import Attendance, Crowd, LearnSettings, Strategy, load_crowd
from crowdfl.lab.experiments.experiment import Bench, ExperimentPoint, Record, Records
from crowdfl.lab.experiments.published import BUDGET
from crowdfl.lab.parties import LocalParties
from crowdfl.learning.features import flat
from crowdfl.learning.metrics import Scores
from crowdfl.learning.oracle import distances, fedavg, rewards, weights
from crowdfl.protocols.exchange import Reply, Silent
from crowdfl.protocols.hardened.prirwd import RewardSp, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.party import Party
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.round import AggregationRound
from crowdfl.protocols.sdiv import SdivWidths
from crowdfl.settings import TaskSettings, from_millionths, to_millionths

__all__ = [
    "Aggregator",
    "Clear",
    "Encrypted",
    "Flat",
    "Keys",
    "PaidRounds",
    "PaidSettings",
    "Trained",
    "baseline_point",
    "federated",
    "paid_point",
    "run_point",
]

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
        self._network = network

    def average(self, number: int, updates: Mapping[str, Trained], attendance: Attendance, *, final: bool) -> Flat:
        round_, _ = self.collect(number, updates, attendance)
        return self.parties.read(round_.average(final=final), number, list(updates)[:1], final=final).weights

    def collect(
        self, number: int, updates: Mapping[str, Trained], attendance: Attendance
    ) -> tuple[AggregationRound, list[str]]:
        """Everyone's upload on its way: most arrive, some are sent again later, some never arrive. Whose did, in order."""
        uploads = self.parties.encrypt({who: (update.weights, update.samples) for who, update in updates.items()})
        dropped, late = set(attendance.dropped(number)), attendance.late(number)
        arrived = [who for who in uploads if who not in dropped] + [who for who in late if who in uploads]
        round_ = self.parties.open(number)
        for who in arrived:
            round_.collect({who: self._network(number, who, uploads[who])})
        return round_, arrived


def federated(crowd: Crowd, aggregator: Aggregator, attendance: Attendance) -> Iterator[Scores]:
    """In each round everyone trains from the last average; the scores of each round's average."""
    learner, training = crowd.learner(), crowd.training()
    shape, model = learner.shape, learner.weights()
    for number in range(1, crowd.settings.rounds + 1):
        updates = {}
        idle = set() if aggregator.lost_train else set(attendance.lost(number))
        for who in (name for name in crowd.names if name not in idle):
            learner.load(model)
            used = learner.train(*crowd.data(who), training.at(number, who))
            updates[who] = Trained(shape.flat(learner.weights()), used)
        final = number == crowd.settings.rounds
        model = shape.arrays(aggregator.average(number, updates, attendance, final=final))
        learner.load(model)
        yield crowd.score(learner)


def run_point(
    settings: LearnSettings, *, keys: Keys | None = None, rate: float = 0.0, strategy: Strategy = "discard"
) -> ExperimentPoint:
    """A whole federated run: in the clear, or with `keys` encrypted."""
    facts: Record = settings.facts() | {"rate": rate, "strategy": strategy if rate else "discard"}
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
    """NN: the same network on everyone's windows together."""
    facts = settings.facts()

    def measure(bench: Bench) -> Records:
        crowd = load_crowd(settings, bench)
        learner, everyone = crowd.learner(), crowd.everyone()
        learner.train(flat(everyone.windows), everyone.labels, crowd.training())
        return [facts | dict(vars(crowd.score(learner)))]

    return ExperimentPoint("central run", facts, measure)


@dataclass(frozen=True)
class PaidSettings:
    """One encrypted run with rewards in every round."""

    learn: LearnSettings = field(default_factory=lambda: LearnSettings(hidden=50))
    keys: Keys = field(default_factory=lambda: Keys(lanes=256))  # PriRwd takes most of the run, by the lane
    budget: str = BUDGET


class _WatchedSide(RewardSp):
    """PriRwd's SP, keeping the divisors and results of its divisions: first those of the weights, then of the rewards."""

    def __init__(self, party: Party, widths: RewardWidths, packing: Packing) -> None:
        super().__init__(party, widths, packing)
        self.divisions: list[tuple[CipherVector, CipherVector]] = []

    def divide(
        self, widths: SdivWidths, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        result = yield from super().divide(widths, x, y, coins)
        self.divisions.append((y, result))
        return result


class PaidRounds(Encrypted):
    """An encrypted run that pays a budget in every round, and notes what everyone's model was worth."""

    def __init__(self, settings: PaidSettings, bench: Bench) -> None:
        self.crowd = load_crowd(settings.learn, bench)
        super().__init__(self.crowd, settings.keys, bench)
        self._budget = settings.budget
        self.rows: Records = []
        cast(HardenedSp, self.parties.sp).reward_side = self._watched

    def _watched(self, party: Party, widths: RewardWidths, packing: Packing) -> RewardSp:
        self._side = _WatchedSide(party, widths, packing)
        return self._side

    def average(self, number: int, updates: Mapping[str, Trained], attendance: Attendance, *, final: bool) -> Flat:
        """As without rewards; then the rewards, from the very uploads that were averaged."""
        round_, _ = self.collect(number, updates, attendance)
        average = self.parties.read(round_.average(final=final), number, list(updates)[:1], final=final)
        earned = self.parties.open_rewards(round_.reward(to_millionths(self._budget)), number)
        self.rows += self._worth(number, earned, updates)
        return average.weights

    def _worth(self, number: int, earned: Mapping[str, int], updates: Mapping[str, Trained]) -> Records:
        ids = sorted(earned)
        samples = [updates[who].samples for who in ids]
        columns = self._opened(samples) | self._in_the_clear([updates[who].weights for who in ids], samples)
        columns["reward"] = [float(from_millionths(earned[who])) for who in ids]
        names = ("distance", "weight", "reward")
        order = (*names, *(f"{name} in the clear" for name in names))
        rows: Records = []
        for i, who in enumerate(ids):
            row: Record = {"round": number, "participant": who, "samples": samples[i]}
            rows.append(row | {name: columns[name][i] for name in order})
        return rows

    def _opened(self, samples: list[int]) -> dict[str, list[float]]:
        """As SP had them encrypted: y = Y^2 delta^2 (10^2L d + eps) + 1 and weight = delta^3 2^S / y."""
        divisors, results = (self._open(vector) for vector in self._side.divisions[0])
        total, scale = sum(samples), 10 ** (2 * self.task.decimals)
        found = [
            ((y - 1) / (total * delta) ** 2 - self.task.epsilon_units) / scale
            for y, delta in zip(divisors, samples, strict=True)
        ]
        unit = total * scale * sum(found) / (1 << self._side.widths.shift)
        return {"distance": [float(d) for d in found], "weight": [float(result * unit) for result in results]}

    def _in_the_clear(self, models: list[Flat], samples: list[int]) -> dict[str, list[float]]:
        """By Eq. 10."""
        epsilon = 10.0**-self.task.decimals
        plain = distances(models, fedavg(models, samples))
        values = {
            "distance": plain,
            "weight": weights(plain, samples, epsilon),
            "reward": rewards(models, samples, float(self._budget), epsilon),
        }
        return {f"{name} in the clear": [float(v) for v in found] for name, found in values.items()}

    def _open(self, vector: CipherVector) -> list[int]:
        """With both shares."""
        half = self.parties.sp.party.partial_decrypt(vector)
        return [int(value) for value in to_ints(self.parties.csp.party.finish(vector, half))]


def paid_point(settings: PaidSettings) -> ExperimentPoint:
    facts: Record = settings.learn.facts() | {"budget": settings.budget} | dict(vars(settings.keys))

    def measure(bench: Bench) -> Records:
        run = PaidRounds(settings, bench)
        found = list(federated(run.crowd, run, Attendance(run.crowd.names)))
        return [row | {"accuracy of the round": found[int(row["round"] or 0) - 1].accuracy} for row in run.rows]

    return ExperimentPoint("paid run", facts, measure)
