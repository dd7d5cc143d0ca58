"""Figures 5, 6 and 7: how long training, encrypting, averaging, decrypting and rewards take; and everyone's rewards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from crowdfl_lab.experiments import clocked
from crowdfl_lab.experiments.clocked import SCHEMES, ClockSettings, clock_points, training_point
from crowdfl_lab.experiments.experiment import Experiment, ExperimentPoint, Part
from crowdfl_lab.experiments.published import FULL_PARAMETERS, remarks
from crowdfl_lab.experiments.records import Record, Records, joined, number, table_of
from crowdfl_lab.experiments.rewards import FIG_4, PaidSettings, paid_points, reward_part
from crowdfl_lab.report.plots import Axes, Canvas, Picture, Series, lines, panels

_MARKS = dict(zip(SCHEMES, ("o", "D", "s", "^"), strict=True))
_EXTRAPOLATED = "extrapolated to 277,006"
_TRAINED = {
    "hidden units": "hidden",
    "parameters": "parameters",
    "first, s": "train, first",
    "again, s": "train, again",
}
_FITTED = {
    "scheme": "scheme",
    "phase": "phase",
    "over": "fit over",
    "slope, s": "slope",
    "at 277,006 parameters, s (* extrapolated)": "starred",
}


@dataclass(frozen=True)
class Sweeps:
    """Timed rounds over `parameters` and over `participants`, and straight lines through some of their phases."""

    settings: ClockSettings
    rows: Records
    phases: tuple[str, ...]

    def of(self, scheme: str, over: str) -> Records:
        mine = [row for row in self.rows if row["scheme"] == scheme]
        if over == "parameters":
            chosen = [row for row in mine if row["participants"] == self.settings.crowd]
        else:
            fewest, crowds = self.settings.parameters(scheme)[0], self.settings.crowds
            chosen = [row for row in mine if row["parameters"] == fewest and row["participants"] in crowds]
        return sorted(chosen, key=lambda row: number(row, over))

    def line(self, scheme: str, phase: str, over: str) -> tuple[list[float], list[float], float, float] | None:
        """x, y, and the intercept and slope of the line through them by least squares; one point makes no line."""
        sweep = [row for row in self.of(scheme, over) if row.get(phase) is not None]
        if len(sweep) < 2:
            return None
        x, y = ([number(row, name) for row in sweep] for name in (over, phase))
        slope, intercept = np.polyfit(x, y, 1)
        return x, y, float(intercept), float(slope)

    def fits(self) -> Records:
        """Seconds per parameter and per participant, and the extrapolation to the paper's model."""
        found: Records = []
        for phase, scheme, over in product(self.phases, self.settings.schemes, ("parameters", "participants")):
            line = self.line(scheme, phase, over)
            if line is not None:
                x, _, start, slope = line
                fit: Record = {"scheme": scheme, "phase": phase, "fit over": over, "intercept": start, "slope": slope}
                # A line that falls is noise, or a cost that does not depend on the size: it leads nowhere.
                leads = over == "parameters" and slope > 0 and max(x) < FULL_PARAMETERS
                whole = start + slope * FULL_PARAMETERS if leads else None
                found.append(fit | {_EXTRAPOLATED: whole})
        return found

    def times(self, above: Sequence[tuple[str, str]], below: tuple[str, str]) -> str:
        """How many times as long some phases take together as another, by seconds per parameter; each is scheme and phase."""
        known = {(f["scheme"], f["phase"]): number(f, "slope") for f in self.fits() if f["fit over"] == "parameters"}
        slopes = [known.get(each, 0.0) for each in (*above, below)]
        if min(slopes) <= 0:
            return "an unknown number of times (one of the lines falls, or is not there)"
        return f"{sum(slopes[:-1]) / slopes[-1]:.3g} times"

    def part(self, name: str, before: Part, pictures: tuple[Picture, ...], **found: object) -> Part:
        """A figure's part, after what it has besides the sweeps; `found` is for its remarks."""
        sizes = {name: name for name in ("scheme", "parameters", "participants")}
        fits = self.fits()
        starred = [fit | {"starred": f"{whole:.3g} *"} if (whole := fit[_EXTRAPOLATED]) else fit for fit in fits]
        tables = (
            table_of("Measured", self.rows, sizes | {f"{phase}, s": phase for phase in self.phases}),
            table_of("Straight lines by least squares", starred, _FITTED),
        )
        key = "INSECURE test keys of" if self.settings.insecure_test_key else "keys of"
        said = remarks(name, self.settings, **found) + remarks("sweeps", self.settings, key=key)
        return Part(
            [*before.records, *self.rows, *fits],
            before.tables + tables,
            before.pictures + pictures,
            before.remarks + said,
        )

    def draw(self, axes: Axes, phase: str, over: str = "parameters", title: str = "") -> None:
        """Points, fitted lines and, over parameters, the extrapolation."""
        series = [(scheme, phase, _MARKS[scheme], scheme) for scheme in self.settings.schemes]
        if phase == "decrypt":
            series.append(("paper", "decrypt, small", "v", "INSECURE: paper, small share"))
        for scheme, name, mark, label in series:
            line = self.line(scheme, name, over)
            if line is None:
                continue
            x, y, start, slope = line
            (drawn,) = axes.plot(x, y, mark, label=label)
            along = np.geomspace(x[0], FULL_PARAMETERS if over == "parameters" else x[-1], 50)
            heights = start + slope * along
            if heights.min() > 0:  # noise may tilt a short line below zero, which a logarithm does not show
                axes.plot(along, heights, "--", color=drawn.get_color(), linewidth=1)
                if over == "parameters" and x[-1] < FULL_PARAMETERS:
                    axes.plot(along[-1:], heights[-1:], _MARKS[scheme], color=drawn.get_color(), fillstyle="none")
        axes.set(xlabel=over, ylabel=f"{phase}, s", yscale="log", title=title)
        if over == "parameters":
            axes.set_xscale("log")
        axes.legend()


