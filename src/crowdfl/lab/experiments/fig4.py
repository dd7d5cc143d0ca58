"""Figure 4: weights against distances, and rewards against weights, in rounds 2 and 4 at a budget of 36."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.lab.experiments.crowd import LearnSettings
from crowdfl.lab.experiments.federated import Keys
from crowdfl.lab.experiments.frame import Experiment, Part, Picture, Table
from crowdfl.lab.experiments.paid import PaidSettings, paid_point
from crowdfl.lab.experiments.points import Point, Rows
from crowdfl.lab.experiments.published import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG_4", "ROUNDS", "paid_remarks"]

ROUNDS = (2, 4)


def _points(settings: PaidSettings) -> list[Point]:
    return [paid_point(settings)]


def _present(settings: PaidSettings, results: Sequence[Rows]) -> Part:
    rows = [row for row in results[0] if row["round"] in ROUNDS]
    names = ("distance", "weight", "reward")
    columns = ("round", "participant", *names, *(f"{name} in the clear" for name in names))
    cells = tuple(
        (str(r["round"]), str(r["participant"]), *(f"{float(r[c] or 0):.6g}" for c in columns[2:])) for r in rows
    )
    picture = Picture(
        "fig4", "Weights against distances, rewards against weights", lambda f: _draw(f, rows), (9.0, 7.0)
    )
    table = Table("Opened with both shares of the key, and in the clear", columns, cells)
    return Part(rows, (table,), (picture,), (*_found(rows), *paid_remarks(settings, rows)))


def _column(rows: Rows, number: int, name: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array([float(row[name] or 0) for row in rows if row["round"] == number])


def _found(rows: Rows) -> tuple[str, ...]:
    """The paper's statements, and what these rows say to them."""
    falls = all(
        (np.diff(_column(rows, n, "weight")[np.argsort(_column(rows, n, "distance"))]) <= 0).all() for n in ROUNDS
    )
    rises = all(
        (np.diff(_column(rows, n, "reward")[np.argsort(_column(rows, n, "weight"))]) >= 0).all() for n in ROUNDS
    )
    first, second = (float(_column(rows, n, "distance").mean()) for n in ROUNDS)
    return (
        *(f"Paper: {said}" for said in FIGURES["fig4"]),
        f"Here the weight {'falls' if falls else 'does not always fall'} with the distance, the "
        f"reward {'rises' if rises else 'does not always rise'} with the weight, and the mean distance goes from {first:.4g} "
        f"in round {ROUNDS[0]} to {second:.4g} in round {ROUNDS[1]}.",
    )


def paid_remarks(settings: PaidSettings, rows: Rows) -> tuple[str, ...]:
    """How the encrypted values stand to those in the clear, and who saw them."""
    off = {
        name: max(abs(float(r[name] or 0) / float(r[f"{name} in the clear"] or 1) - 1) for r in rows)
        for name in ("distance", "reward")
    }
    key = "an insecure test key" if settings.keys.insecure_test_key else f"|N| = {settings.keys.key_bits}"
    return (
        f"From one encrypted `hardened` run, {settings.learn.hidden} hidden units, {key}. In a task nobody sees a distance "
        "or a weight, and each participant its own reward alone; here the experiment, which dealt the keys, opens them.",
        f"Distances come from a sketch of {settings.keys.lanes} lanes, exact where the model has no more parameters than that: "
        f"the largest relative difference is {off['distance']:.2%} for distances, {off['reward']:.2%} for rewards.",
    )


def _draw(figure: "Figure", rows: Rows) -> None:
    for line, number in zip(figure.subplots(len(ROUNDS), 2), ROUNDS, strict=True):
        pairs = (("distance", "weight", "distance to the average"), ("weight", "reward", "weight"))
        for axes, (x, y, label) in zip(line, pairs, strict=True):
            clear = f"{x} in the clear", f"{y} in the clear"
            axes.plot(
                _column(rows, number, clear[0]),
                _column(rows, number, clear[1]),
                "x",
                color="grey",
                label="in the clear",
            )
            axes.plot(_column(rows, number, x), _column(rows, number, y), "o", fillstyle="none", label="encrypted run")
            axes.set(xlabel=label, ylabel=y, title=f"round {number}")
    figure.axes[0].legend()


FIG_4 = Experiment(
    "fig4",
    "Figure 4: weights and rewards",
    PaidSettings(LearnSettings(), Keys(lanes=1024)),
    PaidSettings(),
    "quick",
    _points,
    _present,
)
