"""Figure 7: rewards, (a) everyone's, from the run of figure 4, (b) how long they take, by the sweeps of figures 5 and 6."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from crowdfl_lab.experiments.experiment import Experiment, Found, Part, Points, Records, number, remarks
from crowdfl_lab.experiments.federated import ProfileRun
from crowdfl_lab.experiments.rewards import FIG_4, PaidSettings, paid_points, paid_remarks
from crowdfl_lab.experiments.times import FIG_5, ClockSettings, Sweeps, clock_points, clocked
from crowdfl_lab.report.plots import Canvas, Picture, bars, panels
from crowdfl_lab.report.results import ResultTable


@dataclass(frozen=True)
class RewardSettings:
    """The run of figure 4 and the sweeps of figures 5 and 6."""

    paid: PaidSettings = field(default_factory=PaidSettings)
    clock: ClockSettings = field(default_factory=ClockSettings)


def _fig7_points(settings: RewardSettings) -> Points:
    return {**paid_points(settings.paid), **clock_points(settings.clock)}


def _present_fig7(settings: RewardSettings, found: Found) -> Part:
    sweeps = Sweeps(settings.clock, clocked(settings.clock, found), ("average", "reward"))

    def draw(canvas: Canvas) -> None:
        for axes, over in zip(panels(canvas, 2), ("participants", "parameters"), strict=True):
            sweeps.draw(axes, "reward", over)

    both = sweeps.times([("paper", "average"), ("paper", "reward")], ("PPFDL", "average"))
    picture = Picture("fig7b", "(b) Time of the rewards", draw)
    return _everyones(settings.paid, found) + sweeps.part("fig7b", picture, both=both)


def _change_both(name: str, settings: RewardSettings, value: Any) -> RewardSettings:  # noqa: ANN401 -- any option's
    clock = FIG_5.options[name](settings.clock, value) if name in FIG_5.options else settings.clock
    return replace(settings, paid=FIG_4.options[name](settings.paid, value), clock=clock)


def _everyones(settings: PaidSettings, found: Found) -> Part:
    """(a), of each profile."""
    part = Part([], remarks=remarks("fig7a", settings))
    for run in settings.chosen:
        part += _rewards_of(settings, run, found[run])
    return part


def _rewards_of(settings: PaidSettings, run: ProfileRun, rows: Records) -> Part:
    """Does who earns much in the first round earn more in the last? Counted, for the paper says so."""
    people = sorted({str(row["participant"]) for row in rows}, key=lambda who: (len(who), who))
    numbers = range(1, settings.learn.rounds + 1)
    by_round = {(str(row["participant"]), row["round"]): row for row in rows}
    earned, clear = (
        {who: [number(by_round[who, n], name) for n in numbers] for who in people}
        for name in ("reward", "reward in the clear")
    )
    cells = [(who, *earned[who], sum(earned[who]), sum(clear[who])) for who in people]
    shown = tuple((who, *(f"{value:.6f}" for value in values)) for who, *values in cells)
    columns = ("participant", *(f"round {n}" for n in numbers), "sum", "sum in the clear")
    title = f"`{run.profile}`: rewards as everyone opened its own, {settings.budget} a round"

    def draw(figure: Canvas) -> None:
        (axes,) = panels(figure, 1)
        axes.plot(range(len(people)), [sum(values) for values in clear.values()], "kx", label="sum, in the clear")
        rounds = {f"round {n}": [values[n - 1] for values in earned.values()] for n in numbers}
        places = [str(place) for place in range(1, len(people) + 1)]
        bars(axes, places, rounds, stacked=True, xlabel="participant", ylabel="reward")

    even = float(settings.budget) / len(earned)
    above = [values for values in earned.values() if values[0] > even]
    below = [values for values in earned.values() if values[0] <= even]
    grew, shrank = sum(v[-1] > v[0] for v in above), sum(v[-1] < v[0] for v in below)
    said = remarks("fig7a run", settings, run=run, above=len(above), grew=grew, below=len(below), shrank=shrank)
    picture = Picture(f"fig7a-{run.profile}", f"(a) Rewards of every participant: {run.profile}", draw)
    return Part(rows, (ResultTable(title, columns, shown),), (picture,), said + paid_remarks(settings, run, rows))


FIG_7 = Experiment(
    "fig7",
    "Figure 7: rewards and their time",
    _fig7_points,
    _present_fig7,
    RewardSettings(FIG_4.full, FIG_5.full),
    RewardSettings(FIG_4.quick, FIG_5.quick),
    "mixed",
    RewardSettings(FIG_4.quick, FIG_5.full),
    options={name: partial(_change_both, name) for name in FIG_4.options},
)
