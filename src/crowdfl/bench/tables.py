"""Tables of text that print on a terminal and in Markdown alike, and the files of a run made of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from crowdfl.bench import pictures
from crowdfl.bench.rows import Grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Run", "TextTable", "as_json", "grid_table", "markdown", "write"]


@dataclass(frozen=True)
class TextTable:
    """A title, a header and rows of cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table with its title in front."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return f"{self.title}:\n\n" + "\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in lines) + "\n"


class Run(Protocol):
    """A finished run that can be shown."""

    name: ClassVar[str]

    @property
    def lines(self) -> Sequence[str]:
        """What is to be said under the tables."""

    def tables(self) -> Sequence[TextTable]:
        """Its figures."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""

    def draw(self, figure: "Figure") -> None:
        """Its picture."""


def grid_table(grid: Grid) -> TextTable:
    """A grid of figures as text."""
    return TextTable(grid.title, ("", *grid.columns), tuple((name, *map(str, cells)) for name, cells in grid.rows))


def as_json(run: Run) -> str:
    """One object."""
    return json.dumps(run.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def markdown(run: Run) -> str:
    """Tables and what is to be said under them, ready for a page."""
    tables = "\n".join(table.markdown() for table in run.tables())
    return tables + "".join(f"\n- {_escaped(line)}" for line in run.lines) + "\n"


def write(run: Run, folder: Path) -> tuple[Path, ...]:
    """The run as JSON, as Markdown and, where Matplotlib is installed, as a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{run.name}.json", folder / f"{run.name}.md"
    for path, text in zip(paths, (as_json(run), markdown(run)), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths + pictures.save(run.draw, folder, run.name)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")
