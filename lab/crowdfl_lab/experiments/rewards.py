"""Distances and weights of a paid round, opened by an experiment that plays both servers.

No party may see them, and no message carries them. In `paper` and `hardened` the experiment holds both shares of the task's key
and opens the ciphertexts that SP computes on; in `shares` it adds up both servers' shares. All of it stays in this process.

Figure 4, weights against distances and rewards against weights in rounds 2 and 4; and figure 7(a), everyone's rewards.

From encrypted runs that pay a budget in every round, one of each profile; `watched` says how weights and distances are opened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.learning.oracle import distances, fedavg, rewards, weights
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.party import View
from crowdfl.protocols.profile import RoleProtocol
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.settings import TaskSettings, from_millionths, to_millionths
from crowdfl_lab.experiments.crowds import LearnSettings, load_crowd
from crowdfl_lab.experiments.experiment import (
    BUDGET,
    Bench,
    Experiment,
    ExperimentPoint,
    Part,
    Record,
    Records,
    Value,
    joined_parts,
    number,
    remarks,
    table_of,
)
from crowdfl_lab.experiments.federated import (
    TRAINING,
    Attendance,
    Encrypted,
    Flat,
    Keys,
    ProfileRun,
    RunSettings,
    Updates,
    federated,
    with_lanes,
)
from crowdfl_lab.parties import LocalParties
from crowdfl_lab.report.plots import Canvas, Picture, Series, bars, lines, panels
from crowdfl_lab.report.results import ResultTable

_Worth = tuple[list[float], list[float]]  # distances, weights


class Watcher(Protocol):
    """Looks on at one round's rewards."""

    def opened(self, samples: Sequence[int]) -> _Worth:
        """Everyone's distance and weight in the last round, at the scale of Eq. 10, in the order of the rewards."""


def watch(parties: LocalParties) -> Watcher:
    """Look on at the rewards of these parties from now on."""
    makers: Mapping[str, Callable[[LocalParties], Watcher]] = {
        "paper": PaperWatcher,
        "hardened": HardenedWatcher,
        "shares": SharesWatcher,
    }
    return makers[parties.dealer.spec.settings.profile](parties)


def _weights_of(distances: Sequence[float], raw: Sequence[int], unit: float) -> _Worth:
    return list(distances), [float(value * unit * sum(distances)) for value in raw]


def _watched(side: RoleProtocol) -> View:
    """A record of what this side sees, from now on."""
    side.party.view = View()
    return side.party.view


class _KeyedWatcher:
    """Of a profile with a key: SP's view has the divisors and the quotients of the last divisions, encrypted."""

    def __init__(self, parties: LocalParties) -> None:
        self.parties, self._view = parties, _watched(parties.sp)

    @property
    def task(self) -> TaskSettings:
        return self.parties.dealer.spec.settings

    def _weights(self) -> tuple[list[int], list[int]]:
        """Divisors and quotients of the division that makes them."""
        divisors, quotients = self._view.hidden["weights"]
        return self._open(divisors), self._open(quotients)

    def _open(self, vector: CipherVector) -> list[int]:
        half = keyed_party(self.parties.sp).partial_decrypt(vector)
        return [int(value) for value in to_ints(keyed_party(self.parties.csp).finish(vector, half))]


class HardenedWatcher(_KeyedWatcher):
    def opened(self, samples: Sequence[int]) -> _Worth:
        """As SP has them encrypted: y = Y^2 delta^2 (10^2L d + eps) + 1 and weight = delta^3 2^S / y."""
        divisors, results = self._weights()
        total, scale = sum(samples), 10 ** (2 * self.task.decimals)
        found = [
            ((y - 1) / (total * delta) ** 2 - self.task.epsilon_units) / scale
            for y, delta in zip(divisors, samples, strict=True)
        ]
        shift = reward_widths(self.task, self.parties.dealer.spec.parameters).shift
        return _weights_of(found, results, total * scale / (1 << shift))


class PaperWatcher(_KeyedWatcher):
    def opened(self, samples: Sequence[int]) -> _Worth:
        """As SP has them encrypted: y = 10^L Y (10^2L d + eps), and Alg. 4's own weight, whose sum of distances has n eps."""
        divisors, results = self._weights()
        scale, total = 10**self.task.decimals, sum(samples)
        found = [(y / (scale * total) - self.task.epsilon_units) / scale**2 for y in divisors]
        return found, [value / scale for value in results]


