"""Figure 4, weights against distances and rewards against weights in rounds 2 and 4; and figure 7(a), everyone's rewards.

Distances and weights are shown, too. No party may see them, and no message carries them. The experiment holds both shares of
the task's key, as KGC once did, and opens with them what SP computes on: `_WatchedSide` keeps those ciphertexts, in this
process alone.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.packing import Packing
from crowdfl.crypto.randomness import Coins
from crowdfl.crypto.vector import CipherVector
from crowdfl.lab.experiments.experiment import Bench, Experiment, ExperimentPoint, Part
from crowdfl.lab.experiments.federated import (
    Attendance,
    Encrypted,
    Flat,
    Keys,
    LearnSettings,
    Updates,
    federated,
    load_crowd,
)
from crowdfl.lab.experiments.published import BUDGET, remarks
from crowdfl.lab.experiments.records import Record, Records, Value, number, table_of
from crowdfl.lab.report.plots import Canvas, Picture, Series, bars, lines, panels
from crowdfl.lab.report.results import ResultTable
from crowdfl.learning.oracle import distances, fedavg, rewards, weights
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.hardened.prirwd import RewardSp, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.keyed import keyed_party
from crowdfl.protocols.party import KeyedParty
from crowdfl.settings import from_millionths, to_millionths

_ROUNDS = (2, 4)
_NAMES = ("distance", "weight", "reward")


@dataclass(frozen=True)
class PaidSettings:
    """One encrypted run with rewards in every round."""

    learn: LearnSettings = field(default_factory=lambda: LearnSettings(hidden=50))
    keys: Keys = field(default_factory=lambda: Keys(lanes=256))  # PriRwd takes most of the run, by the lane
    budget: str = BUDGET


class _WatchedSide(RewardSp):
    """PriRwd's SP, keeping the divisors and results of its divisions: first those of the weights, then of the rewards."""

    def __init__(self, party: KeyedParty, widths: RewardWidths, packing: Packing, round_number: int) -> None:
        super().__init__(party, widths, packing, round_number)
        self.divisions: list[tuple[CipherVector, CipherVector]] = []

    def divide(
        self, purpose: str, x: CipherVector, y: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, CipherVector]:
        result = yield from super().divide(purpose, x, y, coins)
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

    def _watched(self, party: KeyedParty, widths: RewardWidths, packing: Packing, round_number: int) -> RewardSp:
        self._side = _WatchedSide(party, widths, packing, round_number)
        return self._side

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        """As without rewards, but those are first: from the very uploads that are averaged."""
        round_, _ = self.collect(number, updates, attendance)
        earned = self.parties.open_rewards(round_.reward(to_millionths(self._budget)), number)
        average = self.parties.read(round_.average(final=final), number, list(updates)[:1], final=final).weights
        ids = sorted(earned)
        models, samples = [updates[who][0] for who in ids], [updates[who][1] for who in ids]
        columns: dict[str, Sequence[Value]] = {"participant": ids, "samples": samples, **self._opened(samples)}
        columns["reward"] = [float(from_millionths(earned[who])) for who in ids]
        columns |= self._in_the_clear(models, samples)
        self.rows += [
            {"round": number} | dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        return average

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
        epsilon, plain = 10.0**-self.task.decimals, distances(models, fedavg(models, samples))
        values = plain, weights(plain, samples, epsilon), rewards(models, samples, float(self._budget), epsilon)
        names = (f"{name} in the clear" for name in ("distance", "weight", "reward"))
        return {name: list(map(float, found)) for name, found in zip(names, values, strict=True)}

    def _open(self, vector: CipherVector) -> list[int]:
        half = keyed_party(self.parties.sp).partial_decrypt(vector)
        return [int(value) for value in to_ints(keyed_party(self.parties.csp).finish(vector, half))]


def paid_points(settings: PaidSettings) -> list[ExperimentPoint]:
    facts: Record = dict(vars(settings.learn)) | {"budget": settings.budget} | dict(vars(settings.keys))

    def measure(bench: Bench) -> Records:
        run = PaidRounds(settings, bench)
        found = list(federated(run.crowd, run, Attendance(run.crowd.names)))
        return [row | {"accuracy of the round": found[int(row["round"] or 0) - 1].accuracy} for row in run.rows]

    return [ExperimentPoint("paid run", facts, measure)]


def _present(settings: PaidSettings, results: Sequence[Records]) -> Part:
    rows = [row for row in results[0] if row["round"] in _ROUNDS]
    columns = ("round", "participant", *_NAMES, *(f"{name} in the clear" for name in _NAMES))
    table = table_of("Opened with both shares of the key, and in the clear", rows, columns, ".6g")
    caption = "Weights against distances, rewards against weights"
    picture = Picture("fig4", caption, lambda f: _draw(f, rows), (9.0, 7.0))
    return Part(rows, (table,), (picture,), _found(settings, rows) + _paid_remarks(settings, rows))


def _column(rows: Records, round_number: int, name: str) -> Flat:
    return np.array([number(row, name) for row in rows if row["round"] == round_number])


def _found(settings: PaidSettings, rows: Records) -> tuple[str, ...]:

    def steps(name: str, by: str, n: int) -> Flat:
        return np.diff(_column(rows, n, name)[np.argsort(_column(rows, n, by))])

    falls = all((steps("weight", "distance", n) <= 0).all() for n in _ROUNDS)
    rises = all((steps("reward", "weight", n) >= 0).all() for n in _ROUNDS)
    said = {
        "falls": "falls" if falls else "does not always fall",
        "rises": "rises" if rises else "does not always rise",
    }
    first, second = (float(_column(rows, n, "distance").mean()) for n in _ROUNDS)
    return remarks("fig4", settings, **said, first=first, second=second)


def _paid_remarks(settings: PaidSettings, rows: Records) -> tuple[str, ...]:
    """How the encrypted values stand to those in the clear, and who saw them."""
    off = {
        name: max(abs(number(r, name) / (number(r, f"{name} in the clear") or 1) - 1) for r in rows)
        for name in ("distance", "reward")
    }
    return remarks("paid run", settings, **off)


def _draw(figure: Canvas, rows: Records) -> None:
    pairs = [(n, *axis) for n in _ROUNDS for axis in (("distance", "weight"), ("weight", "reward"))]
    for axes, (n, x, y) in zip(panels(figure, 4, rows=2), pairs, strict=True):
        series = {}
        for name, kind, mark, colour in (
            ("in the clear", " in the clear", "x", "grey"),
            ("encrypted run", "", "o", None),
        ):
            across, up = (_column(rows, n, axis + kind).tolist() for axis in (x, y))
            series[name] = Series(across, up, style=mark, colour=colour)
        label = "distance to the average" if x == "distance" else x
        lines(axes, series, xlabel=label, ylabel=y, title=f"round {n}")


def _by_person(settings: PaidSettings, rows: Records, name: str) -> dict[str, list[float]]:
    people = sorted({str(row["participant"]) for row in rows}, key=lambda who: (len(who), who))
    values = {(str(r["participant"]), r["round"]): number(r, name) for r in rows}
    return {who: [values[who, n] for n in range(1, settings.learn.rounds + 1)] for who in people}


def reward_part(settings: PaidSettings, rows: Records) -> Part:
    """Figure 7(a). Does who earns much in the first round earn more in the last? Counted, for the paper says so."""
    earned, clear = (_by_person(settings, rows, name) for name in ("reward", "reward in the clear"))
    numbers = range(1, settings.learn.rounds + 1)
    cells = tuple(
        (who, *(f"{value:.6f}" for value in (*values, sum(values), sum(clear[who])))) for who, values in earned.items()
    )
    columns = ("participant", *(f"round {n}" for n in numbers), "sum", "sum in the clear")
    table = ResultTable(f"Rewards as everyone opened its own, {settings.budget} a round", columns, cells)

    def draw(figure: Canvas) -> None:
        (axes,) = panels(figure, 1)
        people = [str(place) for place in range(1, len(earned) + 1)]
        axes.plot(range(len(people)), [sum(values) for values in clear.values()], "kx", label="sum, in the clear")
        rounds = {f"round {n}": [values[n - 1] for values in earned.values()] for n in numbers}
        bars(axes, people, rounds, stacked=True, xlabel="participant", ylabel="reward")

    even = float(settings.budget) / len(earned)
    above = [values for values in earned.values() if values[0] > even]
    below = [values for values in earned.values() if values[0] <= even]
    grew, shrank = sum(v[-1] > v[0] for v in above), sum(v[-1] < v[0] for v in below)
    said = remarks("fig7a", settings, above=len(above), grew=grew, below=len(below), shrank=shrank)
    picture = Picture("fig7a", "(a) Rewards of every participant", draw)
    return Part(rows, (table,), (picture,), said + _paid_remarks(settings, rows))


_FULL = PaidSettings(LearnSettings(), Keys(lanes=1024))
FIG_4 = Experiment("fig4", "Figure 4: weights and rewards", paid_points, _present, _FULL, PaidSettings(), "quick")
