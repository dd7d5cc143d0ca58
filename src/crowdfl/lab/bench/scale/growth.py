"""The points of a `bench scale` run, how each cost grows, and the tables and the picture of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdfl.lab.report.plots import Picture, Series, lines, panels
from crowdfl.lab.report.results import Cell, Figure, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

__all__ = ["Growth", "ScalePoint", "exponent"]

_ALL = "participant: encrypt", "participant: read", "SP: add, one upload", "SP: publish", "CSP: publish"
_MEMORY = "participant: memory, working", "participant: memory, reading", "SP: memory, working", "CSP: memory, working"
_AXES = {
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
        """A measured figure, or one that follows from it."""
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


@dataclass(frozen=True)
class Growth:
    """All points of a run, with its title and settings."""

    points: tuple[ScalePoint, ...]
    title: str
    settings: Mapping[str, Any]

    def tables(self) -> tuple[ResultTable, ...]:
        return tuple(map(self._table, _AXES))

    def _table(self, axis: str) -> ResultTable:
        label, names = _AXES[axis]
        points, found = self._on(axis), self.exponents(axis)

        def row(name: str) -> tuple[Cell, ...]:
            fitted = f"{found[name]:.2f}" if name in found else None
            return name, *(point.figure(name) for point in points), fitted

        columns = ("one core", *(f"{point.x:,}" for point in points), "exponent")
        return ResultTable(f"Against {label.format(**self.settings)}; {self.title}", columns, tuple(map(row, names)))

    def exponents(self, axis: str) -> dict[str, float]:
        """Of every quantity on an axis that is positive everywhere."""
        series = self._series(axis, _AXES[axis][1])
        return {name: exponent(s.x, s.y) for name, s in series.items() if min(s.y) > 0 and len(s.y) > 1}

    @property
    def notes(self) -> tuple[str, ...]:
        figures = [figure for point in self.points for figure in point.figures.values()]
        samples = dict.fromkeys(figure.sample for figure in figures if figure.sample)
        rest = "of each batch, the rest by proportion; everything else is done in full"
        return (_HOW, *(f"* from {sample} {rest}" for sample in samples))

    @property
    def picture(self) -> Picture:
        return Picture("scale", "Time and memory of each role against parameters and participants", self._draw, (14, 5))

    def _draw(self, canvas: "Canvas") -> None:
        for axes, (title, (axis, names)) in zip(panels(canvas, len(_PANELS)), _PANELS.items(), strict=True):
            lines(axes, self._series(axis, names), log=True, title=title, xlabel=_AXES[axis][0].partition(",")[0])

    def _on(self, axis: str) -> list[ScalePoint]:
        return [point for point in self.points if point.axis == axis]

    def _series(self, axis: str, names: Iterable[str]) -> dict[str, Series]:
        points = self._on(axis)
        return {name: Series([float(p.x) for p in points], [p.figure(name).value for p in points]) for name in names}

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        exponents = {axis: self.exponents(axis) for axis in _AXES}
        return {"points": [asdict(point) for point in self.points], "exponents": exponents}
