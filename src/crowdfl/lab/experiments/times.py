"""Figures 5, 6 and 7: how long training, encrypting, averaging, decrypting and rewards take; and everyone's rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.lab.experiments.clocked import SCHEMES, ClockSettings, clock_points, training_points
from crowdfl.lab.experiments.experiment import Experiment, ExperimentPoint, Part, Record, Records, number
from crowdfl.lab.experiments.federated import PaidSettings, paid_point
from crowdfl.lab.experiments.published import FIGURES, FULL_PARAMETERS
from crowdfl.lab.experiments.rewards import FIG_4, draw_rewards, paid_remarks, reward_table, reward_trend
from crowdfl.lab.report.plots import Picture, Series, lines, panels
from crowdfl.lab.report.results import ResultTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIG_5", "FIG_6", "FIG_7", "RewardSettings", "fits", "of_sweep", "times"]

_MARKS = dict(zip(SCHEMES, ("o", "s", "^"), strict=True))
_EXTRAPOLATED = "extrapolated to 277,006"
_QUICK = ClockSettings(hidden=(10, 50), hardened=(566, 2_776), paper=(2, 5), ppfdl=(1, 2), crowds=(5, 10))


def of_sweep(settings: ClockSettings, rows: Records, scheme: str, over: str) -> Records:
    """The rows of a scheme's sweep over `parameters` or `participants`, in order."""
    mine = [row for row in rows if row["scheme"] == scheme]
    if over == "parameters":
        chosen = [row for row in mine if row["participants"] == settings.crowd]
    else:
        fewest = settings.parameters(scheme)[0]
        chosen = [row for row in mine if row["parameters"] == fewest and row["participants"] in settings.crowds]
    return sorted(chosen, key=lambda row: number(row, over))


def _points_of(
    settings: ClockSettings, rows: Records, scheme: str, over: str, phase: str
) -> tuple[list[float], list[float]]:
    """x and y of a sweep, as far as it was timed."""
    sweep = [row for row in of_sweep(settings, rows, scheme, over) if row.get(phase) is not None]
    return [number(row, over) for row in sweep], [number(row, phase) for row in sweep]


def _fitted_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope by least squares."""
    slope, intercept = np.polyfit(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), 1)
    return float(intercept), float(slope)


def fits(settings: ClockSettings, rows: Records, phases: Sequence[str]) -> Records:
    """Lines through each sweep: seconds per parameter and per participant, and the extrapolation to the paper's model."""
    sweeps = [(s, p, over) for p in phases for s in SCHEMES for over in ("parameters", "participants")]
    found: Records = []
    for scheme, phase, over in sweeps:
        x, y = _points_of(settings, rows, scheme, over, phase)
        if len(x) < 2:
            continue
        start, slope = _fitted_line(x, y)
        fit: Record = {"scheme": scheme, "phase": phase, "fit over": over, "intercept": start, "slope": slope}
        # A line that falls is noise, or a cost that does not depend on the size: it leads nowhere.
        whole = start + slope * FULL_PARAMETERS if over == "parameters" and slope > 0 else None
        found.append(fit | {_EXTRAPOLATED: whole})
    return found


def _sweep_table(rows: Records, phases: Sequence[str]) -> ResultTable:
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
    return ResultTable(
        "Measured", ("scheme", "parameters", "participants", *(f"{phase}, s" for phase in phases)), cells
    )


def _fit_table(fits: Records) -> ResultTable:
    """The slopes, and where they lead."""
    cells = tuple(
        (
            str(f["scheme"]),
            str(f["phase"]),
            str(f["fit over"]),
            _seconds(f["slope"]),
            "-" if f[_EXTRAPOLATED] is None else f"{_seconds(f[_EXTRAPOLATED])} *",
        )
        for f in fits
    )
    columns = ("scheme", "phase", "over", "slope, s", "at 277,006 parameters, s (* extrapolated)")
    return ResultTable("Straight lines by least squares", columns, cells)


def times(fits: Records, above: Sequence[tuple[str, str]], below: tuple[str, str]) -> str:
    """How many times as long some phases take together as another, by seconds per parameter; each is scheme and phase."""
    known = {(f["scheme"], f["phase"]): number(f, "slope") for f in fits if f["fit over"] == "parameters"}
    slopes = [known[each] for each in (*above, below)]
    if min(slopes) <= 0:
        return "an unknown number of times (one of the lines falls)"
    return f"{sum(slopes[:-1]) / slopes[-1]:.3g} times"


