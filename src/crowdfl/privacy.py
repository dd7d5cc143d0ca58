"""The privacy ledger: what noise costs each person in epsilon, and what it does to a model, in the model's own units."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crowdfl import accounting
from crowdfl.settings import DELTA, TaskSettings

NEIGHBOURS = "one person's updates in all rounds, or zeros in their place"
_SERVERS = 2  # that add noise


@dataclass(frozen=True)
class AverageNoise:
    """What both servers' noise does to one average. Lengths and deviations are in the model's own units.

    Attributes:
        people: How many the average is of.
        deviation: The standard deviation of the noise in each weight.
        length: Of the noise over all weights, as is to be expected of it.
        change: How far the average is from what the round started from, noise included; None where nobody reads it.
    """

    people: int
    deviation: float
    length: float
    change: float | None

    @classmethod
    def of(cls, settings: TaskSettings, parameters: int, people: int, change: float | None) -> "AverageNoise":
        deviation = noise_deviation(settings, people)
        return cls(people, deviation, deviation * math.sqrt(parameters), change)

    @property
    def share(self) -> float | None:
        """How much of the change was noise, by squared lengths: 1 is all of it."""
        if self.change is None:
            return None
        return min(1.0, (self.length / self.change) ** 2) if self.change else 1.0


def noise_deviation(settings: TaskSettings, people: int) -> float:
    """Of both servers' noise in one weight of an average, in the model's own units; `sigma` is one server's, in whole units."""
    return math.sqrt(_SERVERS) * (settings.sigma or 0) / people / float(10**settings.decimals)


def noise_length(settings: TaskSettings, parameters: int, people: int) -> float:
    return math.sqrt(parameters) * noise_deviation(settings, people)


def forecast(settings: TaskSettings, parameters: int) -> str:
    """What a task will cost, and what its noise will do, before anybody has trained."""
    people = settings.most_in_round
    return (
        f"epsilon {settings.epsilon:g}, delta {float(settings.delta or DELTA):g} for each person over {settings.rounds} rounds "
        f"will put noise of length {noise_length(settings, parameters, people):.3g} on an average of {people} people, where an "
        f"update is at most {settings.max_norm:g} long; `crowdfl privacy plan --parameters {parameters} --rounds "
        f"{settings.rounds}` shows it for other crowds"
    )


@dataclass(frozen=True)
class RoundPrivacy:
    """What a round of a task with noise has cost.

    Attributes:
        epsilon: Of this round alone, for each of `spent_by`; 0 if the round was given up.
        so_far: Of the rounds so far, for whoever was in most of them.
        delta: What both hold with.
        rho: The same cost of the round as concentrated privacy, which adds up over rounds where epsilon does not.
        charged: Who made an upload: at the first one a device charges the task's whole epsilon, whatever becomes of it.
        spent_by: Whose upload was taken, in a round that was then opened.
        noise: On the average, where it was read.
        update: The length of a usual update as it is sent: the median of those that are known; None if none is.
    """

    epsilon: float
    so_far: float
    delta: float
    rho: float
    charged: tuple[str, ...]
    spent_by: tuple[str, ...]
    noise: AverageNoise | None = None
    update: float | None = None

    @classmethod
    def of(
        cls,
        settings: TaskSettings,
        before: Iterable["RoundPrivacy"],
        *,
        charged: Iterable[str],
        spent_by: Iterable[str],
        noise: AverageNoise | None = None,
        updates: Iterable[float] = (),
    ) -> "RoundPrivacy":
        """The next round's, after those `before`."""
        delta, spent = float(settings.delta or DELTA), tuple(spent_by)
        rho = accounting.rho_of(settings.length_units, settings.sigma or 1, 1) if spent else 0.0
        costs = _added(before)
        for name in spent:
            costs[name] = costs.get(name, 0.0) + rho
        one, all_ = (accounting.epsilon_of(cost, delta) for cost in (rho, max(costs.values(), default=0.0)))
        return cls(one, all_, delta, rho, tuple(charged), spent, noise, _median(updates))

    def row(self) -> dict[str, float]:
        """Flat numbers; `epsilon` is what was spent so far."""
        told = {"epsilon": self.so_far, "delta": self.delta}
        if self.noise is not None:
            told |= {"noise_deviation": self.noise.deviation, "noise_length": self.noise.length}
            if self.noise.change is not None and self.noise.share is not None:
                told |= {"change_length": self.noise.change, "noise_share": self.noise.share}
        return told | ({} if self.update is None else {"update_length": self.update})