class SharesWatcher:
    def __init__(self, parties: LocalParties) -> None:
        self._shape, self._views = SharesShape(parties.dealer.spec), (_watched(parties.sp), _watched(parties.csp))

    def opened(self, samples: Sequence[int]) -> _Worth:
        """Both servers' shares of A, B and UU give |Y u - s U|^2 = (Y s)^2 d at the sketch's scale; weight = s^3 2^F / y."""
        (mine, own), (theirs, other) = (view.hidden["weights"] for view in self._views)
        widths = self._shape.rule_widths
        total, bits = sum(samples), widths.R
        scale = 10 ** (2 * self._shape.spec.settings.decimals) * mine.kept / widths.buckets
        sums = _joined([mine.UU, *mine.A, *mine.B], [theirs.UU, *theirs.A, *theirs.B], bits)
        uu, a, b = sums[0], sums[1 : 1 + len(samples)], sums[1 + len(samples) :]
        found = [
            (total**2 * own - 2 * total * s * cross + s**2 * uu) / (total * s) ** 2 / scale
            for own, cross, s in zip(a, b, samples, strict=True)
        ]
        raw = _joined(own, other, widths.weight_bits)
        return _weights_of(found, raw, total * scale / (1 << widths.distance_precision))


def _joined(mine: Sequence[int], theirs: Sequence[int], bits: int) -> list[int]:
    """Signed numbers from their two shares modulo 2^bits."""
    sums = [(a + b) % (1 << bits) for a, b in zip(mine, theirs, strict=True)]
    return [value - (1 << bits) if value >> (bits - 1) else value for value in sums]


_ROUNDS = (2, 4)
_NAMES = ("distance", "weight", "reward")

# What two cores have time for: PriRwd of `hardened` takes most of its run, by the lane; `paper` computes exact distances.
RUNS = (ProfileRun("paper", 1, lanes=1), ProfileRun("hardened", 50, lanes=256), ProfileRun("shares", 1000, lanes=4096))


@dataclass(frozen=True)
class PaidSettings(RunSettings):
    """An encrypted run of each profile, with rewards in every round."""

    runs: tuple[ProfileRun, ...] = RUNS
    budget: str = BUDGET

    @property
    def shown(self) -> tuple[int, int]:
        """The rounds of figure 4; of a shorter run, its first and last."""
        return _ROUNDS if self.learn.rounds >= max(_ROUNDS) else (1, self.learn.rounds)

    def learn_of(self, run: ProfileRun) -> LearnSettings:
        return replace(self.learn, hidden=run.hidden)


