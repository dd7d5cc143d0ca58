"""Where a result goes: the terminal, standard output as JSON, and files.

A table has four forms: Rich for a terminal of any width, HTML for a page that looks as the platform's own and is one file,
Markdown for a page of the docs, CSV with the numbers in full.
"""

import base64
import csv
import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as escape_html
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crowdfl.campaigns import report_page
from crowdfl.cli.output import column_widths
from crowdfl_lab.report.plots import draw_png, save_picture
from crowdfl_lab.report.results import Result, ResultTable, cell_text, cell_value

_BARE: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "padding": (0, 1, 0, 0)}
# Rich's options, and what they need of the width besides the texts: for each column, and once.
_STYLES: tuple[tuple[dict[str, Any], int, int], ...] = (({"box": box.HEAVY_HEAD}, 3, 1), (_BARE, 2, 0))
_LINES = 8  # that a cell of a table takes at most
_SOME = 4  # if more than one row in so many takes several lines, there is space between all


def progress_to_stderr() -> Callable[[str], None]:
    """Says on stderr what is being done, so that stdout holds the result alone."""
    console, start = Console(stderr=True, highlight=False), time.monotonic()
    return lambda what: console.print(f"[dim]{time.monotonic() - start:6.1f} s[/dim]  {what}")


def deliver(result: Result, *, as_json: bool = False, out: Path | None = None) -> None:
    """To the terminal or as JSON, and to a folder if one was asked for."""
    written = write_files(result, out) if out is not None else ()
    if as_json:
        sys.stdout.write(result.to_json())
        return
    console = Console(highlight=False)
    print_result(result, console)
    for path in written:
        console.print(f"written: {path}", markup=False)


def print_result(result: Result, console: Console) -> None:
    for table in result.all_tables:
        for part in rich_tables(table, console.width):
            console.print(part)
    for note in result.all_notes:
        console.print(note, markup=False)
    for kind in ("machine", "compared with"):
        if kind in result.facts:
            console.print(f"{kind}: {result.facts[kind]}", markup=False)


def rich_tables(table: ResultTable, width: int) -> Iterator[Table | str]:
    """For a terminal of so many columns: lines break between words only, and nothing is lost.

    A table that is too wide is set without lines; if that does not help either, or a cell would become a thin strip, it is set
    row by row, with its cells one below the other.
    """
    columns = [[name, *(cell_text(row[place]) for row in table.rows)] for place, name in enumerate(table.columns)]
    for options, beside, around in _STYLES:
        room = width - beside * len(columns) - around
        widths = column_widths(columns, room)
        if sum(widths) <= room and all(map(_is_short, columns, widths)):
            yield _rich_table(table, columns, widths, options)
            return
    yield f"[italic]{escape(table.title)}[/italic]"
    for row in table.rows:
        yield f"\n{escape(table.columns[0])} [bold]{escape(cell_text(row[0]))}[/bold]"
        cells = Table.grid(padding=(0, 2, 0, 0))
        for name, cell in zip(table.columns[1:], row[1:], strict=True):
            cells.add_row(escape(name), _coloured(cell_text(cell), table))
        yield cells
    yield ""
    yield escape(table.note)


def _is_short(column: list[str], width: int) -> bool:
    """Whether its longest cell takes a few lines."""
    return max(map(len, column)) <= _LINES * width


def _rich_table(table: ResultTable, columns: list[list[str]], widths: list[int], options: dict[str, Any]) -> Table:
    """Numbers to the right, and space between rows where many need more than one line."""
    shown = Table(title=escape(table.title), caption=escape(table.note) or None, **options)
    for place, (name, width) in enumerate(zip(table.columns, widths, strict=True)):
        shown.add_column(escape(name), justify="right" if place in table.numbers else "left", width=width)
    rows = list(zip(*columns, strict=True))[1:]
    tall = [any(len(text) > room for text, room in zip(row, widths, strict=True)) for row in rows]
    for row in rows:
        shown.add_row(*(_coloured(text, table) for text in row), end_section=sum(tall) > len(rows) // _SOME)
    return shown


def _coloured(text: str, table: ResultTable) -> str:
    colour = table.colours.get(text)
    return f"[{colour}]{escape(text)}[/{colour}]" if colour else escape(text)


def write_files(result: Result, folder: Path) -> tuple[Path, ...]:
    """JSON, Markdown, a page, a CSV for each table, and pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = tuple(path for picture in result.pictures for path in save_picture(picture, folder))
    svg = next((path.name for path in drawn if path.suffix == ".svg"), "")
    made = result.command or result.name
    texts = {".json": result.to_json(), ".md": _markdown_page(result, svg)}
    texts |= {f"-{number}.csv": csv_text(table) for number, table in enumerate(result.all_tables, start=1)}
    texts[".html"] = page_html(f"A run of {made}", (), [section_html(result)])
    paths = {folder / f"{result.name}{ending}": text for ending, text in texts.items()}
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8")
    return (*paths, *drawn)


def csv_text(table: ResultTable) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(map(cell_value, row) for row in table.rows)
    return stream.getvalue()


def _markdown_page(result: Result, picture: str) -> str:
    shown = f"![{result.name}]({picture})\n\n" if picture else ""
    where = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in result.machine.items())
    tables = "\n".join(map(markdown_table, result.all_tables))
    notes = "".join(f"\n- {_escape_markdown(note.strip())}" for note in result.all_notes)
    return f"# A run of `{result.command or result.name}`\n\n{date.today()}; {where}.\n\n{shown}{tables}{notes}\n"


def markdown_table(table: ResultTable) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *(map(cell_text, row) for row in table.rows)]
    text = "\n".join("| " + " | ".join(map(_escape_markdown, line)) + " |" for line in lines)
    note = f"\n{_escape_markdown(table.note)}\n" if table.note else ""
    return f"{table.title}:\n\n{text}\n{note}"


def _escape_markdown(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def section_html(result: Result, **changes: Any) -> str:  # noqa: ANN401 -- texts and sequences of the template
    """A part of a page. `changes`: `intro`, `headline` (what to remember if nothing else), or others of what it shows.

    Texts are plain; what stands between backticks is set as code.
    """
    pictures = {picture.caption: base64.b64encode(draw_png(picture)).decode() for picture in result.pictures}
    shown: dict[str, Any] = {"name": result.name, "title": result.title, "intro": "", "headline": ""}
    shown |= {"pictures": pictures, "tables": result.all_tables, "notes": result.all_notes, "facts": result.facts}
    return _environment().get_template("section.html.j2").render(section=shown | changes)


def page_html(title: str, intro: Sequence[str], sections: Sequence[str]) -> str:
    """A page of the form that campaigns' reports have."""
    words = "\n".join(f"<p>{_with_code(paragraph)}</p>" for paragraph in intro)
    return report_page.page_html(title, "en", more="\n".join([words, *sections]))


@cache
def _environment() -> Environment:
    loader = PackageLoader("crowdfl_lab.report")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"cell": cell_text, "code": _with_code}
    return made


def _with_code(text: str) -> Markup:
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape_html(text))))  # noqa: S704 -- escaped just now
