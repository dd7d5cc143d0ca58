"""What an experiment is, and how one runs: points to measure, each kept as it finishes, and how to present them.

An interrupted experiment resumes where it stopped. Finished points lie in one file of JSON lines for each kind of measurement.
A line holds the settings it was measured under, so that a point is taken again only when its settings, and the version of the
program, are the same; figures that need the same point share it.

What the paper prints in section 8, to stand beside what is measured here, is in `published.json`: its tables, and every
sentence that says what they show. Our own remarks are in `remarks.json`. Tables 4 and 5 are by
scheme, role and operation or quantity. In table 4 SecDiv is SDIV, as in the paper's own comparison of times, and K = 1. In
table 5 L is the length of a ciphertext; PPFDL's garbled circuits, (n+1)(|GC| + 5h) on top, are left out, for neither length is
given.
"""

import json
import operator
import os
import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar

import numpy as np
from rich.progress import Progress

from crowdfl.crypto.compute import Backend
from crowdfl.errors import SettingsError
from crowdfl.learning.datasets.data import Source
from crowdfl.version import __version__
from crowdfl_lab.report.output import csv_text, page_html, section_html
from crowdfl_lab.report.plots import Picture, save_picture
from crowdfl_lab.report.results import Result, ResultTable
from crowdfl_lab.timing import Clock, Disturbance, disturbed_call, machine

Value = str | int | float | bool | None
Record = dict[str, Value]
Records = list[Record]
Found = Mapping[Any, Records]  # what was measured, by the key of each point
Size = Literal["full", "quick", "mixed"]
Settings = TypeVar("Settings")

_PRINTED, _REMARKS = (
    json.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))
    for name in ("published.json", "remarks.json")
)


class Formula(NamedTuple):
    """A count as the paper writes it, and why ours differs from it. Without a text, the paper's table has no such row."""

    text: str = ""
    slope: int = 0
    constant: int = 0
    why: str = ""

    def at(self, participants: int) -> int | None:
        return self.slope * participants + self.constant if self.text else None


FULL_PARAMETERS: int = _PRINTED["parameters"]  # 270-1000-6
BUDGET: str = _PRINTED["budget"]  # of a round, in dollars
TABLE3: dict[str, list[float | None]] = _PRINTED["table3"]  # accuracy, precision, recall, F1, MAD
TABLE4, TABLE5 = (
    {(scheme, role, name): Formula(*formula) for scheme, role, name, *formula in _PRINTED[table]}
    for table in ("table4", "table5")
)


class Printed(NamedTuple):
    """What the paper prints: a name for it, the table or figure it is about, its words, and why it does not hold where it
    does not."""

    name: str
    of: str
    says: str
    why: str


CLAIMS = [Printed(*claim) for claim in _PRINTED["claims"]]
TABLE6: dict[str, list[str]] = _PRINTED["table6"]  # seconds, then messages of the participant, SP and CSP


def remarks(name: str, settings: object, **found: object) -> tuple[str, ...]:
    """What the paper says of a figure, then what must be said with ours, with what was found filled in."""
    # A claim of each profile is one sentence of the paper's.
    sentences = (
        re.sub(r" \(`\w+`\)", "", claim.says) for claim in CLAIMS if claim.of == name and name.startswith("fig")
    )
    said = [f"Paper: {sentence}" for sentence in dict.fromkeys(sentences)]
    return (*said, *(remark.format(settings=settings, **found) for remark in _REMARKS[name]))


def number(record: Mapping[str, Value], name: str) -> float:
    """A record's value as a number; what is not there counts as nothing."""
    return float(record[name] or 0)


def joined(results: Iterable[Records]) -> Records:
    return [record for records in results for record in records]


def table_of(
    title: str, records: Records, columns: Sequence[str] | Mapping[str, str], floats: str = ".3g"
) -> ResultTable:
    """A row for each record, a column for each name; a mapping gives columns headings of their own."""

    def shown(value: Value) -> str:
        if isinstance(value, str):
            return value
        return "-" if value is None else f"{value:{floats if isinstance(value, float) else ','}}"

    named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
    rows = tuple(tuple(shown(record.get(name)) for name in named.values()) for record in records)
    return ResultTable(title, tuple(named), rows)


@dataclass(frozen=True)
class Bench:
    """What a measurement works with: where batches run, the data, whom to tell how far it is."""

    backend: Backend
    data: Source | None = None
    progress: Callable[[int, int], None] = lambda done, total: None

    @property
    def clock(self) -> Clock:
        """Processor seconds where this program computes by itself; of a GPU or other machines, seconds."""
        return time.process_time if self.backend.name == "threads" else time.perf_counter


