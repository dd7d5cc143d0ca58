"""Tables and diagrams of the timed sweeps, common to figures 5, 6 and 7."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.lab.experiments.clocked import SCHEMES, ClockSettings, of_sweep
from crowdfl.lab.experiments.frame import Table
from crowdfl.lab.experiments.pictures import fitted_line
from crowdfl.lab.experiments.points import Rows
from crowdfl.lab.experiments.published import FULL_PARAMETERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["clock_remarks", "draw_sweep", "fit_table", "sweep_table", "times"]

_MARKS = dict(zip(SCHEMES, ("o", "s", "^"), strict=True))


def sweep_table(settings: ClockSettings, rows: Rows, phases: Sequence[str]) -> Table:
    """What was measured."""
    shown = [row for scheme in SCHEMES for row in rows if row["scheme"] == scheme]
    cells = tuple(
        (
            str(r["scheme"]),
            f"{r['parameters']:,}",
            str(r["participants"]),
            *(_seconds(r.get(phase)) for phase in phases),
        )
        for r in shown
    )
    return Table("Measured", ("scheme", "parameters", "participants", *(f"{phase}, s" for phase in phases)), cells)


def fit_table(fits: Rows) -> Table:
    """The slopes, and where they lead."""
    cells = tuple(
        (
            str(f["scheme"]),
            str(f["phase"]),
            str(f["fit over"]),
            _seconds(f["slope"]),
            "-" if f["extrapolated to 277,006"] is None else f"{_seconds(f['extrapolated to 277,006'])} *",
        )
        for f in fits
    )
    columns = ("scheme", "phase", "over", "slope, s", "at 277,006 parameters, s (* extrapolated)")
    return Table("Straight lines by least squares", columns, cells)


def times(fits: Rows, above: Sequence[tuple[str, str]], below: tuple[str, str]) -> str:
    """How many times as long some phases take together as another, by seconds per parameter; each is scheme and phase."""
    slopes = [_slope(fits, *each) for each in (*above, below)]
    if min(slopes) <= 0:
        return "an unknown number of times (one of the lines falls)"
    return f"{sum(slopes[:-1]) / slopes[-1]:.3g} times"


def _slope(fits: Rows, scheme: str, phase: str) -> float:
    return next(
        float(f["slope"] or 0)
        for f in fits
        if (f["scheme"], f["phase"], f["fit over"]) == (scheme, phase, "parameters")
    )


def clock_remarks(settings: ClockSettings) -> tuple[str, ...]:
    """What the figures stand on."""
    key = "INSECURE test keys of" if settings.insecure_test_key else "keys of"
    return (
        f"Sweeps over parameters with {settings.crowd} participants, over participants with the fewest parameters; {key} "
        f"{settings.key_bits} bits. `paper` and PPFDL take one ciphertext per parameter, so that theirs are short.",
        "Hollow marks and starred figures are extrapolations along the fitted line to the paper's 277,006 parameters; nothing "
        "of that size was timed in these sweeps.",
    )


def draw_sweep(
    axes: "Axes", settings: ClockSettings, rows: Rows, phase: str, over: str, more: Mapping[str, str] | None = None
) -> None:
    """Points, fitted lines and, over parameters, the extrapolation."""
    series = [(scheme, phase, scheme) for scheme in SCHEMES]
    series += [(scheme, extra, label) for extra, label in (more or {}).items() for scheme in SCHEMES]
    for scheme, name, label in series:
        sweep = [row for row in of_sweep(settings, rows, scheme, over) if row.get(name) is not None]
        if len(sweep) < 2:
            continue
        x, y = ([float(row[key] or 0) for row in sweep] for key in (over, name))
        (line,) = axes.plot(x, y, _MARKS[scheme] if name == phase else "v", label=label)
        start, slope = fitted_line(x, y)
        along = np.geomspace(x[0], FULL_PARAMETERS if over == "parameters" else x[-1], 50)
        heights = start + slope * along
        if heights.min() > 0:  # noise may tilt a short line below zero, which a logarithm does not show
            axes.plot(along, heights, "--", color=line.get_color(), linewidth=1)
            if over == "parameters":
                axes.plot(along[-1:], heights[-1:], _MARKS[scheme], color=line.get_color(), fillstyle="none")
    axes.set(xlabel=over, ylabel=f"{phase}, s", yscale="log")
    if over == "parameters":
        axes.set_xscale("log")
    axes.legend(fontsize=9)


def _seconds(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else "-"
