"""One table in three forms: Rich for a terminal, Markdown for a page of the docs, CSV with the numbers in full."""

import csv
import io

from rich.markup import escape
from rich.table import Table

from crowdfl.lab.report.results import Cell, Figure, ResultTable, cell_text

__all__ = ["csv_text", "escape_markdown", "markdown_table", "rich_table"]


def rich_table(table: ResultTable) -> Table:
    """For a terminal: numbers to the right, a line between rows that need more than one."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    shown = Table(title=escape(table.title), caption=escape(table.note) or None)
    for name, cells in zip(table.columns, columns, strict=True):
        numbers = bool(cells) and all(isinstance(cell, int | float | Figure) for cell in cells)
        shown.add_column(escape(name), justify="right" if numbers else "left")
    tall = any("\n" in cell for row in table.rows for cell in row if isinstance(cell, str))
    for row in table.rows:
        shown.add_row(*(_coloured(cell_text(cell), table) for cell in row), end_section=tall)
    return shown


def markdown_table(table: ResultTable) -> str:
    """The table with its title in front and its note after."""
    lines = [table.columns, ("---",) * len(table.columns), *(map(cell_text, row) for row in table.rows)]
    text = "\n".join("| " + " | ".join(map(escape_markdown, line)) + " |" for line in lines)
    note = f"\n{escape_markdown(table.note)}\n" if table.note else ""
    return f"{table.title}:\n\n{text}\n{note}"


def csv_text(table: ResultTable) -> str:
    """Numbers in full and in their base unit; what is not there is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return stream.getvalue()


def escape_markdown(cell: str) -> str:
    """Text that stays text within a table."""
    return cell.replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def _plain(cell: Cell) -> str | int | float | None:
    return cell.value if isinstance(cell, Figure) else cell


def _coloured(text: str, table: ResultTable) -> str:
    colour = table.colours.get(text)
    return f"[{colour}]{escape(text)}[/{colour}]" if colour else escape(text)
