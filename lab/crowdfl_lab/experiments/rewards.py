"""Figure 4, weights against distances and rewards against weights in rounds 2 and 4; and figure 7(a), everyone's rewards.

From encrypted runs that pay a budget in every round, one of each profile; `watched` says how weights and distances are opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from crowdfl.learning.oracle import distances, fedavg, rewards, weights
from crowdfl.settings import from_millionths, to_millionths
from crowdfl_lab.experiments.crowds import LearnSettings, load_crowd
from crowdfl_lab.experiments.experiment import Bench, Experiment, ExperimentPoint, Part, joined_parts
from crowdfl_lab.experiments.federated import Attendance, Encrypted, Flat, Keys, Updates, federated
from crowdfl_lab.experiments.options import TRAINING, ProfileRun, RunSettings, with_lanes
from crowdfl_lab.experiments.published import BUDGET, remarks
from crowdfl_lab.experiments.records import Record, Records, Value, number, table_of
from crowdfl_lab.experiments.watched import watch
from crowdfl_lab.report.plots import Canvas, Picture, Series, bars, lines, panels
from crowdfl_lab.report.results import ResultTable

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