@dataclass(frozen=True)
class ExperimentPoint:
    """One piece of work. Equal kinds and settings are the same point, whichever experiment asks."""

    kind: str
    settings: Mapping[str, Value]
    measure: Callable[[Bench], Records] = field(compare=False, repr=False)
    timed: bool = False  # whether what it measures is time, which other programs disturb

    def key(self, compute: str) -> str:
        """Canonical, for comparison; where it was computed counts too, for what is measured is often time."""
        return json.dumps([self.kind, __version__, compute, dict(self.settings)], sort_keys=True)

    @property
    def label(self) -> str:
        return f"{self.kind}: " + ", ".join(f"{name} {value}" for name, value in self.settings.items())


Points = Mapping[Hashable, ExperimentPoint]


class Notebook:
    """The points finished so far, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._known = folder, dict[str, Records]()
        self._disturbed: dict[str, Disturbance] = {}
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                # A line that was being written when the program was killed is measured again.
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    self._disturbed[entry["key"]] = Disturbance(entry["seconds"], entry["others"])
                    self._known[entry["key"]] = entry["rows"]

    def take(self, point: ExperimentPoint, bench: Bench) -> Records:
        """Measure, unless that was done before; on disk when this returns."""
        key = point.key(bench.backend.name)
        if key not in self._known:
            where = machine()
            disturbance, rows = disturbed_call(lambda: point.measure(bench))
            self._write(point.kind, {"key": key, "rows": rows, **vars(disturbance), "machine": where})
            self._disturbed[key] = disturbance
            # As read back: the same values whether a point was measured now or before.
            self._known[key] = json.loads(json.dumps(rows))
        return self._known[key]

    def disturbance(self, points: Iterable[ExperimentPoint], bench: Bench) -> Disturbance | None:
        """Of those among them that took times, together; None where none did."""
        timed = [self._disturbed[point.key(bench.backend.name)] for point in points if point.timed]
        return reduce(operator.add, timed) if timed else None

    def _write(self, kind: str, entry: Mapping[str, object]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{kind.replace(' ', '-')}.jsonl"
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        with path.open("a", encoding="utf-8") as stream:
            # Every line starts anew, also after half a line.
            stream.write("\n" * torn + json.dumps(entry, allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


@dataclass(frozen=True)
class Part:
    """What an experiment found: records for its CSV, tables, pictures, and what must be said with them."""

    records: Records
    tables: tuple[ResultTable, ...] = ()
    pictures: tuple[Picture, ...] = ()
    remarks: tuple[str, ...] = ()

    def __add__(self, other: "Part") -> "Part":
        tables, pictures = self.tables + other.tables, self.pictures + other.pictures
        return Part([*self.records, *other.records], tables, pictures, self.remarks + other.remarks)


@dataclass(frozen=True)
class Experiment(Generic[Settings]):
    """A table or figure of the paper. `default` is the size that runs when none is asked for."""

    name: str
    title: str
    points: Callable[[Settings], Points]
    present: Callable[[Settings, Found], Part]
    full: Settings
    quick: Settings
    default: Size = "full"
    mixed: Settings | None = None  # where one part of it has time for its full size and another has not
    options: Mapping[str, Callable[[Settings, Any], Settings]] = field(default_factory=dict)

    def changed(self, given: Mapping[str, Any]) -> Self:
        """With these options at every size; one that it does not use is refused."""
        for name in given:
            if name not in self.options:
                used = ", ".join(f"--{each}" for each in self.options) or "none"
                raise SettingsError(
                    f"{self.name} does not use --{name}; of the options that change it, it takes {used}"
                )

        def change(settings: Settings) -> Settings:
            for name, value in given.items():
                settings = self.options[name](settings, value)
            return settings

        mixed = None if self.mixed is None else change(self.mixed)
        return replace(self, full=change(self.full), quick=change(self.quick), mixed=mixed)

    def settings(self, size: Size) -> Settings:
        return {"full": self.full, "quick": self.quick, "mixed": self.mixed or self.quick}[size]


def reproduce(
    experiments: Sequence[Experiment[Any]],
    out: Path,
    bench: Bench,
    progress: Progress,
    *,
    size: Size | None = None,
    catalog: Sequence[Experiment[Any]] | None = None,
    command: str = "crowdfl reproduce {name}",
    on_result: Callable[[Result], None] = lambda _result: None,
) -> Path:
    """Run them one after the other into `out`; the page shows all that were ever run there."""
    notebook = Notebook(out / "points")
    inside = progress.add_task("", total=None, visible=False)
    bench = replace(bench, progress=lambda done, total: progress.update(inside, completed=done, total=total))
    for experiment in experiments:
        chosen = size or experiment.default
        settings = experiment.settings(chosen)
        points, found = experiment.points(settings), dict[Hashable, Records]()
        bar = progress.add_task(experiment.name, total=len(points))
        for number, (key, point) in enumerate(points.items(), 1):
            if not progress.console.is_terminal:
                step = f"{experiment.name}: {number} of {len(points)}, {point.label}"
                progress.console.print(step, markup=False, highlight=False, soft_wrap=True)
            progress.reset(inside, total=None, visible=True, description=f"  {point.label}"[:100])
            found[key] = notebook.take(point, bench)
            progress.advance(bar)
        progress.update(inside, visible=False)
        made: dict[str, Any] = {
            "size": chosen,
            "command": command.format(name=experiment.name),
            "settings": asdict(settings),
            "compute": bench.backend.name,
            "crowdfl": __version__,
            "machine": machine(),
        }
        part = experiment.present(settings, found)
        if "data" in experiment.options and bench.data is not None:
            part += Part([], remarks=bench.data.notes)
            made["windows"] = _training_windows(bench.data)
        disturbance = notebook.disturbance(points.values(), bench)
        if disturbance is not None:
            made["clock"] = "processor seconds" if bench.clock is time.process_time else "seconds"
            made["others"] = disturbance.cores
            part += Part([], remarks=remarks("times", settings, said=said_of(disturbance), clock=made["clock"]))
        on_result(_write_part(out / experiment.name, experiment, part, made))
    return _assemble(out, catalog or experiments)


def said_of(disturbance: Disturbance) -> str:
    """Whether times can be trusted, in a sentence."""
    if disturbance.cores is None:
        return "BUSY OR NOT: this system does not say what others used of the processors meanwhile"
    used = f"others used {disturbance.cores:.2g} of a core meanwhile"
    return used if disturbance.quiet else f"BUSY MACHINE: {used}; measure again at a quiet moment"


def _training_windows(source: Source) -> dict[str, int]:
    """How many windows of each label there are to train on, of everyone together."""
    labels = np.concatenate([source.load_person(place).train.labels for place in range(len(source.people))])
    counts = np.bincount(labels, minlength=len(source.label_names)).tolist()
    return dict(zip(source.label_names, counts, strict=True))


def publish(out: Path, names: Sequence[str], lab: Path, *, busy_too: bool = False) -> None:
    """Copy what the laboratory's pages show of these experiments: tables, pictures, and how they were made.

    Times of a busy machine stay out, unless they are asked for; `made.json` has what others used either way.
    """
    for name in names:
        made = json.loads((out / name / "made.json").read_text(encoding="utf-8"))
        if "others" in made and not busy_too and (made["others"] is None or made["others"] > Disturbance.QUIET):
            used = "nobody knows how much" if made["others"] is None else f"{made['others']:.2g} of a core"
            raise SettingsError(
                f"the times of {name} are not published: others used {used} while they were taken, and {Disturbance.QUIET} is "
                "allowed. Run it again with a new --out at a quiet moment, or say --busy-too, which marks them"
            )
    for name in names:
        folder = lab / "figures" / "experiments" / name
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted((out / name).iterdir()):
            if path.suffix in {".csv", ".svg", ".json"}:
                (folder / path.name).write_bytes(path.read_bytes())


def _write_part(folder: Path, experiment: Experiment[Any], part: Part, made: Mapping[str, Any]) -> Result:
    folder.mkdir(parents=True, exist_ok=True)
    usual = "the default" if made["size"] == experiment.default else f"where {experiment.default} is the default"
    result = Result(
        experiment.name,
        experiment.title,
        made["machine"],
        {"at": f"{made['size']} size, {usual}", "compute": made["compute"]} | made["settings"],
        tables=part.tables,
        notes=part.remarks,
        pictures=part.pictures,
        command=made["command"],
    )
    texts = {
        f"{experiment.name}.csv": csv_text(ResultTable.of_records(experiment.title, part.records)),
        "made.json": json.dumps(made, indent=2) + "\n",
        "part.html": section_html(result),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for picture in part.pictures:
        save_picture(picture, folder)
    return result


def _assemble(out: Path, experiments: Sequence[Experiment[Any]]) -> Path:
    parts = {experiment.name: out / experiment.name / "part.html" for experiment in experiments}
    missing = ", ".join(name for name, path in parts.items() if not path.exists())
    intro = ["Each part names the command that made it. Columns headed `paper` are as printed there."]
    intro += [f"Not run yet: {missing}."] if missing else []
    sections = [path.read_text(encoding="utf-8") for path in parts.values() if path.exists()]
    page = out / "report.html"
    if sections:
        page.write_text(page_html("The paper's experiments, made again", intro, sections), encoding="utf-8")
    return page
