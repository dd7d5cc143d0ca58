"""What the commands print, for people or with --json."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from crowdfl.text import printable_lines

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines and nothing else.")]
SettingsPath = Annotated[Path, typer.Argument(help="The role's settings.toml.")]
_BESIDE = 3  # of a column: a line, and a space on both sides


def show(value: object, *parts: str | Text | Table, as_json: bool) -> None:
    """A value as JSON, or in words and tables."""
    if as_json:
        typer.echo(json.dumps(value, allow_nan=False))
        return
    for part in parts:
        if isinstance(part, str):
            typer.echo(clean(part))
        else:
            _console(part).print(_Clean(part), soft_wrap=isinstance(part, Text))


def write_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], file: Path | None, *, as_json: bool
) -> None:
    """As CSV or JSON, into a file for its owner's eyes alone, or printed."""
    text = io.StringIO()
    if as_json:
        text.write(json.dumps(rows) + "\n")
    else:
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    if file is None:
        typer.echo(text.getvalue(), nl=False)
    else:
        from crowdfl.storage.atomic import write_private

        write_private(file, text.getvalue().encode(), overwrite=True)


def _harmless(value: object) -> object:
    """Others' words are no formula of a spreadsheet's."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t")) else value


def _console(part: Text | Table) -> Console:
    """As wide as the terminal, or as a table needs if no word of it is cut: better a broken line than a lost name."""
    console = Console(highlight=False)
    if isinstance(part, Table):
        cells = [[Text.from_markup(str(cell)).plain for cell in (each.header, *each.cells)] for each in part.columns]
        besides = _BESIDE * len(cells) + 1
        widths = column_widths(cells, console.width - besides)
        for column, width in zip(part.columns, widths, strict=True):
            column.width = width
        console.width = max(console.width, sum(widths) + besides)
    return console


def column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """A width for each column of texts, at most `room` together if no word is cut for that."""
    least = [longest_word(column) for column in columns]
    most = [max((cell_len(line) for cell in column for line in cell.split("\n")), default=0) for column in columns]
    for cap in range(max(most, default=0), 0, -1):
        widths = [max(low, min(high, cap)) for low, high in zip(least, most, strict=True)]
        if sum(widths) <= room:
            return widths
    return least


def longest_word(column: Sequence[str]) -> int:
    return max((cell_len(word) for cell in column for word in cell.split()), default=0)


def clean(text: str) -> str:
    """Lines that may repeat what another party said: nothing in them steers the terminal."""
    return printable_lines(text)


@dataclass(frozen=True)
class _Clean:
    """The same of a text or a table; rich adds its own colours after this."""

    part: Text | Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.part, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)


def marked(notes: Iterable[str]) -> list[Text]:
    return [Text.assemble(("Note:", "yellow"), f" {note}") for note in notes]


def show_event(what: str, details: Mapping[str, Any]) -> None:
    typer.echo(json.dumps({"event": what, **details}))


OwnLearnerName = Annotated[
    str | None,
    typer.Option(
        "--learner",
        help="The task's own code, which you agree to run: package.module:Class, found in this folder or installed.",
    ),
]
OwnLossName = Annotated[
    str | None, typer.Option("--loss", help="The task's own loss, which you agree to run: package.module:function.")
]


def tell_code(*names: str | None) -> None:
    """Load the code, and say on stderr which file it came from: two folders may hold modules of one name."""
    for name in names:
        if name:
            from crowdfl.learning.models.own_code import code_file

            typer.echo(clean(f"your code: {name} from {code_file(name)}"), err=True)
