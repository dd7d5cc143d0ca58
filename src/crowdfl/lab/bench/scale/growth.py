"""The points of a `bench scale` run, how each cost grows, and the tables and the picture of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdfl.lab.report.plots import Picture, Series, lines, panels
from crowdfl.lab.report.results import Cell, Figure, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

__all__ = ["AXES", "ScalePoint", "exponent", "exponents", "notes", "picture", "table"]

_ALL = "participant: encrypt", "participant: read", "SP: add, one upload", "SP: publish", "CSP: publish"
_MEMORY = "participant: memory, working", "participant: memory, reading", "SP: memory, working", "CSP: memory, working"
AXES = {
    "parameters": ("parameters, 3 uploads", (*_ALL, *_MEMORY, "upload", "publication", "SP to CSP", "CSP to SP")),
    "participants": (
        "participants, {crowd_parameters:,} parameters",
        ("SP: add", "SP: publish", "CSP: publish", "SP: memory, working", "CSP: memory, working", "stored uploads"),
    ),
    "rewarded": (
        "participants with rewards, {crowd_parameters:,} parameters, {rewarded_lanes[0]} lanes",
        ("SP: reward", "CSP: reward", "SP: memory, working", "CSP: memory, working", "SP to CSP", "CSP to SP"),
    ),
    "key": ("bits of N, 3 uploads, {key_parameters:,} parameters", (*_ALL, *_MEMORY, "upload", "publication")),
}
_PANELS = {
    "seconds of one core": ("parameters", _ALL),
    "memory (bytes)": ("parameters", _MEMORY),
    "seconds of one core, uploads": ("participants", ("SP: add", "SP: publish", "CSP: publish")),
    "seconds of one core, rewards": ("rewarded", ("SP: reward", "CSP: reward")),
}
_BYTES = {"SP to CSP": "to_csp", "CSP to SP": "to_sp"}
_HOW = (
    "Processor time of each role in a fresh process on one core; memory is what its peak (VmHWM) grew by after everything "
    "was built. Exponents are fitted by least squares of the logarithms: 1 is proportional."
)


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


def exponents(points: Iterable[ScalePoint], axis: str) -> dict[str, float]:
    """Of every quantity on an axis that is positive everywhere."""
    series = _series(points, axis, AXES[axis][1])
    return {name: exponent(s.x, s.y) for name, s in series.items() if min(s.y) > 0 and len(s.y) > 1}


def _series(points: Iterable[ScalePoint], axis: str, names: Iterable[str]) -> dict[str, Series]:
    on = [point for point in points if point.axis == axis]
    return {name: Series([float(p.x) for p in on], [p.figure(name).value for p in on]) for name in names}


def table(points: Sequence[ScalePoint], axis: str, title: str, settings: Mapping[str, Any]) -> ResultTable:
    label, names = AXES[axis]
    on, found = [point for point in points if point.axis == axis], exponents(points, axis)

    def row(name: str) -> tuple[Cell, ...]:
        return name, *(point.figure(name) for point in on), f"{found[name]:.2f}" if name in found else None

    columns = ("one core", *(f"{point.x:,}" for point in on), "exponent")
    return ResultTable(f"Against {label.format(**settings)}; {title}", columns, tuple(map(row, names)))


def notes(points: Iterable[ScalePoint]) -> tuple[str, ...]:
    samples = dict.fromkeys(figure.sample for point in points for figure in point.figures.values() if figure.sample)
    rest = "of each batch, the rest by proportion; everything else is done in full"
    return (_HOW, *(f"* from {sample} {rest}" for sample in samples))


def picture(points: Sequence[ScalePoint]) -> Picture:
    def draw(canvas: "Canvas") -> None:
        for axes, (title, (axis, names)) in zip(panels(canvas, len(_PANELS)), _PANELS.items(), strict=True):
            lines(axes, _series(points, axis, names), log=True, title=title, xlabel=AXES[axis][0].partition(",")[0])

    return Picture("scale", "Time and memory of each role against parameters and participants", draw, (14, 5))
