"""Figure 4: weights against distances, then rewards against weights, in rounds 2 and 4.

From encrypted runs that pay a budget in every round, one of each profile. No party may see distances and weights, and no
message carries them: they are opened by the experiment, which plays both servers. In `paper` and `hardened` it holds both
shares of the task's key and opens the ciphertexts that SP computes on; in `shares` it adds up both servers' shares. All of it
stays in this process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.learning.oracle import distances, fedavg, rewards, weights
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.party import View
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.settings import from_millionths, to_millionths
from crowdfl.simulation.sides import Parties
from crowdfl_lab.experiments.experiment import (
    BUDGET,
    Bench,
    Experiment,
    ExperimentPoint,
    Found,
    Part,
    Points,
    Record,
    Records,
    Value,
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
    LearnSettings,
    ProfileRun,
    RunSettings,
    Updates,
    federated,
    load_crowd,
)
from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels

_ROUNDS = (2, 4)
_NAMES = ("distance", "weight", "reward")
# What two cores have time for: PriRwd of `hardened` takes most of its run, by the lane; `paper` computes exact distances.
_RUNS = (ProfileRun("paper", 1, lanes=1), ProfileRun("hardened", 50, lanes=256), ProfileRun("shares", 1000, lanes=4096))


@dataclass(frozen=True)
class PaidSettings(RunSettings):
    """An encrypted run of each profile, with rewards in every round."""

    runs: tuple[ProfileRun, ...] = _RUNS
    budget: str = BUDGET

    @property
    def shown(self) -> tuple[int, int]:
        """The rounds of figure 4; of a shorter run, its first and last."""
        return _ROUNDS if self.learn.rounds >= max(_ROUNDS) else (1, self.learn.rounds)


class Watcher:
    """Looks on at the rewards of some parties, by a record of what both servers see from now on."""

    def __init__(self, parties: Parties) -> None:
        self.parties, self.spec = parties, parties.spec
        self._views = View(), View()
        parties.sp.party.view, parties.csp.party.view = self._views

    def opened(self, samples: Sequence[int]) -> tuple[list[float], list[float]]:
        """Everyone's distance and weight in the last round, at the scale of Eq. 10, in the order of the rewards."""
        if self.spec.settings.profile == "shares":
            return self._shared(samples)
        divisors, quotients = (self._open(vector) for vector in self._views[0].hidden["weights"])
        task, total = self.spec.settings, sum(samples)
        if task.profile == "paper":
            # As SP has them encrypted: y = 10^L Y (10^2L d + eps), and Alg. 4's own weight, whose sum of distances has n eps.
            scale = 10**task.decimals
            found = [(y / (scale * total) - task.floor_units) / scale**2 for y in divisors]
            return found, [value / scale for value in quotients]
        # y = Y^2 delta^2 (10^2L d + eps) + 1 and weight = delta^3 2^S / y.
        scale, places = 10 ** (2 * task.decimals), zip(divisors, samples, strict=True)
        found = [((y - 1) / (total * delta) ** 2 - task.floor_units) / scale for y, delta in places]
        unit = total * scale / (1 << reward_widths(task, self.spec.parameters).shift)
        return found, [value * unit * sum(found) for value in quotients]

    def _open(self, vector: CipherVector) -> list[int]:
        half = keyed_party(self.parties.sp).partial_decrypt(vector)
        return [int(value) for value in to_ints(keyed_party(self.parties.csp).finish(vector, half))]

    def _shared(self, samples: Sequence[int]) -> tuple[list[float], list[float]]:
        """Both servers' shares of A, B and UU give |Y u - s U|^2 = (Y s)^2 d at the sketch's scale; weight = s^3 2^F / y."""
        mine, theirs = (view.hidden["scores"] for view in self._views)
        own, other = (view.hidden["weights"] for view in self._views)
        widths = SharesShape(self.spec).rule_widths
        total = sum(samples)
        count = len(samples)
        scale = 10 ** (2 * self.spec.settings.decimals) * mine.kept / widths.buckets
        uu, *sums = _added([mine.UU, *mine.A, *mine.B], [theirs.UU, *theirs.A, *theirs.B], widths.R)
        found = [
            (total**2 * a - 2 * total * s * b + s**2 * uu) / (total * s) ** 2 / scale
            for a, b, s in zip(sums[:count], sums[count:], samples, strict=True)
        ]
        unit = total * scale / (1 << widths.distance_precision)
        return found, [float(raw * unit * sum(found)) for raw in _added(own, other, widths.weight_bits)]


def _added(mine: Sequence[int], theirs: Sequence[int], bits: int) -> list[int]:
    """Signed numbers from their two shares modulo 2^bits."""
    sums = [(a + b) % (1 << bits) for a, b in zip(mine, theirs, strict=True)]
    return [value - (1 << bits) if value >> (bits - 1) else value for value in sums]


