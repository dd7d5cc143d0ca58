"""A result's tables on a terminal of any width: lines break between words only, and nothing is lost.

A table that is too wide is set without lines, and the sentences of its last column go below it. If that does not help
either, it is shown in parts, each with what tells its rows apart.

One HTML page from one template: headings, pictures, tables, notes, and how each part was made. Needs Jinja2.

It looks as the platform's own pages do, and is one file: their style sheet is written into it.

Where a result goes: the terminal, standard output as JSON, and files.

A table has three forms: Rich for a terminal, Markdown for a page of the docs, CSV with the numbers in full.
"""

import base64
import csv
import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.output import column_widths, longest_word
from crowdfl.errors import PackageMissing
from crowdfl_lab.report.plots import draw_png, has_matplotlib, save_picture
from crowdfl_lab.report.results import Cell, Figure, Result, ResultTable, cell_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
_SENTENCE = 24  # a longer text may go below the table
_SOME = 4  # if more than one row in so many takes several lines, there is space between all


@dataclass(frozen=True)
class _Style:
    """Rich's options, and what they need of the width besides the texts: for each column, and once."""

    options: Mapping[str, Any]
    beside: int
    around: int

    def needed(self, widths: Sequence[int]) -> int:
        return sum(widths) + self.beside * len(widths) + self.around


_LINED = _Style(MappingProxyType({"box": box.HEAVY_HEAD}), 3, 1)
_PLAIN = _Style(
    MappingProxyType({"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "padding": (0, 1, 0, 0)}), 2, 0
)


def rich_tables(table: ResultTable, width: int) -> Iterator[Table | str]:
    """The table for a terminal of so many columns, in as many parts as it takes, and what goes below it."""
    if _fits(table, width, _LINED):
        yield _rich_table(table, width, _LINED)
        return
    table, below = _sentences_below(table)
    parts = [table] if _fits(table, width, _PLAIN) else list(_parts(table, width))
    for number, part in enumerate(parts, start=1):
        title = table.title + (f" ({number} of {len(parts)})" if len(parts) > 1 else "")
        note = table.note if number == len(parts) else ""
        yield _rich_table(replace(part, title=title, note=note), width, _PLAIN)
    yield from (*map(escape, below), "")


def _rich_table(table: ResultTable, width: int, style: _Style) -> Table:
    """Numbers to the right, and space between rows where many need more than one line."""
    columns = _columns(table)
    widths = column_widths(columns, width - style.needed([0] * len(columns)))
    shown = Table(title=escape(table.title), caption=escape(table.note) or None, **style.options)
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        numbers = bool(cells) and all(isinstance(cell, int | float | Figure) for cell in cells)
        shown.add_column(escape(name), justify="right" if numbers else "left", width=widths[place])
    wrapped = [
        any(cell_len(text) > room for text, room in zip(row, widths, strict=True)) for row in zip(*columns, strict=True)
    ]
    tall = sum(wrapped[1:]) > len(table.rows) // _SOME
    for row in table.rows:
        shown.add_row(*(_coloured(cell_text(cell), table) for cell in row), end_section=tall)
    return shown


def _columns(table: ResultTable) -> list[list[str]]:
    """The texts of each column, its name first."""
    return [[name, *(cell_text(row[place]) for row in table.rows)] for place, name in enumerate(table.columns)]


def _fits(table: ResultTable, width: int, style: _Style) -> bool:
    return style.needed([longest_word(column) for column in _columns(table)]) <= width


def _sentences_below(table: ResultTable) -> tuple[ResultTable, list[str]]:
    """With a mark in place of each text of the last column, if there are long ones; and the marks with their texts."""
    texts = [cell_text(row[-1]) for row in table.rows]
    if max(map(cell_len, texts), default=0) <= _SENTENCE:
        return table, []
    marks = {text: f"({number})" for number, text in enumerate(dict.fromkeys(filter(None, texts)), start=1)}
    rows = tuple((*row[:-1], marks.get(text, "")) for row, text in zip(table.rows, texts, strict=True))
    return replace(table, rows=rows), [f"{mark} {text}" for text, mark in marks.items()]


def _parts(table: ResultTable, width: int) -> Iterator[ResultTable]:
    keys = _key_columns(table)
    if _PLAIN.needed([longest_word(column) for column in _columns(table)[:keys]]) > width // 2:
        numbered = tuple((str(number), *row) for number, row in enumerate(table.rows, start=1))
        table, keys = replace(table, columns=("", *table.columns), rows=numbered), 1
    least, places = [longest_word(column) for column in _columns(table)], list(range(keys))
    for place in range(keys, len(least)):
        if len(places) > keys and _PLAIN.needed([least[one] for one in (*places, place)]) > width:
            yield _part(table, places)
            places = list(range(keys))
        places.append(place)
    yield _part(table, places)


def _key_columns(table: ResultTable) -> int:
    """How many of the first columns tell the rows apart."""
    counts = range(1, len(table.columns))
    return next((n for n in counts if len({row[:n] for row in table.rows}) == len(table.rows)), len(table.columns))


def _part(table: ResultTable, places: Sequence[int]) -> ResultTable:
    rows = tuple(tuple(row[place] for place in places) for row in table.rows)
    return replace(table, columns=tuple(table.columns[place] for place in places), rows=rows)


def _coloured(text: str, table: ResultTable) -> str:
    colour = table.colours.get(text)
    return f"[{colour}]{escape(text)}[/{colour}]" if colour else escape(text)


@dataclass(frozen=True)
class Section:
    """A part of a page. Texts are plain; what stands between backticks is set as code."""

    name: str
    title: str
    intro: str = ""
    tables: Sequence[ResultTable] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)  # PNGs in base64 by caption
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)  # how it was made
    headline: str = ""  # what to remember if nothing else


