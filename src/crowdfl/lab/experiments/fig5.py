"""Figure 5: how long training and encrypting a model take."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crowdfl.lab.experiments.clocked import ClockSettings, clock_points, fits, training_points
from crowdfl.lab.experiments.frame import Experiment, Part, Picture, Table
from crowdfl.lab.experiments.pictures import panels
from crowdfl.lab.experiments.points import Point, Rows
from crowdfl.lab.experiments.published import FIGURES
from crowdfl.lab.experiments.sweeps import clock_remarks, draw_sweep, fit_table, sweep_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG_5"]


def _points(settings: ClockSettings) -> list[Point]:
    return [*training_points(settings), *clock_points(settings)]


def _present(settings: ClockSettings, results: Sequence[Rows]) -> Part:
    trained = [row for rows in results[: len(settings.hidden)] for row in rows]
    timed = [row for rows in results[len(settings.hidden) :] for row in rows]
    lines = fits(settings, timed, ("encrypt",))
    columns = ("hidden units", "parameters", "first, s", "again, s")
    cells = tuple(
        (
            str(r["hidden"]),
            f"{r['parameters']:,}",
            *(f"{float(r[k] or 0):.3g}" for k in ("train, first", "train, again")),
        )
        for r in trained
    )
    tables = (
        Table("Training one round of 49 windows, 30 epochs, one core", columns, cells),
        sweep_table(settings, timed, ("encrypt",)),
        fit_table(lines),
    )
    picture = Picture("fig5", "Training time and encrypting time", lambda f: _draw(f, settings, trained, timed))
    slower = sum(float(r["train, again"] or 0) > float(r["train, first"] or 0) for r in trained)
    remarks = (
        *(f"Paper: {said}" for said in FIGURES["fig5"]),
        f"Here training again, which loads the average first, is slower for {slower} of {len(trained)} sizes.",
        *clock_remarks(settings),
    )
    return Part([*trained, *timed, *lines], tables, (picture,), remarks)


def _draw(figure: "Figure", settings: ClockSettings, trained: Rows, timed: Rows) -> None:
    left, right = panels(figure, 2)
    for name, mark in (("train, first", "o-"), ("train, again", "s--")):
        x, y = ([float(row[key] or 0) for row in trained] for key in ("parameters", name))
        left.plot(x, y, mark, label=name.removeprefix("train, "))
    left.set(xlabel="parameters", ylabel="training, s", title="(a) training a model")
    left.legend()
    draw_sweep(right, settings, timed, "encrypt", "parameters")
    right.set_title("(b) encrypting a model")


FIG_5 = Experiment(
    "fig5",
    "Figure 5: training and encrypting",
    ClockSettings(),
    ClockSettings(hidden=(10, 50), hardened=(566, 2_776), paper=(2, 5), ppfdl=(1, 2), crowds=(5, 10)),
    "full",
    _points,
    _present,
)