@dataclass(frozen=True)
class PrivacyLedger:
    """What a campaign with noise has cost, in all. Printed it is the words for people.

    Attributes:
        epsilon: What is promised to each person, over all rounds, for its neighbours.
        delta: The chance that it does not hold.
        rounds: How many it is promised for.
        charged: By person, what its device has charged, at its first upload.
        spent: By person, how much of that the rounds that were opened have used; the rest is not given back.
        history: Round by round.
        others: What the person's other tasks have charged, where it is known: it adds up.
        neighbours: What nobody can tell but with epsilon and delta.
    """

    epsilon: float
    delta: float
    rounds: int
    charged: Mapping[str, float]
    spent: Mapping[str, float]
    history: Sequence[RoundPrivacy] = field(repr=False)
    others: float = 0.0
    neighbours: str = NEIGHBOURS

    @classmethod
    def of(
        cls, settings: TaskSettings, rounds: Iterable[RoundPrivacy | None], others: float = 0.0
    ) -> "PrivacyLedger | None":
        """None of a task without noise."""
        if settings.epsilon is None:
            return None
        history, epsilon = tuple(one for one in rounds if one is not None), float(settings.epsilon)
        delta = float(settings.delta or DELTA)
        charged = {name: epsilon for one in history for name in one.charged}
        spent = {name: accounting.epsilon_of(rho, delta) for name, rho in _added(history).items()}
        return cls(epsilon, delta, settings.rounds, charged, spent, history, others)

    def lines(self) -> list[str]:
        """What it has cost, and what it did, for people."""
        people = f"{len(self.charged)} people" if len(self.charged) != 1 else next(iter(self.charged))
        with_others = f", beside epsilon {self.others:.3g} of other tasks" if self.others else ""
        spent = max(self.spent.values(), default=0.0)
        found = [
            f"privacy: epsilon {self.epsilon:g}, delta {self.delta:g} over {self.rounds} rounds; neighbours: {self.neighbours}",
            f"charged: to {people} at the first upload{with_others}; opened rounds have spent {spent:.4g} of it",
        ]
        noises = [one.noise for one in self.history if one.noise is not None]
        if not noises:
            return [*found, "noise: on every average, which is not exact"]
        usual = _median(one.update for one in self.history if one.update is not None)
        beside = "" if usual is None else f", where a usual update is {usual:.3g} long"
        shares = sorted(one.share for one in noises if one.share is not None)
        parts = " to ".join(dict.fromkeys(f"{100 * share:.0f}" for share in (shares[:1] + shares[-1:])))
        last = noises[-1]
        return [
            *found,
            f"noise: of standard deviation {last.deviation:.3g} in each weight of an average, {last.length:.3g} long over all"
            f"{beside}" + (f"; {parts} % of an average's change was noise" if shares else ""),
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _added(rounds: Iterable[RoundPrivacy]) -> dict[str, float]:
    """By person, the concentrated cost of all rounds."""
    costs: dict[str, float] = {}
    for one in rounds:
        for name in one.spent_by:
            costs[name] = costs.get(name, 0.0) + one.rho
    return costs


def _median(lengths: Iterable[float]) -> float | None:
    found = sorted(lengths)
    middle = len(found) // 2
    if not found:
        return None
    return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2
