"""Figure 7: everyone's rewards over five rounds, and how long rewards take."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.lab.experiments.clocked import ClockSettings, clock_points, fits
from crowdfl.lab.experiments.fig4 import FIG_4, paid_remarks
from crowdfl.lab.experiments.fig5 import FIG_5
from crowdfl.lab.experiments.frame import Experiment, Part, Picture, Table
from crowdfl.lab.experiments.paid import PaidSettings, paid_point
from crowdfl.lab.experiments.pictures import panels
from crowdfl.lab.experiments.points import Point, Rows
from crowdfl.lab.experiments.published import FIGURES
from crowdfl.lab.experiments.sweeps import clock_remarks, draw_sweep, fit_table, sweep_table, times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG_7", "RewardSettings"]

_PHASES = ("average", "reward")


@dataclass(frozen=True)
class RewardSettings:
    """The run of figure 4 and the sweeps of figures 5 and 6."""

    paid: PaidSettings = field(default_factory=PaidSettings)
    clock: ClockSettings = field(default_factory=ClockSettings)


def _points(settings: RewardSettings) -> list[Point]:
    return [paid_point(settings.paid), *clock_points(settings.clock)]


def _present(settings: RewardSettings, results: Sequence[Rows]) -> Part:
    paid, timed = results[0], [row for rows in results[1:] for row in rows]
    lines = fits(settings.clock, timed, _PHASES)
    tables = _reward_table(settings.paid, paid), sweep_table(settings.clock, timed, _PHASES), fit_table(lines)
    pictures = (
        Picture("fig7a", "(a) Rewards of every participant", lambda f: _draw_rewards(f, settings.paid, paid)),
        Picture("fig7b", "(b) Time of the rewards", lambda f: _draw_times(f, settings.clock, timed)),
    )
    both = times(lines, [("paper", "average"), ("paper", "reward")], ("PPFDL", "average"))
    remarks = (
        *(f"Paper: {said}" for said in FIGURES["fig7"]),
        _trend(settings.paid, paid),
        f"Here PriFedAvg and PriRwd of `paper` together take {both} as long per parameter as PPFDL's averaging, with "
        f"{settings.clock.crowd} participants.",
        *paid_remarks(settings.paid, paid),
        *clock_remarks(settings.clock),
    )
    return Part([*paid, *timed, *lines], tables, pictures, remarks)


def _by_person(settings: PaidSettings, rows: Rows, name: str) -> dict[str, list[float]]:
    people = sorted({str(row["participant"]) for row in rows}, key=lambda who: (len(who), who))
    values = {(str(r["participant"]), r["round"]): float(r[name] or 0) for r in rows}
    return {who: [values[who, number] for number in range(1, settings.learn.rounds + 1)] for who in people}


def _trend(settings: PaidSettings, rows: Rows) -> str:
    """Does who earns much in the first round earn more in the last? Counted, for the paper says so."""
    earned = _by_person(settings, rows, "reward")
    even = float(settings.budget) / len(earned)
    above = [v for v in earned.values() if v[0] > even]
    below = [v for v in earned.values() if v[0] <= even]
    grew, shrank = sum(v[-1] > v[0] for v in above), sum(v[-1] < v[0] for v in below)
    return (
        f"Here, of {len(above)} who earn above the mean in round 1, {grew} earn more in round {settings.learn.rounds}; of the "
        f"other {len(below)}, {shrank} earn less."
    )


def _reward_table(settings: PaidSettings, rows: Rows) -> Table:
    earned, clear = (_by_person(settings, rows, name) for name in ("reward", "reward in the clear"))
    numbers = range(1, settings.learn.rounds + 1)
    cells = tuple(
        (who, *(f"{v:.6f}" for v in values), f"{sum(values):.6f}", f"{sum(clear[who]):.6f}")
        for who, values in earned.items()
    )
    columns = ("participant", *(f"round {n}" for n in numbers), "sum", "sum in the clear")
    return Table(f"Rewards as everyone opened its own, {settings.budget} a round", columns, cells)


def _draw_rewards(figure: "Figure", settings: PaidSettings, rows: Rows) -> None:
    (axes,) = panels(figure, 1)
    earned, clear = (_by_person(settings, rows, name) for name in ("reward", "reward in the clear"))
    bottom = np.zeros(len(earned))
    places = np.arange(1, len(earned) + 1)
    for number in range(settings.learn.rounds):
        heights = np.array([values[number] for values in earned.values()])
        axes.bar(places, heights, bottom=bottom, label=f"round {number + 1}")
        bottom += heights
    axes.plot(places, [sum(values) for values in clear.values()], "kx", label="sum, in the clear")
    axes.set(xlabel="participant", ylabel="reward")
    axes.legend(ncols=3, fontsize=9)


def _draw_times(figure: "Figure", settings: ClockSettings, timed: Rows) -> None:
    left, right = panels(figure, 2)
    draw_sweep(left, settings, timed, "reward", "participants")
    draw_sweep(right, settings, timed, "reward", "parameters")


FIG_7 = Experiment(
    "fig7",
    "Figure 7: rewards and their time",
    RewardSettings(FIG_4.full, FIG_5.full),
    RewardSettings(FIG_4.quick, FIG_5.quick),
    "mixed",
    _points,
    _present,
    RewardSettings(FIG_4.quick, FIG_5.full),
)
