"""Figure 6: how long averaging and decrypting a model take."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crowdfl.lab.experiments.clocked import ClockSettings, clock_points, fits
from crowdfl.lab.experiments.fig5 import FIG_5
from crowdfl.lab.experiments.frame import Experiment, Part, Picture
from crowdfl.lab.experiments.pictures import panels
from crowdfl.lab.experiments.points import Rows
from crowdfl.lab.experiments.published import FIGURES
from crowdfl.lab.experiments.sweeps import clock_remarks, draw_sweep, fit_table, sweep_table, times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG_6"]

_PHASES = ("average", "decrypt", "decrypt, small")


def _present(settings: ClockSettings, results: Sequence[Rows]) -> Part:
    timed = [row for rows in results for row in rows]
    lines = fits(settings, timed, _PHASES)
    picture = Picture(
        "fig6", "Averaging time and decrypting time", lambda f: _draw(f, settings, timed), inches=(13.0, 4.2)
    )
    averaging = times(lines, [("PPFDL", "average")], ("paper", "average"))
    reading = times(lines, [("paper", "decrypt")], ("PPFDL", "decrypt"))
    small = times(lines, [("paper", "decrypt, small")], ("PPFDL", "decrypt"))
    remarks = (
        *(f"Paper: {said}" for said in FIGURES["fig6"]),
        f"Here, by slopes over parameters with {settings.crowd} participants: PPFDL's averaging takes {averaging} as long as "
        f"`paper`'s, decrypting in `paper` {reading} as long as PPFDL's, and with the small share {small} as long.",
        "INSECURE: the small share, lambda_p = 2, leaves SP with eps - 2, from which it has the whole key. No profile uses it; "
        "`crowdfl audit` takes it apart.",
        "In `hardened` nobody decrypts on a phone: reading unseals and subtracts, without a power.",
        *clock_remarks(settings),
    )
    return Part([*timed, *lines], (sweep_table(settings, timed, _PHASES), fit_table(lines)), (picture,), remarks)


def _draw(figure: "Figure", settings: ClockSettings, timed: Rows) -> None:
    left, middle, right = panels(figure, 3)
    draw_sweep(left, settings, timed, "average", "parameters")
    left.set_title(f"(a) averaging, {settings.crowd} participants")
    draw_sweep(middle, settings, timed, "average", "participants")
    middle.set_title("(a) averaging, few parameters")
    draw_sweep(right, settings, timed, "decrypt", "parameters", {"decrypt, small": "INSECURE: paper, small share"})
    right.set_title("(b) decrypting")


FIG_6 = Experiment(
    "fig6",
    "Figure 6: averaging and decrypting",
    FIG_5.full,
    FIG_5.quick,
    "full",
    clock_points,
    _present,
)
