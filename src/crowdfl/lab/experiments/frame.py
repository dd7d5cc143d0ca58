"""What an experiment is: points to measure, and how to present them. Settings come in two sizes, full and quick."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from crowdfl.lab.experiments.points import Point, Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Experiment", "Part", "Picture", "Size", "Table", "digits", "spread"]

Size = Literal["full", "quick", "mixed"]
Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Table:
    """Cells for people; the CSV holds the numbers in full."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """How to draw a figure, and what it shows."""

    name: str
    caption: str
    draw: "Callable[[Figure], None]" = field(repr=False)
    inches: tuple[float, float] = (9.0, 4.0)


@dataclass(frozen=True)
class Part:
    """An experiment's part of the report: CSV rows, tables, pictures, and what must be said with them."""

    rows: Rows
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment(Generic[Settings]):
    """A table or figure of the paper. `default` is the size that runs when none is asked for."""

    name: str
    title: str
    full: Settings
    quick: Settings
    default: Size
    points: Callable[[Settings], Sequence[Point]]
    present: Callable[[Settings, Sequence[Rows]], Part]
    mixed: Settings | None = None  # where one part of it has time for its full size and another has not

    def settings(self, size: Size) -> Settings:
        """Of one size."""
        if size == "mixed" and self.mixed is not None:
            return self.mixed
        return self.full if size == "full" else self.quick


def digits(value: float) -> str:
    """As the paper's table 3 prints: four digits after the point."""
    return f"{value:.4f}"


def spread(values: Sequence[float]) -> str:
    """Mean and sample standard deviation; of one value, the value."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return digits(mean)
    deviation = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return f"{digits(mean)} ± {digits(deviation)}"
