"""Tables for people: text for a terminal, HTML for a notebook."""

import html
import io
from collections.abc import Sequence

_WIDE = 400  # characters: a table is never folded


def text_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells to the right, under their names."""
    from rich.console import Console  # late: most programs show no table
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
