"""A benchmark's rows: what was measured, what it is compared with, what it was to reach, and whether it does."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Figure", "Grid", "Peer", "Report", "Row", "Target"]

_PREFIXES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "%": ((1.0, "%"),),
    "": ((1.0, ""),),
}


@dataclass(frozen=True)
class Figure:
    """A measured number; `sample` says what it was computed from when not all of it was measured. No unit: a count."""

    value: float
    unit: Literal["s", "B", "%", ""]
    sample: str = ""

    def __str__(self) -> str:
        steps = _PREFIXES[self.unit]
        scale, name = next((step for step in steps if abs(self.value) >= step[0]), steps[-1])
        scaled = self.value / scale
        number = f"{scaled:.3g}" if abs(scaled) < 999.5 else f"{scaled:,.0f}"
        return f"{number} {name}".strip() + (" *" if self.sample else "")


@dataclass(frozen=True)
class Peer:
    """What CrowdFL is compared with: a figure, or why there is none."""

    name: str
    figure: Figure | None = None
    missing: str = ""

    def __str__(self) -> str:
        # Of a traceback the last line says what went wrong; the whole stays in `missing`.
        return f"{self.name}: {self.figure or self.missing.rpartition(chr(10))[2]}"


@dataclass(frozen=True)
class Target:
    """What a row was to reach, by its ratio or by CrowdFL's own figure."""

    text: str
    of: Literal["ratio", "crowdfl"]
    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, value: float) -> bool:
        """Whether a value reaches it; the bound itself does."""
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Row:
    """One quantity, with a target or for the record. `judged` is False where the run is not the one the target speaks of."""

    key: str
    quantity: str
    crowdfl: Figure
    target: Target | None
    peers: tuple[Peer, ...] = ()
    ratio: float | None = None
    ratio_of: str = ""
    judged: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where nothing can be said."""
        if self.target is None:
            return None
        value = self.crowdfl.value if self.target.of == "crowdfl" else self.ratio
        return self.target.met_by(value) if self.judged and value is not None else None


@dataclass(frozen=True)
class Grid:
    """Figures that belong side by side: a name and a figure per column in each row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Figure, ...]], ...]


@dataclass(frozen=True)
class Report:
    """A whole run: where and on what it ran, and its rows."""

    title: str
    machine: dict[str, str | int]
    setting: dict[str, int | bool]
    peers: dict[str, str]
    rows: tuple[Row, ...]
    grids: tuple[Grid, ...] = ()

    @property
    def missed(self) -> tuple[Row, ...]:
        """Rows whose target was judged and not met."""
        return tuple(row for row in self.rows if row.met is False)

    @property
    def unjudged(self) -> tuple[Row, ...]:
        """Rows with a target of which nothing can be said."""
        return tuple(row for row in self.rows if row.target is not None and row.met is None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"rows": [asdict(row) | {"met": row.met} for row in self.rows]}