def _clock_remarks(settings: ClockSettings) -> tuple[str, ...]:
    """What the figures stand on."""
    key = "INSECURE test keys of" if settings.insecure_test_key else "keys of"
    return (
        f"Sweeps over parameters with {settings.crowd} participants, over participants with the fewest parameters; {key} "
        f"{settings.key_bits} bits. `paper` and PPFDL take one ciphertext per parameter, so that theirs are short.",
        "Hollow marks and starred figures are extrapolations along the fitted line to the paper's 277,006 parameters; nothing "
        "of that size was timed in these sweeps.",
    )


def _draw_sweep(
    axes: "Axes", settings: ClockSettings, rows: Records, phase: str, over: str, more: Mapping[str, str] | None = None
) -> None:
    """Points, fitted lines and, over parameters, the extrapolation."""
    series = [(scheme, phase, scheme) for scheme in SCHEMES]
    series += [(scheme, extra, label) for extra, label in (more or {}).items() for scheme in SCHEMES]
    for scheme, name, label in series:
        x, y = _points_of(settings, rows, scheme, over, name)
        if len(x) < 2:
            continue
        (line,) = axes.plot(x, y, _MARKS[scheme] if name == phase else "v", label=label)
        start, slope = _fitted_line(x, y)
        along = np.geomspace(x[0], FULL_PARAMETERS if over == "parameters" else x[-1], 50)
        heights = start + slope * along
        if heights.min() > 0:  # noise may tilt a short line below zero, which a logarithm does not show
            axes.plot(along, heights, "--", color=line.get_color(), linewidth=1)
            if over == "parameters":
                axes.plot(along[-1:], heights[-1:], _MARKS[scheme], color=line.get_color(), fillstyle="none")
    axes.set(xlabel=over, ylabel=f"{phase}, s", yscale="log")
    if over == "parameters":
        axes.set_xscale("log")
    axes.legend()


