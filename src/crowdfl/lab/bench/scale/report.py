"""The points of a `bench scale` run as tables with fitted exponents, a picture and JSON."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from crowdfl.lab.bench import pictures
from crowdfl.lab.bench.scale.fit import exponent
from crowdfl.lab.bench.scale.plan import plan_table
from crowdfl.lab.bench.scale.point import Point
from crowdfl.lab.bench.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["Growth"]

_ALL = "participant: encrypt", "participant: read", "SP: add, one upload", "SP: publish", "CSP: publish"
_MEMORY = "participant: memory, working", "participant: memory, reading", "SP: memory, working", "CSP: memory, working"
_AXES = {
    "parameters": ("parameters, 3 uploads", (*_ALL, *_MEMORY, "upload", "publication", "SP to CSP", "CSP to SP")),
    "participants": (
        "participants",
        ("SP: add", "SP: publish", "CSP: publish", "SP: memory, working", "CSP: memory, working", "stored uploads"),
    ),
    "rewarded": (
        "participants with rewards",
        ("SP: reward", "CSP: reward", "SP: memory, working", "CSP: memory, working", "SP to CSP", "CSP to SP"),
    ),
    "key": ("bits of N, 3 uploads", (*_ALL, *_MEMORY, "upload", "publication")),
}


@dataclass(frozen=True)
class Growth:
    """A whole run."""

    name: ClassVar[str] = "scale"
    title: str
    machine: dict[str, str | int]
    setting: dict[str, Any]
    points: tuple[Point, ...]

    def tables(self) -> tuple[TextTable, ...]:
        """A table for each axis, and the way to a million participants."""
        return (*(self._table(axis) for axis in _AXES), plan_table(self.points))

    def _on(self, axis: str) -> list[Point]:
        return [point for point in self.points if point.axis == axis]

    def _table(self, axis: str) -> TextTable:
        label, names = _AXES[axis]
        points = self._on(axis)
        fixed = f", {self.setting['crowd_parameters']:,} parameters" if axis in ("participants", "rewarded") else ""
        fixed = f", {self.setting['key_parameters']:,} parameters" if axis == "key" else fixed
        fixed += f", {self.setting['rewarded_lanes'][0]} lanes" if axis == "rewarded" else ""
        rows = tuple((name, *(str(point.figure(name)) for point in points), self._shown(axis, name)) for name in names)
        return TextTable(
            f"Against {label}{fixed}; {self.title}", ("one core", *(f"{p.x:,}" for p in points), "exponent"), rows
        )

    def _shown(self, axis: str, name: str) -> str:
        found = self.exponents(axis).get(name)
        return "-" if found is None else f"{found:.2f}"

    def exponents(self, axis: str) -> dict[str, float]:
        """Of every quantity on an axis that is positive everywhere."""
        points = self._on(axis)
        series = {name: [point.figure(name).value for point in points] for name in _AXES[axis][1]}
        x = [point.x for point in points]
        return {name: exponent(x, y) for name, y in series.items() if min(y) > 0 and len(y) > 1}

    @property
    def lines(self) -> tuple[str, ...]:
        """How the figures came about."""
        samples = dict.fromkeys(
            figure.sample for point in self.points for figure in point.figures.values() if figure.sample
        )
        return (
            "Processor time of each role in a fresh process on one core; memory is what its peak (VmHWM) grew by after "
            "everything was built. "
            "Exponents are fitted by least squares of the logarithms: 1 is proportional.",
            *(
                f"* from {sample} of each batch, the rest by proportion; everything else is done in full"
                for sample in samples
            ),
        )

    def draw(self, figure: "Picture") -> None:
        """Time and memory against parameters, time against participants."""
        panels = {
            "seconds of one core": ("parameters", _ALL),
            "memory (bytes)": ("parameters", _MEMORY),
            "seconds of one core, uploads": ("participants", ("SP: add", "SP: publish", "CSP: publish")),
            "seconds of one core, rewards": ("rewarded", ("SP: reward", "CSP: reward")),
        }
        pictures.lines(
            figure, {title: (_AXES[axis][0], self._series(axis, names)) for title, (axis, names) in panels.items()}
        )

    def _series(self, axis: str, names: Iterable[str]) -> dict[str, tuple[list[float], list[float]]]:
        points = self._on(axis)
        return {name: ([float(p.x) for p in points], [p.figure(name).value for p in points]) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {
            "exponents": {axis: self.exponents(axis) for axis in _AXES},
            "plan": [list(row) for row in plan_table(self.points).rows],
        }
