"""What was measured at the points of a `bench scale` run, and how each cost grows: tables, exponents, a picture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels
from crowdfl_lab.report.results import Cell, Figure, ResultTable

Axes = Mapping[str, tuple[str, tuple[str, ...]]]  # by name: what grows, and the quantities
_BYTES = {"SP to CSP": "to_csp", "CSP to SP": "to_sp"}


@dataclass(frozen=True)
class ScalePoint:
    """What was measured at `x` of an axis, with so many uploads."""

    axis: str
    x: int
    crowd: int
    counts: Mapping[str, int]
    figures: Mapping[str, Figure]

    def figure(self, name: str) -> Figure:
        if name in _BYTES:
            return Figure(self.counts[_BYTES[name]], "B")
        if name == "SP: add, one upload":
            whole = self.figures["SP: add"]
            return Figure(whole.value / self.crowd, "s", whole.sample)
        if name == "stored uploads":
            return Figure(self.crowd * self.figures["upload"].value, "B")
        return self.figures[name]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """b of y = a x^b, by least squares of the logarithms: 1 is proportional, 0 does not grow."""
    slope, _ = np.polyfit(np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64)), 1)
    return float(slope)


def exponents(points: Iterable[ScalePoint], axis: str, axes: Axes) -> dict[str, float]:
    """Of every quantity on an axis that is positive everywhere."""
    series = _series(points, axis, axes[axis][1])
    return {name: exponent(s.x, s.y) for name, s in series.items() if min(s.y) > 0 and len(s.y) > 1}


def _series(points: Iterable[ScalePoint], axis: str, names: Iterable[str]) -> dict[str, Series]:
    on = [point for point in points if point.axis == axis]
    return {name: Series([float(p.x) for p in on], [p.figure(name).value for p in on]) for name in names}


def growth_table(
    points: Sequence[ScalePoint], axis: str, title: str, settings: Mapping[str, Any], axes: Axes
) -> ResultTable:
    label, names = axes[axis]
    on, found = [point for point in points if point.axis == axis], exponents(points, axis, axes)

    def row(name: str) -> tuple[Cell, ...]:
        return name, *(point.figure(name) for point in on), f"{found[name]:.2f}" if name in found else None

    columns = ("one core", *(f"{point.x:,}" for point in on), "exponent")
    return ResultTable(f"Against {label.format(**settings)}; {title}", columns, tuple(map(row, names)))


def growth_picture(points: Sequence[ScalePoint], name: str, shown: Axes, axes: Axes) -> Picture:
    """`shown`: by title, an axis and the quantities."""

    def draw(canvas: Canvas) -> None:
        for panel, (title, (axis, names)) in zip(panels(canvas, len(shown)), shown.items(), strict=True):
            lines(panel, _series(points, axis, names), log=True, title=title, xlabel=axes[axis][0].partition(",")[0])

    return Picture(name, "Time and memory of each role against parameters and participants", draw, (14, 5))
