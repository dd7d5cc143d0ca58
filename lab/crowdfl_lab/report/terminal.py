"""A result's tables on a terminal of any width: lines break between words only, and nothing is lost.

A table that is too wide is set without lines, and the sentences of its last column go below it. If that does not help
either, it is shown in parts, each with what tells its rows apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.output import column_widths, longest_word
from crowdfl_lab.report.results import Figure, ResultTable, cell_text

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
