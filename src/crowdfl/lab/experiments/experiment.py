"""What an experiment is, and how one runs: points to measure, each kept as it finishes, and how to present them.

An interrupted experiment resumes where it stopped. Finished points lie in one file of JSON lines for each kind of measurement.
A line holds the settings it was measured under, so that a point is taken again only when its settings, and the version of the
program, are the same; figures that need the same point share it.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from crowdfl.crypto.compute import Backend
from crowdfl.errors import ExperimentUnavailable
from crowdfl.lab.report.html import Section, page_html, section_html
from crowdfl.lab.report.plots import Picture, has_matplotlib, save_picture
from crowdfl.lab.report.results import Result, ResultTable
from crowdfl.lab.report.tables import csv_text
from crowdfl.lab.timing import machine
from crowdfl.version import __version__

__all__ = [
    "Bench",
    "Experiment",
    "ExperimentPoint",
    "Listener",
    "Notebook",
    "Part",
    "Record",
    "Records",
    "Size",
    "Value",
    "digits",
    "number",
    "reproduce",
    "spread",
]

Value = str | int | float | bool | None
Record = dict[str, Value]
Records = list[Record]
Size = Literal["full", "quick", "mixed"]
Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Bench:
    """What a measurement works with: where batches run, where data lies, whom to tell how far it is."""

    backend: Backend
    data: Path | None = None
    progress: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class ExperimentPoint:
    """One piece of work. Equal kinds and settings are the same point, whichever experiment asks."""

    kind: str
    settings: Mapping[str, Value]
    measure: Callable[[Bench], Records] = field(compare=False, repr=False)

    def key(self, compute: str) -> str:
        """Canonical, for comparison; where it was computed counts too, for what is measured is often time."""
        return json.dumps([self.kind, __version__, compute, dict(self.settings)], sort_keys=True)

    @property
    def label(self) -> str:
        """For a progress bar."""
        return f"{self.kind}: " + ", ".join(f"{name} {value}" for name, value in self.settings.items())


class Notebook:
    """The points finished so far, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Records] = {}
        for path in sorted(folder.glob("*.jsonl")):
            self._read(path)

    def take(self, point: ExperimentPoint, bench: Bench) -> Records:
        """Measure, unless that was done before; on disk when this returns."""
        key = point.key(bench.backend.name)
        if key not in self._known:
            where, start = machine(), time.perf_counter()
            rows = point.measure(bench)
            seconds = time.perf_counter() - start
            self._write(point.kind, {"key": key, "rows": rows, "seconds": seconds, "machine": where})
            # As read back: the same values whether a point was measured now or before.
            self._known[key] = json.loads(json.dumps(rows))
        return self._known[key]

    def _read(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                self._known[entry["key"]] = entry["rows"]
            except (ValueError, KeyError, TypeError):
                continue  # the line that was being written when the program was killed: measured again

    def _write(self, kind: str, entry: Mapping[str, object]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{kind.replace(' ', '-')}.jsonl"
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        # Every line starts anew, also after half a line.
        line = ("\n" if torn else "") + json.dumps(entry, allow_nan=False) + "\n"
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())


@dataclass(frozen=True)
class Part:
    """What an experiment found: records for its CSV, tables, pictures, and what must be said with them."""

    records: Records
    tables: tuple[ResultTable, ...]
    pictures: tuple[Picture, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment(Generic[Settings]):
    """A table or figure of the paper. `default` is the size that runs when none is asked for."""

    name: str
    title: str
    full: Settings
    quick: Settings
    default: Size
    points: Callable[[Settings], Sequence[ExperimentPoint]]
    present: Callable[[Settings, Sequence[Records]], Part]
    mixed: Settings | None = None  # where one part of it has time for its full size and another has not

    def settings(self, size: Size) -> Settings:
        if size == "mixed" and self.mixed is not None:
            return self.mixed
        return self.full if size == "full" else self.quick


class Listener(Protocol):
    """Hears how far things are."""

    def begin(self, name: str, points: int) -> None:
        """An experiment starts."""

    def at(self, label: str) -> None:
        """A point starts."""

    def inside(self, done: int, total: int) -> None:
        """How far a long batch within the point is."""

    def done(self) -> None:
        """A point is finished, now or in an earlier run."""


def reproduce(
    experiments: Sequence[Experiment[Any]],
    out: Path,
    bench: Bench,
    listener: Listener,
    *,
    size: Size | None = None,
    catalog: Sequence[Experiment[Any]] | None = None,
    command: str = "crowdfl reproduce {name}",
) -> Path:
    """Run them one after the other into `out`; the page shows all that were ever run there."""
    notebook = Notebook(out / "points")
    for experiment in experiments:
        chosen = size or experiment.default
        settings = experiment.settings(chosen)
        points = experiment.points(settings)
        listener.begin(experiment.name, len(points))
        results = []
        for point in points:
            listener.at(point.label)
            results.append(notebook.take(point, replace(bench, progress=listener.inside)))
            listener.done()
        made = {
            "size": chosen,
            "command": command.format(name=experiment.name),
            "settings": asdict(settings),
            "compute": bench.backend.name,
            "crowdfl": __version__,
            "machine": machine(),
        }
        _write_part(out / experiment.name, experiment, experiment.present(settings, results), made)
    return _assemble(out, catalog or experiments)


def _write_part(folder: Path, experiment: Experiment[Any], part: Part, made: Mapping[str, Any]) -> None:
    """CSV, pictures, a JSON of how it was made, and its part of the page."""
    if part.pictures and not has_matplotlib():
        raise ExperimentUnavailable("pictures need Matplotlib: `pip install 'crowdfl[plots]'`")
    folder.mkdir(parents=True, exist_ok=True)
    csv = csv_text(ResultTable.of_records(experiment.title, part.records))
    (folder / f"{experiment.name}.csv").write_text(csv, encoding="utf-8")
    (folder / "made.json").write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    usual = "the default" if made["size"] == experiment.default else f"where {experiment.default} is the default"
    shown = {"at": f"{made['size']} size, {usual}", "compute": made["compute"]} | made["settings"]
    result = Result(experiment.name, experiment.title, made["machine"], shown, command=made["command"])
    drawn = {picture.caption: save_picture(picture, folder)[0].read_bytes() for picture in part.pictures}
    section = Section(result.name, result.title, "", part.tables, drawn, part.remarks, result.facts)
    (folder / "part.html").write_text(section_html(section), encoding="utf-8")


def _assemble(out: Path, experiments: Sequence[Experiment[Any]]) -> Path:
    """One page of all the parts that are there, in the paper's order."""
    parts = {experiment.name: out / experiment.name / "part.html" for experiment in experiments}
    missing = ", ".join(name for name, path in parts.items() if not path.exists())
    intro = ["Each part names the command that made it. Columns headed `paper` are as printed there."]
    intro += [f"Not run yet: {missing}."] if missing else []
    sections = [path.read_text(encoding="utf-8") for path in parts.values() if path.exists()]
    page = out / "report.html"
    page.write_text(page_html("The paper's experiments, made again", intro, sections), encoding="utf-8")
    return page


def number(record: Mapping[str, Value], name: str) -> float:
    """A record's value as a number; what is not there counts as nothing."""
    return float(record[name] or 0)


def digits(value: float) -> str:
    """As the paper's table 3 prints: four digits after the point."""
    return f"{value:.4f}"


def spread(values: Sequence[float]) -> str:
    """Mean and sample standard deviation; of one value, the value."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return digits(mean)
    deviation = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return f"{digits(mean)} ± {digits(deviation)}"