def _seconds(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else "-"


def _present_fig5(settings: ClockSettings, results: Sequence[Records]) -> Part:
    trained, timed = (_joined(part) for part in (results[: len(settings.hidden)], results[len(settings.hidden) :]))
    slopes = fits(settings, timed, ("encrypt",))
    columns = ("hidden units", "parameters", "first, s", "again, s")
    cells = tuple(
        (str(r["hidden"]), f"{r['parameters']:,}", *(_seconds(r[k]) for k in ("train, first", "train, again")))
        for r in trained
    )
    training = ResultTable("Training one round of 49 windows, 30 epochs, one core", columns, cells)
    picture = Picture("fig5", "Training time and encrypting time", lambda f: _draw_fig5(f, settings, trained, timed))
    slower = sum(number(r, "train, again") > number(r, "train, first") for r in trained)
    remarks = (
        *(f"Paper: {said}" for said in FIGURES["fig5"]),
        f"Here training again, which loads the average first, is slower for {slower} of {len(trained)} sizes.",
        *_clock_remarks(settings),
    )
    tables = (training, _sweep_table(timed, ("encrypt",)), _fit_table(slopes))
    return Part([*trained, *timed, *slopes], tables, (picture,), remarks)


def _draw_fig5(figure: "Figure", settings: ClockSettings, trained: Records, timed: Records) -> None:
    left, right = panels(figure, 2)
    sizes = [number(row, "parameters") for row in trained]
    series = {
        name: Series(sizes, [number(row, f"train, {name}") for row in trained], style=mark)
        for name, mark in (("first", "o-"), ("again", "s--"))
    }
    lines(left, series, xlabel="parameters", ylabel="training, s", title="(a) training a model")
    _draw_sweep(right, settings, timed, "encrypt", "parameters")
    right.set_title("(b) encrypting a model")


def _present_fig6(settings: ClockSettings, results: Sequence[Records]) -> Part:
    timed, phases = _joined(results), ("average", "decrypt", "decrypt, small")
    slopes = fits(settings, timed, phases)
    averaging = times(slopes, [("PPFDL", "average")], ("paper", "average"))
    reading = times(slopes, [("paper", "decrypt")], ("PPFDL", "decrypt"))
    small = times(slopes, [("paper", "decrypt, small")], ("PPFDL", "decrypt"))
    remarks = (
        *(f"Paper: {said}" for said in FIGURES["fig6"]),
        f"Here, by slopes over parameters with {settings.crowd} participants: PPFDL's averaging takes {averaging} as long as "
        f"`paper`'s, decrypting in `paper` {reading} as long as PPFDL's, and with the small share {small} as long.",
        "INSECURE: the small share, lambda_p = 2, leaves SP with eps - 2, from which it has the whole key. No profile uses it; "
        "`crowdfl audit` takes it apart.",
        "In `hardened` nobody decrypts on a phone: reading unseals and subtracts, without a power.",
        *_clock_remarks(settings),
    )
    caption = "Averaging time and decrypting time"
    picture = Picture("fig6", caption, lambda f: _draw_fig6(f, settings, timed), inches=(13.0, 4.2))
    return Part([*timed, *slopes], (_sweep_table(timed, phases), _fit_table(slopes)), (picture,), remarks)


def _draw_fig6(figure: "Figure", settings: ClockSettings, timed: Records) -> None:
    left, middle, right = panels(figure, 3)
    _draw_sweep(left, settings, timed, "average", "parameters")
    left.set_title(f"(a) averaging, {settings.crowd} participants")
    _draw_sweep(middle, settings, timed, "average", "participants")
    middle.set_title("(a) averaging, few parameters")
    _draw_sweep(right, settings, timed, "decrypt", "parameters", {"decrypt, small": "INSECURE: paper, small share"})
    right.set_title("(b) decrypting")


@dataclass(frozen=True)
class RewardSettings:
    """The run of figure 4 and the sweeps of figures 5 and 6."""

    paid: PaidSettings = field(default_factory=PaidSettings)
    clock: ClockSettings = field(default_factory=ClockSettings)


def _present_fig7(settings: RewardSettings, results: Sequence[Records]) -> Part:
    paid, timed, phases = results[0], _joined(results[1:]), ("average", "reward")
    slopes = fits(settings.clock, timed, phases)
    pictures = (
        Picture("fig7a", "(a) Rewards of every participant", lambda f: draw_rewards(f, settings.paid, paid)),
        Picture("fig7b", "(b) Time of the rewards", lambda f: _draw_fig7b(f, settings.clock, timed)),
    )
    both = times(slopes, [("paper", "average"), ("paper", "reward")], ("PPFDL", "average"))
    remarks = (
        *(f"Paper: {said}" for said in FIGURES["fig7"]),
        reward_trend(settings.paid, paid),
        f"Here PriFedAvg and PriRwd of `paper` together take {both} as long per parameter as PPFDL's averaging, with "
        f"{settings.clock.crowd} participants.",
        *paid_remarks(settings.paid, paid),
        *_clock_remarks(settings.clock),
    )
    tables = reward_table(settings.paid, paid), _sweep_table(timed, phases), _fit_table(slopes)
    return Part([*paid, *timed, *slopes], tables, pictures, remarks)


def _draw_fig7b(figure: "Figure", settings: ClockSettings, timed: Records) -> None:
    for axes, over in zip(panels(figure, 2), ("participants", "parameters"), strict=True):
        _draw_sweep(axes, settings, timed, "reward", over)


def _joined(results: Sequence[Records]) -> Records:
    return [row for rows in results for row in rows]


def _fig5_points(settings: ClockSettings) -> list[ExperimentPoint]:
    return [*training_points(settings), *clock_points(settings)]


def _fig7_points(settings: RewardSettings) -> list[ExperimentPoint]:
    return [paid_point(settings.paid), *clock_points(settings.clock)]


_FULL = ClockSettings()
FIG_5 = Experiment("fig5", "Figure 5: training and encrypting", _FULL, _QUICK, "full", _fig5_points, _present_fig5)
FIG_6 = Experiment("fig6", "Figure 6: averaging and decrypting", _FULL, _QUICK, "full", clock_points, _present_fig6)
FIG_7 = Experiment(
    "fig7",
    "Figure 7: rewards and their time",
    RewardSettings(FIG_4.full, _FULL),
    RewardSettings(FIG_4.quick, _QUICK),
    "mixed",
    _fig7_points,
    _present_fig7,
    RewardSettings(FIG_4.quick, _FULL),
)