class PaidRounds(Encrypted):
    """An encrypted run that pays a budget in every round, and notes what everyone's model was worth."""

    def __init__(self, learn: LearnSettings, keys: Keys, budget: str, bench: Bench) -> None:
        self.crowd = load_crowd(learn, bench)
        super().__init__(self.crowd, keys, bench, budget)
        self._budget = budget
        self.rows = list[Record]()
        self._watcher = Watcher(self.parties)

    def average(self, number: int, updates: Updates, attendance: Attendance, *, final: bool) -> Flat:
        """As without rewards, which come from the very uploads that are averaged."""
        round_, _ = self.collect(number, updates, attendance)
        publication, envelopes = self.parties.finish(round_, to_millionths(self._budget), final=final)
        average = self.read(publication, number, final=final)
        earned = self.parties.open_rewards(envelopes, number)
        models, samples = [updates[who][0] for who in earned], [updates[who][1] for who in earned]
        epsilon = 10.0**-self.task.decimals
        plain = distances(models, fedavg(models, samples))
        paid = [float(from_millionths(amount)) for amount in earned.values()]
        opened = (*self._watcher.opened(samples), paid)
        clear = plain, weights(plain, samples, epsilon), rewards(models, samples, float(self._budget), epsilon)
        columns: dict[str, Sequence[Value]] = {"participant": list(earned), "samples": samples}
        columns |= dict(zip(_NAMES, opened, strict=True))
        columns |= {f"{name} in the clear": list(map(float, c)) for name, c in zip(_NAMES, clear, strict=True)}
        rows = zip(*columns.values(), strict=True)
        self.rows += [{"round": number} | dict(zip(columns, row, strict=True)) for row in rows]
        return average


def paid_points(settings: PaidSettings) -> Points:
    return {run: _paid_point(settings, run) for run in settings.chosen}


def _paid_point(settings: PaidSettings, run: ProfileRun) -> ExperimentPoint:
    learn = replace(settings.learn, hidden=run.hidden)
    keys = settings.keys_of(run)
    budget = settings.budget
    facts: Record = dict(vars(learn)) | {"budget": budget} | dict(vars(keys))

    def measure(bench: Bench) -> Records:
        paid = PaidRounds(learn, keys, budget, bench)
        scores = list(federated(paid.crowd, paid, Attendance(paid.crowd.names)))
        head: Record = {"profile": keys.profile}
        return [
            head | row | {"accuracy of the round": scores[int(row["round"] or 0) - 1].accuracy} for row in paid.rows
        ]

    return ExperimentPoint("paid run", facts, measure)


def _present(settings: PaidSettings, found: Found) -> Part:
    part = Part([], remarks=remarks("fig4", settings))
    columns = ("round", "participant", *_NAMES, *(f"{name} in the clear" for name in _NAMES))
    for run in settings.chosen:
        rows = [row for row in found[run] if row["round"] in settings.shown]
        table = table_of(f"`{run.profile}`: opened by playing both servers, and in the clear", rows, columns, ".6g")
        caption = f"Weights against distances, rewards against weights: {run.profile}"
        draw = partial(_draw, rows=rows, rounds=settings.shown)
        picture = Picture(f"fig4-{run.profile}", caption, draw, (9.0, 7.0))
        said = _found_remarks(settings, run, rows) + paid_remarks(settings, run, rows)
        part += Part(rows, (table,), (picture,), said)
    return part


def _column(rows: Records, round_number: int, name: str) -> Flat:
    return np.array([number(row, name) for row in rows if row["round"] == round_number])


def _found_remarks(settings: PaidSettings, run: ProfileRun, rows: Records) -> tuple[str, ...]:
    def steps(name: str, by: str, n: int) -> Flat:
        return np.diff(_column(rows, n, name)[np.argsort(_column(rows, n, by))])

    falls = all((steps("weight", "distance", n) <= 0).all() for n in settings.shown)
    rises = all((steps("reward", "weight", n) >= 0).all() for n in settings.shown)
    words = {
        "falls": "falls" if falls else "does not always fall",
        "rises": "rises" if rises else "does not always rise",
    }
    begin, end = settings.shown
    first, second = (float(_column(rows, n, "distance").mean()) for n in settings.shown)
    return remarks("fig4 run", settings, run=run, first=first, second=second, begin=begin, end=end, **words)


def paid_remarks(settings: PaidSettings, run: ProfileRun, rows: Records) -> tuple[str, ...]:
    """How the encrypted values stand to those in the clear, and who saw them."""
    off = {
        name: max(abs(number(r, name) / (number(r, f"{name} in the clear") or 1) - 1) for r in rows)
        for name in ("distance", "reward")
    }
    exact = "the whole models" if run.profile == "paper" else f"a sketch of {run.lanes:,} lanes"
    return remarks("paid run", settings, run=run, key=settings.keys_of(run), sketch=exact, **off)


def _draw(figure: Canvas, rows: Records, rounds: tuple[int, int]) -> None:
    pairs = [(n, *axis) for n in rounds for axis in (("distance", "weight"), ("weight", "reward"))]
    kinds = (("in the clear", " in the clear", "x", "grey"), ("encrypted run", "", "o", None))
    for axes, (n, x, y) in zip(panels(figure, 4, rows=2), pairs, strict=True):
        series = {}
        for name, kind, mark, colour in kinds:
            across, up = (_column(rows, n, axis + kind).tolist() for axis in (x, y))
            series[name] = Series(across, up, style=mark, colour=colour)
        label = "distance to the average" if x == "distance" else x
        lines(axes, series, xlabel=label, ylabel=y, title=f"round {n}")


_FULL = PaidSettings(
    runs=tuple(replace(run, hidden=1000, lanes=1024) if run.profile == "hardened" else run for run in _RUNS)
)
FIG_4 = Experiment(
    "fig4",
    "Figure 4: weights and rewards",
    paid_points,
    _present,
    _FULL,
    PaidSettings(),
    "quick",
    options={**TRAINING, "lanes": lambda settings, lanes: settings.with_runs(lanes=lanes)},
)
