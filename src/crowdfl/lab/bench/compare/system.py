"""What `crowdfl bench compare` sets side by side: its sizes, a system with its figures and words, and who is ahead where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crowdfl.crypto.budget import WidthBudget
from crowdfl.lab.bench.workload import SIGMA, BenchSettings
from crowdfl.lab.report.results import Cell, Figure, Unit
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings

__all__ = [
    "COLUMNS",
    "GOES_ON",
    "PAPER_COMPARE",
    "QUICK_COMPARE",
    "VARIANTS",
    "CompareSettings",
    "System",
    "Variant",
    "figures_of",
    "remarks",
]

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
GOES_ON = "goes on with those who sent"
_COMPARED = ("before", "after", "upload", "download", "servers", "dropped", "off")
_UNITS: dict[str, Unit] = {"upload": "B", "download": "B", "off": ""}  # the others: seconds
_EVEN = 1.05  # nearer than this, noise decides who is ahead


@dataclass(frozen=True)
class Variant:
    """A kind of `hardened` task."""

    hidden: bool
    rewards: bool

    @property
    def key(self) -> str:
        return ("hidden" if self.hidden else "shown") + ("_rewards" if self.rewards else "")

    @property
    def name(self) -> str:
        total, rewards = "hidden" if self.hidden else "shown", "on" if self.rewards else "off"
        return f"hardened, total {total}, rewards {rewards}"


VARIANTS = tuple(Variant(hidden, rewards) for hidden in (False, True) for rewards in (False, True))


@dataclass(frozen=True, kw_only=True)
class CompareSettings(BenchSettings):
    """The same model and crowd for all; samples of what takes too long whole."""

    dropped: int = 11  # 30%, rounded
    slices: tuple[int, int] = (72, 144)  # ciphertexts of the servers' samples
    crowds: tuple[int, int] = (3, 6)  # participants of the rewards' samples
    paper_sizes: tuple[tuple[int, int], ...] = ((4, 3), (8, 6))  # parameters and participants
    phe_sample: int = 40
    reads: int = 3

    @property
    def present(self) -> int:
        """Those who are left when 30% drop out."""
        return self.participants - self.dropped

    def variant_task(self, variant: Variant) -> TaskSettings:
        lanes = self.lanes if variant.rewards else 0
        return self.task(total="hidden" if variant.hidden else "shown", lanes=lanes)

    def budget(self, variant: Variant, parameters: int | None = None) -> WidthBudget:
        return width_budget(self.variant_task(variant), parameters or self.parameters, SIGMA)


PAPER_COMPARE = CompareSettings()
QUICK_COMPARE = CompareSettings(
    parameters=2000,
    participants=6,
    dropped=2,
    lanes=40,
    slices=(4, 8),
    crowds=(3, 4),
    paper_sizes=((1, 3), (2, 3)),
    phe_sample=2,
    reads=1,
)


def figures_of(values: Mapping[str, float], sample: str = "") -> dict[str, Figure]:
    """Figures by column, each in its column's unit."""
    return {column: Figure(value, _UNITS.get(column, "s"), sample) for column, value in values.items()}


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
        """What the extrapolated figures stand on, each once."""
        return tuple(dict.fromkeys(figure.sample for figure in self.figures.values() if figure.sample))

    def cells(self, columns: Iterable[str]) -> tuple[Cell, ...]:
        """The figures; a system that did not run says why in the first cell."""
        if self.missing:
            return (self.missing.rpartition("\n")[2], *("" for _ in list(columns)[1:]))
        return tuple(self.figures.get(column) for column in columns)


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
