"""Where a result goes: the terminal, standard output as JSON, and files.

A table has three forms: Rich for a terminal, Markdown for a page of the docs, CSV with the numbers in full.
"""

import csv
import io
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from crowdfl_lab.report.html import page_html, result_section, section_html
from crowdfl_lab.report.plots import save_picture
from crowdfl_lab.report.results import Figure, Result, ResultTable, cell_text
from crowdfl_lab.report.terminal import rich_tables


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
