"""One HTML page from one template: headings, pictures, tables, notes, and how each part was made. Needs Jinja2.

It looks as the platform's own pages do, and is one file: their style sheet is written into it.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING

from crowdfl.errors import PackageMissing
from crowdfl_lab.report.plots import draw_png, has_matplotlib
from crowdfl_lab.report.results import Cell, Result, ResultTable, cell_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


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
