"""A result's tables on a terminal of any width: lines break between words only, and nothing is lost.

A table that does not fit even so is shown in parts, side after side, each with the first column again.
"""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from crowdfl.lab.report.results import Figure, ResultTable, cell_text

_BORDER = 1
_PER_COLUMN = 3  # a line, and a space on both sides


def rich_tables(table: ResultTable, width: int) -> Iterator[Table]:
    """The table for a terminal of so many columns, in as many parts as it takes."""
    names = [_longest_word(column) for column in _columns(table)]
    parts = _parts(names, width)
    for number, places in enumerate(parts, start=1):
        title = table.title + (f" ({number} of {len(parts)})" if len(parts) > 1 else "")
        note = table.note if number == len(parts) else ""
        rows = tuple(tuple(row[place] for place in places) for row in table.rows)
        part = ResultTable(title, tuple(table.columns[place] for place in places), rows, note, table.colours)
        yield _rich_table(part, width)


def column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """A width for each, which are `room` together if possible, but never less than the longest word of a column."""
    least = [_longest_word(column) for column in columns]
    most = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in columns]
    for cap in range(max(most, default=0), 0, -1):
        widths = [max(low, min(high, cap)) for low, high in zip(least, most, strict=True)]
        if sum(widths) <= room:
            return widths
    return least


def _rich_table(table: ResultTable, width: int) -> Table:
    """Numbers to the right, a line between rows that need more than one."""
    columns = _columns(table)
    widths = column_widths(columns, width - _BORDER - _PER_COLUMN * len(columns))
    shown = Table(title=escape(table.title), caption=escape(table.note) or None)
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in table.rows]
        numbers = bool(cells) and all(isinstance(cell, int | float | Figure) for cell in cells)
        shown.add_column(escape(name), justify="right" if numbers else "left", width=widths[place])
    tall = any(
        cell_len(line) > room
        for column, room in zip(columns, widths, strict=True)
        for cell in column[1:]
        for line in (cell, *cell.split("\n"))
    )
    for row in table.rows:
        shown.add_row(*(_coloured(cell_text(cell), table) for cell in row), end_section=tall)
    return shown


def _columns(table: ResultTable) -> list[list[str]]:
    """The texts of each column, its name first."""
    return [[name, *(cell_text(row[place]) for row in table.rows)] for place, name in enumerate(table.columns)]


def _longest_word(column: Sequence[str]) -> int:
    return max((cell_len(word) for cell in column for word in cell.split()), default=0)


def _parts(least: Sequence[int], width: int) -> list[list[int]]:
    """The places of each part's columns, as many as fit beside the first one."""
    parts = [[0]]
    for place in range(1, len(least)):
        needed = sum(least[one] + _PER_COLUMN for one in (*parts[-1], place)) + _BORDER
        if needed > width and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(place)
    return parts


def _coloured(text: str, table: ResultTable) -> str:
    colour = table.colours.get(text)
    return f"[{colour}]{escape(text)}[/{colour}]" if colour else escape(text)