class PaidRounds(Encrypted):
    """An encrypted run that pays a budget in every round, and notes what everyone's model was worth."""

    def __init__(self, learn: LearnSettings, keys: Keys, budget: str, bench: Bench) -> None:
        self.crowd = load_crowd(learn, bench)
        super().__init__(self.crowd, keys, bench, budget)
        self._budget, self.rows = budget, list[Record]()
        self._watcher = watch(self.parties)

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        """As without rewards, which come from the very uploads that are averaged."""
        round_, _ = self.collect(number, updates, attendance)
        first = self.read(round_, number, final=final) if self.parties.sp.averages_first else None
        earned = self.parties.open_rewards(round_.reward(to_millionths(self._budget)), number)
        average = self.read(round_, number, final=final) if first is None else first
        models, samples = [updates[who][0] for who in earned], [updates[who][1] for who in earned]
        found, weighed = self._watcher.opened(samples)
        columns: dict[str, Sequence[Value]] = {"participant": list(earned), "samples": samples}
        columns |= {"distance": found, "weight": weighed}
        columns["reward"] = [float(from_millionths(amount)) for amount in earned.values()]
        columns |= self._in_the_clear(models, samples)
        self.rows += [
            {"round": number} | dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        return average

    def _in_the_clear(self, models: list[Flat], samples: list[int]) -> dict[str, list[float]]:
        epsilon, plain = 10.0**-self.task.decimals, distances(models, fedavg(models, samples))
        values = plain, weights(plain, samples, epsilon), rewards(models, samples, float(self._budget), epsilon)
        names = (f"{name} in the clear" for name in _NAMES)
        return {name: list(map(float, found)) for name, found in zip(names, values, strict=True)}


def paid_points(settings: PaidSettings) -> list[ExperimentPoint]:
    return [_paid_point(settings.learn_of(run), settings.keys_of(run), settings.budget) for run in settings.chosen]


def _paid_point(learn: LearnSettings, keys: Keys, budget: str) -> ExperimentPoint:
    facts: Record = dict(vars(learn)) | {"budget": budget} | dict(vars(keys))

    def measure(bench: Bench) -> Records:
        run = PaidRounds(learn, keys, budget, bench)
        found = list(federated(run.crowd, run, Attendance(run.crowd.names)))
        accuracies = {number: one.accuracy for number, one in enumerate(found, start=1)}
        head: Record = {"profile": keys.profile}
        return [head | row | {"accuracy of the round": accuracies[int(row["round"] or 0)]} for row in run.rows]

    return ExperimentPoint("paid run", facts, measure)


def _present(settings: PaidSettings, results: Sequence[Records]) -> Part:
    part = Part([], remarks=remarks("fig4", settings))
    for run, found in zip(settings.chosen, results, strict=True):
        rows = [row for row in found if row["round"] in settings.shown]
        part = joined_parts(part, _worth_part(settings, run, rows))
    return part


def _worth_part(settings: PaidSettings, run: ProfileRun, rows: Records) -> Part:
    columns = ("round", "participant", *_NAMES, *(f"{name} in the clear" for name in _NAMES))
    table = table_of(f"`{run.profile}`: opened by playing both servers, and in the clear", rows, columns, ".6g")
    caption = f"Weights against distances, rewards against weights: {run.profile}"
    draw = partial(_draw, rows=rows, rounds=settings.shown)
    picture = Picture(f"fig4-{run.profile}", caption, draw, (9.0, 7.0))
    return Part(rows, (table,), (picture,), _found(settings, run, rows) + _paid_remarks(settings, run, rows))


def _column(rows: Records, round_number: int, name: str) -> Flat:
    return np.array([number(row, name) for row in rows if row["round"] == round_number])


def _found(settings: PaidSettings, run: ProfileRun, rows: Records) -> tuple[str, ...]:

    def steps(name: str, by: str, n: int) -> Flat:
        return np.diff(_column(rows, n, name)[np.argsort(_column(rows, n, by))])

    falls = all((steps("weight", "distance", n) <= 0).all() for n in settings.shown)
    rises = all((steps("reward", "weight", n) >= 0).all() for n in settings.shown)
    begin, end = settings.shown
    first, second = (float(_column(rows, n, "distance").mean()) for n in settings.shown)
    return remarks(
        "fig4 run",
        settings,
        run=run,
        falls="falls" if falls else "does not always fall",
        rises="rises" if rises else "does not always rise",
        first=first,
        second=second,
        begin=begin,
        end=end,
    )


def _paid_remarks(settings: PaidSettings, run: ProfileRun, rows: Records) -> tuple[str, ...]:
    """How the encrypted values stand to those in the clear, and who saw them."""
    off = {
        name: max(abs(number(r, name) / (number(r, f"{name} in the clear") or 1) - 1) for r in rows)
        for name in ("distance", "reward")
    }
    exact = "the whole models" if run.profile == "paper" else f"a sketch of {run.lanes:,} lanes"
    return remarks("paid run", settings, run=run, key=settings.keys_of(run), sketch=exact, **off)


def _draw(figure: Canvas, rows: Records, rounds: tuple[int, int]) -> None:
    pairs = [(n, *axis) for n in rounds for axis in (("distance", "weight"), ("weight", "reward"))]
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


def reward_part(settings: PaidSettings, results: Sequence[Records]) -> Part:
    """Figure 7(a), of each profile."""
    part = Part([], remarks=remarks("fig7a", settings))
    for run, rows in zip(settings.chosen, results, strict=True):
        part = joined_parts(part, _rewards_of(settings, run, rows))
    return part


def _rewards_of(settings: PaidSettings, run: ProfileRun, rows: Records) -> Part:
    """Does who earns much in the first round earn more in the last? Counted, for the paper says so."""
    earned, clear = (_by_person(settings, rows, name) for name in ("reward", "reward in the clear"))
    numbers = range(1, settings.learn.rounds + 1)
    cells = tuple(
        (who, *(f"{value:.6f}" for value in (*values, sum(values), sum(clear[who])))) for who, values in earned.items()
    )
    columns = ("participant", *(f"round {n}" for n in numbers), "sum", "sum in the clear")
    table = ResultTable(
        f"`{run.profile}`: rewards as everyone opened its own, {settings.budget} a round", columns, cells
    )

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
    said = remarks("fig7a run", settings, run=run, above=len(above), grew=grew, below=len(below), shrank=shrank)
    picture = Picture(f"fig7a-{run.profile}", f"(a) Rewards of every participant: {run.profile}", draw)
    return Part(rows, (table,), (picture,), said + _paid_remarks(settings, run, rows))


_QUICK = PaidSettings()
_FULL = PaidSettings(
    runs=tuple(replace(run, hidden=1000, lanes=1024) if run.profile == "hardened" else run for run in RUNS)
)
FIG_4 = Experiment(
    "fig4",
    "Figure 4: weights and rewards",
    paid_points,
    _present,
    _FULL,
    _QUICK,
    "quick",
    options={**TRAINING, "lanes": with_lanes},
)
