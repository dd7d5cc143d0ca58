"""Text for people: what another party wrote, before it is shown, logged or passed on; times in words; tables."""

import html
import io
import re
import sys
from collections.abc import Sequence
from typing import Any

_UNITS = ((86400, "days"), (3600, "hours"), (60, "min"))
_WIDE = 400  # characters: a table is never folded
_LINE = re.compile(r"[^\n\t]+")  # lines, and the columns of a list


def printable(text: str, most: int = 2000) -> str:
    """Text of another party, as one line: what could steer a terminal or forge a line is replaced, and the rest is cut off."""
    return "".join(one if one.isprintable() else " " if one.isspace() else "?" for one in text[:most])


def span_words(seconds: float) -> str:
    """A time span as people say it: two of a unit or more, else the next smaller one."""
    for length, name in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{seconds:.0f} s"


def printable_lines(text: str) -> str:
    """The same of a text of several lines, which stay lines; nothing is cut off."""
    return _LINE.sub(lambda part: printable(part[0], len(part[0])), text)


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells to the right, under their names."""
    from rich.console import Console  # late: most who need `printable` show no table
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=_WIDE, color_system=None, markup=False, force_jupyter=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