def _present_fig5(settings: ClockSettings, results: Sequence[Records]) -> Part:
    trained = joined(results[: len(settings.hidden)])
    sweeps = Sweeps(settings, joined(results[len(settings.hidden) :]), ("encrypt",))

    def draw(canvas: Canvas) -> None:
        left, right = panels(canvas, 2)
        sizes = [number(row, "parameters") for row in trained]
        series = {
            name: Series(sizes, [number(row, f"train, {name}") for row in trained], style=mark)
            for name, mark in (("first", "o-"), ("again", "s--"))
        }
        lines(left, series, xlabel="parameters", ylabel="training, s", title="(a) training a model")
        sweeps.draw(right, "encrypt", title="(b) encrypting a model")

    table = table_of("Training one round of 49 windows, 30 epochs, one core", trained, _TRAINED)
    slower = sum(number(r, "train, again") > number(r, "train, first") for r in trained)
    picture = Picture("fig5", "Training time and encrypting time", draw)
    return sweeps.part("fig5", Part(trained, (table,)), (picture,), slower=slower, sizes=len(trained))


def _present_fig6(settings: ClockSettings, results: Sequence[Records]) -> Part:
    sweeps = Sweeps(settings, joined(results), ("average", "decrypt", "decrypt, small"))

    def draw(canvas: Canvas) -> None:
        left, middle, right = panels(canvas, 3)
        sweeps.draw(left, "average", title=f"(a) averaging, {settings.crowd} participants")
        sweeps.draw(middle, "average", "participants", "(a) averaging, few parameters")
        sweeps.draw(right, "decrypt", title="(b) decrypting")

    return sweeps.part(
        "fig6",
        Part([]),
        (Picture("fig6", "Averaging time and decrypting time", draw, inches=(13.0, 4.2)),),
        averaging=sweeps.times([("PPFDL", "average")], ("paper", "average")),
        reading=sweeps.times([("paper", "decrypt")], ("PPFDL", "decrypt")),
        small=sweeps.times([("paper", "decrypt, small")], ("PPFDL", "decrypt")),
    )


@dataclass(frozen=True)
class RewardSettings:
    """The run of figure 4 and the sweeps of figures 5 and 6."""

    paid: PaidSettings = field(default_factory=PaidSettings)
    clock: ClockSettings = field(default_factory=ClockSettings)


def _present_fig7(settings: RewardSettings, results: Sequence[Records]) -> Part:
    paid = len(settings.paid.chosen)
    sweeps = Sweeps(settings.clock, joined(results[paid:]), ("average", "reward"))

    def draw(canvas: Canvas) -> None:
        for axes, over in zip(panels(canvas, 2), ("participants", "parameters"), strict=True):
            sweeps.draw(axes, "reward", over)

    picture = Picture("fig7b", "(b) Time of the rewards", draw)
    both = sweeps.times([("paper", "average"), ("paper", "reward")], ("PPFDL", "average"))
    return sweeps.part("fig7b", reward_part(settings.paid, results[:paid]), (picture,), both=both)


def _fig5_points(settings: ClockSettings) -> list[ExperimentPoint]:
    return [*(training_point(settings, hidden) for hidden in settings.hidden), *clock_points(settings)]


def _fig7_points(settings: RewardSettings) -> list[ExperimentPoint]:
    return [*paid_points(settings.paid), *clock_points(settings.clock)]


def _change_both(name: str, settings: RewardSettings, value: Any) -> RewardSettings:  # noqa: ANN401 -- any option's
    clock = _TIMED[name](settings.clock, value) if name in _TIMED else settings.clock
    return replace(settings, paid=FIG_4.options[name](settings.paid, value), clock=clock)


_FULL = ClockSettings()
_QUICK = ClockSettings(
    hidden=(10, 50), hardened=(566, 2_776), shares=(2_776, 13_856), paper=(2, 5), ppfdl=(1, 2), crowds=(5, 10)
)
_TIMED: dict[str, Callable[[ClockSettings, Any], ClockSettings]] = {
    "lanes": clocked.with_lanes,
    "profile": clocked.with_profiles,
}
FIG_5 = Experiment(
    "fig5", "Figure 5: training and encrypting", _fig5_points, _present_fig5, _FULL, _QUICK, options=_TIMED
)
FIG_6 = Experiment(
    "fig6", "Figure 6: averaging and decrypting", clock_points, _present_fig6, _FULL, _QUICK, options=_TIMED
)
FIG_7 = Experiment(
    "fig7",
    "Figure 7: rewards and their time",
    _fig7_points,
    _present_fig7,
    RewardSettings(FIG_4.full, _FULL),
    RewardSettings(FIG_4.quick, _QUICK),
    "mixed",
    RewardSettings(FIG_4.quick, _FULL),
    options={name: partial(_change_both, name) for name in FIG_4.options},
)
