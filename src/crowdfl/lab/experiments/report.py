"""What an experiment leaves behind: CSV, pictures, a JSON of how it was made, and its part of one HTML page."""

import base64
import csv
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crowdfl.errors import ExperimentUnavailable
from crowdfl.lab.experiments.frame import Experiment, Part, Picture, Size, Table
from crowdfl.lab.experiments.points import Rows
from crowdfl.lab.timing import machine
from crowdfl.version import __version__

__all__ = ["Made", "assemble", "write_part"]

_DPI = 160  # readable at half size
_STYLE = """body{font-family:sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;line-height:1.4}
table{border-collapse:collapse;margin:1rem 0}caption{text-align:left;font-weight:bold;padding:.3rem 0}
td,th{border:1px solid #bbb;padding:.2rem .6rem;text-align:left}img{max-width:100%}code{background:#eee;padding:0 .2rem}"""


@dataclass(frozen=True)
class Made:
    """How a part was made: enough to make it again."""

    size: Size
    command: str
    settings: Mapping[str, Any]
    compute: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"settings": dict(self.settings), "crowdfl": __version__, "machine": machine()}


def write_part(out: Path, experiment: Experiment[Any], part: Part, made: Made) -> None:
    """Everything of one experiment, under a folder of its name."""
    folder = out / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / f"{experiment.name}.csv", part.rows)
    facts = made.to_dict()
    (folder / "made.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    pictures = [(picture, _draw(folder, picture)) for picture in part.pictures]
    (folder / "part.html").write_text(_part_html(experiment, part, facts, pictures), encoding="utf-8")


def assemble(out: Path, experiments: Sequence[Experiment[Any]]) -> Path:
    """One page of all the parts that are there, in the paper's order."""
    parts = [out / experiment.name / "part.html" for experiment in experiments]
    body = "".join(path.read_text(encoding="utf-8") for path in parts if path.exists())
    missing = [e.name for e, path in zip(experiments, parts, strict=True) if not path.exists()]
    note = f"<p>Not run yet: {', '.join(missing)}.</p>" if missing else ""
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>CrowdFL: the paper\'s experiments</title>'
        f"<style>{_STYLE}</style><body><h1>The paper's experiments, made again</h1>"
        f"<p>Each part names the command that made it. Columns headed <i>paper</i> are as printed there.</p>"
        f"{note}{body}</body></html>\n"
    )
    path = out / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _write_csv(path: Path, rows: Rows) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _draw(folder: Path, picture: Picture) -> bytes:
    """PNG and SVG; the PNG's bytes, for the page."""
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ExperimentUnavailable("pictures need Matplotlib: `pip install 'crowdfl[plots]'`") from error
    # A fixed salt and no date: the same rows give the same SVG.
    with mpl.rc_context({"font.size": 11, "svg.hashsalt": "crowdfl"}):
        figure = Figure(figsize=picture.inches, layout="constrained")
        FigureCanvasAgg(figure)
        picture.draw(figure)
        figure.savefig(folder / f"{picture.name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{picture.name}.png", dpi=_DPI)
    return (folder / f"{picture.name}.png").read_bytes()


def _part_html(
    experiment: Experiment[Any], part: Part, facts: Mapping[str, Any], pictures: Sequence[tuple[Picture, bytes]]
) -> str:
    shown = "".join(_picture_html(picture, data) for picture, data in pictures)
    tables = "".join(map(_table_html, part.tables))
    remarks = "".join(f"<li>{html.escape(remark)}</li>" for remark in part.remarks)
    usual = "the default" if facts["size"] == experiment.default else f"where {experiment.default} is the default"
    size = f"{facts['size']} size, {usual}"
    settings = ", ".join(f"{name} = {value}" for name, value in _flat(facts["settings"]))
    where = ", ".join(f"{name} {value}" for name, value in facts["machine"].items())
    return (
        f'<section id="{experiment.name}"><h2>{html.escape(experiment.title)}</h2>{shown}{tables}<ul>{remarks}</ul>'
        f"<p>Made by <code>{html.escape(facts['command'])}</code> ({size}, compute {html.escape(facts['compute'])}, "
        f"CrowdFL {facts['crowdfl']}).<br>Settings: {html.escape(settings)}.<br>Machine: {html.escape(where)}.</p></section>\n"
    )


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings within settings by their own names."""
    found: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += _flat(value)
        else:
            found.append(
                (name, "(" + ", ".join(map(str, value)) + ")" if isinstance(value, list | tuple) else str(value))
            )
    return found


def _picture_html(picture: Picture, data: bytes) -> str:
    encoded = base64.b64encode(data).decode()
    caption = html.escape(picture.caption)
    return f'<figure><img alt="{caption}" src="data:image/png;base64,{encoded}"><figcaption>{caption}</figcaption></figure>'


def _table_html(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><caption>{html.escape(table.title)}</caption><tr>{head}</tr>{rows}</table>"
