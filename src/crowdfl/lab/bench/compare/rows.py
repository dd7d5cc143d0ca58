"""What a system costs and keeps from whom, side by side, and what follows from the figures."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from crowdfl.lab.bench import pictures
from crowdfl.lab.bench.rows import Figure
from crowdfl.lab.bench.tables import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["COLUMNS", "WORDS", "Comparison", "System", "remarks"]

COLUMNS = {
    "ahead": "participant, ahead of time",
    "before": "participant, before training",
    "after": "participant, after training",
    "upload": "upload",
    "download": "download",
    "sp": "SP, or the one server",
    "csp": "CSP",
    "servers": "servers together",
    "dropped": "servers, 30% dropped",
    "off": "average off by",
}
_TABLES = {
    "Costs of one round, a participant": {
        "ahead": "ahead of time",
        "before": "before training",
        "after": "after training",
        "upload": "upload",
        "download": "download",
    },
    "Costs of one round, the servers": {
        "sp": "SP, or the one server",
        "csp": "CSP",
        "servers": "together",
        "dropped": "30% dropped",
        "off": "average off by",
    },
}
WORDS = {"drop": "when 30% drop out", "reads": "who can read what", "rewards": "rewards"}
_COMPARED = ("before", "after", "upload", "download", "servers", "dropped", "off")
_EVEN = 1.05  # nearer than this, noise decides who is ahead


@dataclass(frozen=True)
class System:
    """One way to average models: figures and words by column, or why there are none."""

    key: str
    name: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing: str = ""

    @property
    def samples(self) -> tuple[str, ...]:
        """What the starred figures stand on, each once."""
        return tuple(dict.fromkeys(figure.sample for figure in self.figures.values() if figure.sample))

    def cells(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The figures as text; a system that did not run says why in the first cell."""
        if self.missing:
            return (self.missing.rpartition("\n")[2], *("" for _ in list(columns)[1:]))
        return tuple(str(self.figures[column]) if column in self.figures else "-" for column in columns)


@dataclass(frozen=True)
class Comparison:
    """A whole run."""

    name: ClassVar[str] = "compare"
    title: str
    machine: dict[str, str | int]
    setting: dict[str, Any]
    versions: dict[str, str]
    systems: tuple[System, ...]

    def tables(self) -> tuple[TextTable, ...]:
        """A participant's costs, the servers', then what is kept from whom."""
        words = tuple((system.name, *(system.words.get(column, "") for column in WORDS)) for system in self.systems)
        return (
            *(self._costs(title, headers) for title, headers in _TABLES.items()),
            TextTable("What happens to whom", ("system", *WORDS.values()), words),
        )

    def _costs(self, title: str, headers: Mapping[str, str]) -> TextTable:
        rows = tuple((system.name, *system.cells(headers)) for system in self.systems)
        return TextTable(f"{title}, {self.title}", ("system", *headers.values()), rows)

    @property
    def lines(self) -> tuple[str, ...]:
        """What is to be said under the tables: who is ahead where, and how the figures came about."""
        how = [
            f"{system.name}: " + "; ".join([*system.notes, *(f"* from {sample}" for sample in system.samples)])
            for system in self.systems
            if system.notes or system.samples
        ]
        return (*remarks(self.systems), *how)

    def draw(self, figure: "Picture") -> None:
        """Time of a participant, bytes, time of the servers, on logarithmic scales."""
        shown = [system for system in self.systems if not system.missing]
        panels = {
            "participant, before and after training (s)": ("before", "after"),
            "upload and download (bytes)": ("upload", "download"),
            "servers together (s)": ("servers",),
        }
        values = {
            title: [sum(system.figures[column].value for column in columns) for system in shown]
            for title, columns in panels.items()
        }
        pictures.bars(figure, [s.name for s in shown], [s.words["kind"] == "crowdfl" for s in shown], values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"remarks": list(remarks(self.systems))}


def remarks(systems: Iterable[System]) -> tuple[str, ...]:
    """Where each other system is better than ours, and where worse, by the figures of this run alone."""
    measured = {system.key: system for system in systems if not system.missing}
    ours = measured.get("shown")
    if ours is None:
        return ()
    lines = []
    for other in measured.values():
        if other.words.get("kind") != "peer":
            continue
        better, worse = _sides(ours, other)
        if "ahead" not in other.figures:
            better.append(f"nothing to make ahead of time (CrowdFL {ours.figures['ahead']})")
        lines.append(
            f"{other.name}, beside CrowdFL ({ours.name}), is better in: {'; '.join(better) or 'nothing measured here'}. "
            f"Worse in: {'; '.join(worse) or 'nothing measured here'}."
        )
    return tuple(lines)


def _sides(ours: System, other: System) -> tuple[list[str], list[str]]:
    better: list[str] = []
    worse: list[str] = []
    for column in _COMPARED:
        mine, theirs = ours.figures.get(column), other.figures.get(column)
        if mine is None or theirs is None:
            continue
        low, high = sorted((mine.value, theirs.value))
        if high < _EVEN * low:
            continue
        times = f", {_times(high / low)}" if low else ""
        text = f"{COLUMNS[column]} ({theirs} against {mine}{times})"
        (better if theirs.value < mine.value else worse).append(text)
    return better, worse


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio < 999.5 else f"{ratio:,.0f} times"
