"""The form of reports: sections as text, as tables of a notebook, and as one page that prints on A4."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from crowdfl.tables import text_table


class ReportTable(NamedTuple):
    """`numbers`: the columns that are aligned; `prose`: its cells are sentences."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: set[int] = set()  # noqa: RUF012 -- never changed
    prose: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a report: sentences, facts by name, tables, a list of what happened, and what the tables mean."""

    title: str
    lines: Sequence[str] = ()
    tables: Sequence[ReportTable] = ()
    facts: Sequence[tuple[str, str]] = ()
    items: Sequence[str] = ()
    warnings: Sequence[str] = ()
    note: str = ""
    wide: bool = False  # on paper, over both columns
    folded: bool = False  # until somebody wants to see it; not printed

    def text(self) -> str:
        parts = [f"== {self.title}"] if self.title else []
        parts += [f"{name}: {fact}" for name, fact in self.facts]
        parts += [*self.lines, *self.warnings, *(f"* {item}" for item in self.items)]
        for table in self.tables:
            parts.append(_in_lines(table) if table.prose else text_table(table.columns, table.rows))
        return "\n".join([*parts, *([self.note] if self.note else [])])

    def html(self) -> str:
        body = [f"<p>{html.escape(line)}</p>" for line in self.lines]
        body += [f'<p class="bad"><strong>{html.escape(line)}</strong></p>' for line in self.warnings]
        if self.items:
            body.append(f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in self.items)}</ul>")
        body += [_table_html(table) for table in self.tables]
        if self.note:
            body.append(f'<p class="soft">{html.escape(self.note)}</p>')
        if self.facts:
            pairs = (
                f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(fact)}</dd></div>" for name, fact in self.facts
            )
            body.insert(0, f'<dl class="facts">{"".join(pairs)}</dl>')
        inside, title = "\n".join(body), html.escape(self.title)
        if self.folded:
            return f"<details><summary>{title}</summary>\n{inside}\n</details>"
        heading = f"<h2>{title}</h2>\n" if title else ""
        wide = ' class="wide"' if self.wide else ""
        return f"<section{wide}>\n{heading}{inside}\n</section>"


def _in_lines(table: ReportTable) -> str:
    """A table of sentences: no terminal is wide enough for its columns."""
    lines = []
    for first, *rest in table.rows:
        lines.append(first)
        lines += [f"    {name}: {cell}" for name, cell in zip(table.columns[1:], rest, strict=True) if cell]
    return "\n".join(lines)


def _table_html(table: ReportTable) -> str:
    """A narrow window shows each row as a card, which takes the roles of a table away: they are named."""

    def kind(place: int) -> str:
        return ' class="number"' if place in table.numbers else ""

    def cell(text: str, place: int) -> str:
        column, words = html.escape(table.columns[place]), html.escape(text)
        if place == 0:
            return f'<th scope="row" role="rowheader" data-column="{column}"{kind(place)}>{words}</th>'
        return f'<td role="cell" data-column="{column}"{kind(place)}>{words}</td>'

    def row(cells: Sequence[str]) -> str:
        return f'<tr role="row">{"".join(cell(text, place) for place, text in enumerate(cells))}</tr>'

    heads = [
        f'<th scope="col" role="columnheader"{kind(place)}>{html.escape(name)}</th>'
        for place, name in enumerate(table.columns)
    ]
    rows = "\n".join(map(row, table.rows))
    form = ' class="prose"' if table.prose else ""
    caption = html.escape(table.caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">\n<table role="table"{form}>'
        f'<caption>{caption}</caption>\n<thead role="rowgroup"><tr role="row">{"".join(heads)}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody></table>\n</div>'
    )


def notebook_html(title: str, sections: Sequence[Section]) -> str:
    return "\n".join([f"<h3>{html.escape(title)}</h3>", *(section.html() for section in sections)])


def page_html(title: str, language: str, sections: Sequence[Section] = (), more: str = "", kind: str = "") -> str:
    """A page of one file. `more`: HTML that its maker has escaped."""
    web = files("crowdfl") / "web"
    style = "\n".join((web / name).read_text(encoding="utf-8") for name in ("common/style.css", "report/report.css"))
    over = f'<p class="soft">{html.escape(kind)}</p>\n' if kind else ""
    body = "\n".join(section.html() for section in sections)
    return f"""<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main class="report">
{over}<h1>{html.escape(title)}</h1>
<div class="parts">
{body}
</div>
{more}
</main>
</body>
</html>
"""
