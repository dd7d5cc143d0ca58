"""Tables of text that print on a terminal and in Markdown alike, and the files of a run made of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from crowdfl.lab.bench import pictures
from crowdfl.lab.bench.rows import Grid

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
    def machine(self) -> dict[str, str | int]:
        """Where it ran."""

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


def markdown(run: Run, picture: str = "") -> str:
    """A whole page: where and when, the picture, tables and what is to be said under them."""
    where = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in run.machine.items())
    shown = f"![{run.name}]({picture})\n\n" if picture else ""
    tables = "\n".join(table.markdown() for table in run.tables())
    lines = "".join(f"\n- {_escaped(line)}" for line in run.lines)
    return f"# A run of `crowdfl bench {run.name}`\n\n{date.today()}; {where}.\n\n{shown}{tables}{lines}\n"


def write(run: Run, folder: Path) -> tuple[Path, ...]:
    """The run as JSON, as Markdown and, where Matplotlib is installed, as a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = pictures.save(run.draw, folder, run.name)
    paths = folder / f"{run.name}.json", folder / f"{run.name}.md"
    for path, text in zip(paths, (as_json(run), markdown(run, drawn[-1].name if drawn else "")), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths + drawn


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")
