"""What a run found: figures with units, rows with targets, tables, and the whole with its machine and settings.

A benchmark, an experiment, an audit and a demo all end in a `Result`; `crowdfl_lab.report.output` prints and writes it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from crowdfl.version import __version__
from crowdfl_lab.report.plots import Picture

Unit = Literal["s", "B", "%", ""]
_PREFIXES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "%": ((1.0, "%"),),
    "": ((1.0, ""),),
}
_MET = {True: "yes", False: "no", None: "-"}
_STARRED = "* extrapolated from a sample, or a mean over one; see the line of the row's number"


@dataclass(frozen=True)
class Figure:
    """A measured number; `sample` says what it was extrapolated from when not all of it was measured. No unit: a count."""

    value: float
    unit: Unit
    sample: str = ""

    def __str__(self) -> str:
        steps = _PREFIXES[self.unit]
        scale, name = next((step for step in steps if abs(self.value) >= step[0]), steps[-1])
        scaled = self.value / scale
        number = f"{scaled:.3g}" if abs(scaled) < 999.5 else f"{scaled:,.0f}"
        return f"{number} {name}".strip() + (" *" if self.sample else "")


Cell = str | int | float | Figure | None


def cell_text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def cell_value(cell: Cell) -> str | float | None:
    """A figure's number in full, in its base unit."""
    return cell.value if isinstance(cell, Figure) else cell


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or re.fullmatch(r"-|-?[\d,.]+(e[-+]?\d+)?", cell) is not None


@dataclass(frozen=True)
class ResultTable:
    """A title, columns and rows of cells. `colours` are Rich's, by a cell's text; `note` is one line under the table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)
    folded: bool = False  # on a page, until somebody wants to see it

    @classmethod
    def of_records(cls, title: str, records: Sequence[Mapping[str, Cell]]) -> "ResultTable":
        """A row for each record; a column for each name, in the order in which names occur first."""
        columns = tuple(dict.fromkeys(name for record in records for name in record))
        return cls(title, columns, tuple(tuple(record.get(name) for name in columns) for record in records))

    @property
    def numbers(self) -> set[int]:
        """The places of columns that hold numbers and dashes: they are aligned."""
        columns = enumerate(zip(*self.rows, strict=True))
        return {place for place, cells in columns if all(map(_is_number, cells))}

    def to_dict(self) -> dict[str, Any]:
        rows = [[asdict(cell) if isinstance(cell, Figure) else cell for cell in row] for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}


@dataclass(frozen=True)
class Reference:
    """What a figure is compared with: another figure, or why there is none."""

    name: str
    figure: Figure | None = None
    missing: str = ""

    def __str__(self) -> str:
        # Of a traceback the last line says what went wrong; the whole stays in `missing`.
        return f"{self.name}: {self.figure or self.missing.rpartition(chr(10))[2]}"


@dataclass(frozen=True)
class Target:
    """A bound on a row's ratio or on CrowdFL's own figure."""

    text: str
    of: Literal["ratio", "crowdfl"]
    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, value: float) -> bool:
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Row:
    """One quantity, with a target or for the record. `judged` is False where the run is not the one the target speaks of."""

    key: str
    quantity: str
    crowdfl: Figure
    target: Target | None = None
    peers: tuple[Reference, ...] = ()
    ratio: float | None = None
    ratio_of: str = ""
    judged: bool = True
    note: str = ""

    def over(self, peer: Reference, label: str, *others: Reference) -> "Row":
        """Compared with others: the ratio is our figure over the first one's, if it has any."""
        ratio = self.crowdfl.value / peer.figure.value if peer.figure else None
        return replace(self, peers=(peer, *others), ratio=ratio, ratio_of=label)

    def under(self, peer: Reference, label: str, *others: Reference) -> "Row":
        ratio = peer.figure.value / self.crowdfl.value if peer.figure else None
        return replace(self, peers=(peer, *others), ratio=ratio, ratio_of=label)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where nothing can be said."""
        if self.target is None:
            return None
        value = self.crowdfl.value if self.target.of == "crowdfl" else self.ratio
        return self.target.met_by(value) if self.judged and value is not None else None

    @property
    def cells(self) -> tuple[Cell, ...]:
        ratio = "-" if self.ratio is None else f"{self.ratio:.3g} ({self.ratio_of})"
        compared = "\n".join(map(str, self.peers))
        return self.quantity, self.crowdfl, compared, ratio, self.target.text if self.target else "-", _MET[self.met]

    @property
    def how(self) -> str:
        """How the row's figures were taken, and what the extrapolated ones stand on."""
        figures = [("CrowdFL", self.crowdfl), *((peer.name, peer.figure) for peer in self.peers if peer.figure)]
        samples = [f"{who}: from {figure.sample}" for who, figure in figures if figure.sample]
        return "; ".join([self.note, *samples])


@dataclass(frozen=True)
class Result:
    """A whole run: where and on what it ran, and what it found. `data` holds what only the JSON shows."""

    name: str
    title: str
    machine: Mapping[str, str | int]
    settings: Mapping[str, Any]
    rows: tuple[Row, ...] = ()
    tables: tuple[ResultTable, ...] = ()
    notes: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""

    @property
    def missed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.met is False)

    @property
    def unjudged(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.target is not None and row.met is None)

    @property
    def all_tables(self) -> tuple[ResultTable, ...]:
        """The rows with their targets, if there are any, then the other tables."""
        if not self.rows:
            return self.tables
        columns = "", "quantity", "CrowdFL", "compared with", "ratio", "target", "met"
        rows = tuple((str(number), *row.cells) for number, row in enumerate(self.rows, start=1))
        return ResultTable(self.title, columns, rows, colours={"yes": "green", "no": "red"}), *self.tables

    @property
    def all_notes(self) -> tuple[str, ...]:
        rows = tuple(f"{number:2}  {row.how}" for number, row in enumerate(self.rows, start=1))
        return (*rows, *self.notes, _STARRED) if rows else self.notes

    @property
    def facts(self) -> dict[str, str]:
        """Where and how it was made, one line for each kind of fact; kinds that are empty are left out."""
        kinds = {"machine": self.machine, "compared with": self.versions, "settings": _flat(self.settings)}
        lines = {"command": self.command, "version": __version__}
        lines |= {kind: ", ".join(f"{name} {value}" for name, value in facts.items()) for kind, facts in kinds.items()}
        return {kind: line for kind, line in lines.items() if line}

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "crowdfl": __version__,
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "rows": [asdict(row) | {"met": row.met} for row in self.rows],
            "tables": [table.to_dict() for table in self.tables],
            "notes": list(self.notes),
            **self.data,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value)
        else:
            found[name] = "(" + ", ".join(map(str, value)) + ")" if isinstance(value, list | tuple) else str(value)
    return found