def result_section(result: Result) -> Section:
    drawn = {p.caption: draw_png(p) for p in result.pictures} if has_matplotlib() else {}
    pictures = {caption: base64.b64encode(png).decode() for caption, png in drawn.items()}
    return Section(result.name, result.title, "", result.all_tables, pictures, result.all_notes, result.facts)


def section_html(section: Section) -> str:
    return _environment().get_template("section.html.j2").render(section=section)


def page_html(title: str, intro: Sequence[str], sections: Sequence[str]) -> str:
    style = (files("crowdfl") / "web" / "common" / "style.css").read_text(encoding="utf-8")
    return _environment().get_template("page.html.j2").render(title=title, intro=intro, sections=sections, style=style)


def _environment() -> "Environment":
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise PackageMissing("HTML reports need Jinja2: `pip install 'crowdfl[plots]'`") from error
    loader = PackageLoader("crowdfl_lab.report")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"cell": cell_text, "code": _with_code, "number_columns": _number_columns}
    return made


def _number_columns(table: ResultTable) -> set[int]:
    """The places of columns that hold numbers and dashes: they are aligned."""
    columns = enumerate(zip(*table.rows, strict=True))
    return {place for place, cells in columns if all(map(_is_number, cells))}


def _is_number(cell: Cell) -> bool:
    if not isinstance(cell, str) or cell == "-":
        return True
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return False
    return True


def _with_code(text: str) -> "Markup":
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 -- escaped just now


def progress_to_stderr() -> Callable[[str], None]:
    """Says on stderr what is being done, so that stdout holds the result alone."""
    console, start = Console(stderr=True, highlight=False), time.monotonic()
    return lambda what: console.print(f"[dim]{time.monotonic() - start:6.1f} s[/dim]  {what}")


def deliver(result: Result, *, as_json: bool = False, out: Path | None = None, page: Path | None = None) -> None:
    """To the terminal or as JSON, and to the files that were asked for."""
    if page is not None:
        page.write_text(_markdown_page(result), encoding="utf-8")
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


def _markdown_page(result: Result, picture: str = "") -> str:
    shown = f"![{result.name}]({picture})\n\n" if picture else ""
    where = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in result.machine.items())
    tables = "\n".join(map(markdown_table, result.all_tables))
    notes = "".join(f"\n- {_escape_markdown(note.strip())}" for note in result.all_notes)
    made = result.command or result.name
    return f"# A run of `{made}`\n\n{date.today()}; {where}.\n\n{shown}{tables}{notes}\n"


def write_files(result: Result, folder: Path) -> tuple[Path, ...]:
    """JSON, Markdown and a CSV for each table; pictures where Matplotlib is installed, an HTML page where Jinja2 is."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = tuple(path for picture in result.pictures for path in save_picture(picture, folder))
    svg = next((path.name for path in drawn if path.suffix == ".svg"), "")
    texts = {".json": result.to_json(), ".md": _markdown_page(result, svg)}
    texts |= {f"-{number}.csv": csv_text(table) for number, table in enumerate(result.all_tables, start=1)}
    if find_spec("jinja2") is not None:
        made = result.command or result.name
        texts[".html"] = page_html(f"A run of {made}", (), [section_html(result_section(result))])
    paths = {folder / f"{result.name}{ending}": text for ending, text in texts.items()}
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8")
    return (*paths, *drawn)


def markdown_table(table: ResultTable) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *(map(cell_text, row) for row in table.rows)]
    text = "\n".join("| " + " | ".join(map(_escape_markdown, line)) + " |" for line in lines)
    note = f"\n{_escape_markdown(table.note)}\n" if table.note else ""
    return f"{table.title}:\n\n{text}\n{note}"


def csv_text(table: ResultTable) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([cell.value if isinstance(cell, Figure) else cell for cell in row] for row in table.rows)
    return stream.getvalue()


def _escape_markdown(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")
