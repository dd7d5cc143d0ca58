"""A CSV file as a phone's sensor app exports it: time, x, y, z, perhaps rotation, and a label.

Apps differ in headers, units and ways to write the time; docs/learning.md lists what is understood. Numbers to learn are
columns too: of the names that a task gives its values, or, for a single one, `value` or `target`.

A person has a file or a folder; a folder may have an inner folder for each person. A file without a column of labels is
labelled by its place: by the one name, from the folder down to the file, that is not just a sensor, a date or a number.
`walking_2.csv` and `walking-2/Accelerometer.csv` are walking. In `alice/walking.csv` there are two such names: alice may be a
person or an activity, and which of them must be said.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.codes import Code
from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import supplied as watch
from crowdfl.learning.datasets.data import (
    GRAVITY,
    UNLABELLED,
    Cut,
    Recording,
    Source,
    Split,
    person_at,
    recordings_of,
    relabelled,
    split_recordings,
    with_values,
)

_TIMES = re.compile(r"(?:unix|epoch|elapsed|logging|sensor)?(?:timestamp|time|seconds|zeit|ts|t)(?:elapsed)?")
_AXIS = re.compile(r"(a|acc|gf|accel|acceleration|accelerometer|beschleunigung)?(?:axis|value)?([xyz])(?:axis|value)?")
_TURN = re.compile(
    r"(g|w|gyr|gyro|gyroscope|gyroskop|drehrate|rotation|rotationrate)(?:axis|value)?([xyz])(?:axis|value)?"
)
_VALUES = ("value", "target")
_LABELS = ("label", "activity", "class", "exercise")
_UNIT = re.compile(r"(.*?)[\s_]*[(\[]([^)\]]*)[)\]]\s*|(.*?)_(s|ms|us|ns)")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_STEPS = (("s", 1.0), ("ms", 1e3), ("us", 1e6))  # a step below this is in this unit
Beside = tuple[
    tuple[str, tuple[str, ...]], ...
]  # what a task records beside motion: sensors, and questions with their choices
_SLOW = {
    "speed": (re.compile("(gps|location)?(speed|velocity|geschwindigkeit)"), 10.0),  # in 10 m/s
    "loudness": (re.compile("loudness|(sound|audio)?(level|db|dbfs)|schallpegel"), 50.0),  # in 50 dB
}
CUT = replace(watch.CUT, hertz=watch.HERTZ)
# What apps call files and folders, whatever was recorded; `phone` or `user` alone may be a person's.
_OF_AN_APP = re.compile(
    r"((watch|wrist|phone|device|user)(?=[\s_.-]*[a-z])|total|linear|raw|without|uncalibrated|sensors?|motion|data|log|logger|g|"
    r"acc|accel|acceleration|accelerometer|gyr|gyro|gyroscope|rotation|gravity|magnet|magnetometer|orientation|barometer|"
    r"rec|record|recordings?|export|session|trial|take|csv|[\s_.-])+"
)
_DATE = re.compile(r"\d{4}[-_.]?\d\d[-_.]?\d\d.*")


class LeftOut(Code):
    """Why a row is left out."""

    MISSING = "missing_field", "a missing field"
    NO_NUMBER = "not_a_number", "not a number"


@dataclass(frozen=True, eq=False)
class CsvTable:
    """Samples in the file's order: seconds, channels in g and rad/s, a label each; why rows were left out; and values."""

    times: npt.NDArray[np.float64]
    signal: npt.NDArray[np.float64]
    labels: Sequence[str]
    dropped: Counter[LeftOut]
    values: npt.NDArray[np.float64]  # (samples, values)
    beside: npt.NDArray[np.float64]  # (samples, columns beside motion), scaled


_Reader = Callable[[Sequence[str], str], list[float]]  # of a row and its delimiter


@dataclass(frozen=True)
class _Columns:
    """The position of each field in a row, and the units the header gives."""

    time: int
    channels: tuple[int, ...]
    label: int | None
    time_unit: str = ""
    units: tuple[str, ...] = ()
    values: tuple[int, ...] = ()
    beside: tuple[_Reader, ...] = ()


def read_table(path: Path, label: str, values: Sequence[str] = (), beside: Beside = ()) -> CsvTable:
    """A file's samples; `label` is for those without one, and may be empty. `values` names numbers to learn."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.partition("\n")[0]
        delimiter = next((mark for mark in ";\t" if mark in head), ",")
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataMalformed(f"{path} is not CSV text: {error}") from error
    if not rows:
        return CsvTable(np.zeros(0), np.zeros((0, 3)), [], Counter(), np.zeros((0, len(values))), np.zeros((0, 0)))
    has_header = not any(_is_number(cell, delimiter) for cell in rows[0])
    if (named := [*values, *(name for name, _ in beside)]) and not has_header:
        raise DataMalformed(f"{path} has no header: it must name the columns of {', '.join(named)}")
    columns = _columns(path, rows[0], values, beside) if has_header else _default_columns(path, rows[0])
    return _table(path, columns, rows[has_header:], delimiter, label)


def value_columns(path: Path, values: Sequence[str]) -> tuple[str, ...]:
    """The same names if the file has a column for each, else none: data to predict needs no values."""
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        head = stream.readline().strip()
    delimiter = next((mark for mark in ";\t" if mark in head), ",")
    try:
        _value_columns(path, next(csv.reader([head], delimiter=delimiter), []), values)
    except DataMalformed:
        return ()
    return tuple(values)


def _default_columns(path: Path, row: Sequence[str]) -> _Columns:
    if len(row) not in (4, 5):
        raise DataMalformed(f"{path} has no header and {len(row)} columns: give it `timestamp,x,y,z,label`")
    return _Columns(0, (1, 2, 3), 4 if len(row) == 5 else None)


def _columns(path: Path, head: Sequence[str], values: Sequence[str], beside: Beside) -> _Columns:
    names, units = zip(*map(_name_and_unit, head), strict=True)
    time = next((i for i, name in enumerate(names) if _TIMES.fullmatch(name)), None)
    axes, turns = (_triple(pattern, names) for pattern in (_AXIS, _TURN))
    if time is None or axes is None:
        raise DataMalformed(
            f"{path}: the header is {', '.join(head)}; it needs a time, x, y and z, as a sensor's recording has"
        )
    channels = (*axes, *(turns or ()))
    label = next((i for i, name in enumerate(names) if name in _LABELS), None)
    found = _value_columns(path, head, values)
    readers = tuple(_reader(path, head, name, choices) for name, choices in beside)
    return _Columns(time, channels, label, units[time], tuple(units[i] for i in channels), found, readers)


def _reader(path: Path, head: Sequence[str], name: str, choices: tuple[str, ...]) -> _Reader:
    """What takes a sensor's number from a row, or the answer to a question: a column for each choice."""
    titles = [title.strip().casefold() for title in head] if choices else [_name_and_unit(title)[0] for title in head]
    place = next(
        (i for i, one in enumerate(titles) if one == name or (not choices and _SLOW[name][0].fullmatch(one))), None
    )
    if place is None:
        raise DataMalformed(
            f"{path}: no column is called {name!r}, which the task records beside motion; there are {', '.join(head)}"
        )
    if choices:
        return lambda row, _: [float(row[place].strip().casefold() == choice.casefold()) for choice in choices]
    unit = _SLOW[name][1] * (3.6 if _name_and_unit(head[place])[1].startswith("km") else 1.0)
    return lambda row, delimiter: [_number(row[place], delimiter) / unit]


def _value_columns(path: Path, head: Sequence[str], values: Sequence[str]) -> tuple[int, ...]:
    """By name, with or without a unit, ignoring case; for a single value also `value` or `target`."""
    titles: dict[str, int] = {}
    for place, title in enumerate(head):
        match = _UNIT.fullmatch(title.strip())
        short = (match[1] or match[3] or title) if match else title
        for name in (title.strip().casefold(), short.strip().casefold()):
            titles.setdefault(name, place)
    usual = _VALUES if len(values) == 1 else ()
    chosen = [next((one for one in (name.casefold(), *usual) if one in titles), "") for name in values]
    if "" in chosen:
        missing = values[chosen.index("")]
        raise DataMalformed(
            f"{path}: no column is called {missing!r}, which the task learns; there are {', '.join(head)}"
        )
    return tuple(titles[name] for name in chosen)


def _name_and_unit(title: str) -> tuple[str, str]:
    """`Acceleration x (m/s^2)` is accelerationx in m/s^2."""
    match = _UNIT.fullmatch(title.strip())
    name, unit = (match[1] or match[3] or "", match[2] or match[4] or "") if match else (title, "")
    return re.sub(r"[^a-z]", "", re.sub("lineare?", "", name.lower())), unit.strip().lower()


def _triple(pattern: re.Pattern[str], names: Sequence[str]) -> tuple[int, ...] | None:
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        if match := pattern.fullmatch(name):
            found.setdefault(match[2], place)
    return tuple(found[axis] for axis in "xyz") if len(found) == 3 else None


def _table(path: Path, columns: _Columns, rows: Sequence[Sequence[str]], delimiter: str, label: str) -> CsvTable:
    dropped: Counter[LeftOut] = Counter()
    numbers: list[float] = []
    dates: list[float] = []  # a file holds times as numbers or as dates, not both
    samples: list[list[float]] = []
    learned: list[list[float]] = []
    others: list[list[float]] = []
    labels: list[str] = []
    for row in rows:
        try:
            sample = [_number(row[place], delimiter) for place in columns.channels]
            learned_here = [_number(row[place], delimiter) for place in columns.values]
            others_here = [number for read in columns.beside for number in read(row, delimiter)]
            name = row[columns.label].strip().lower() if columns.label is not None else ""
            time = row[columns.time]
            is_number = _is_number(time, delimiter)
            value = _number(time, delimiter) if is_number else _timestamp(time)
        except (IndexError, ValueError) as wrong:
            dropped[LeftOut.MISSING if isinstance(wrong, IndexError) else LeftOut.NO_NUMBER] += 1
            continue
        (numbers if is_number else dates).append(value)
        samples.append(sample)
        learned.append(learned_here)
        others.append(others_here)
        labels.append(name or label)
    if numbers and dates:
        raise DataMalformed(f"{path}: some times are numbers and some are dates: export it again with one of them")
    signal = np.array(samples, dtype=np.float64).reshape(-1, len(columns.channels))
    times = _seconds(numbers, columns.time_unit) if numbers else np.array(dates, dtype=np.float64)
    values = np.array(learned, dtype=np.float64).reshape(len(learned), len(columns.values))
    beside = np.array(others, dtype=np.float64).reshape(len(others), len(others[0]) if others else 0)
    return CsvTable(times, _scaled(signal, columns.units), labels, dropped, values, beside)


def _seconds(raw: Sequence[float], unit: str) -> npt.NDArray[np.float64]:
    """Without a unit, the one that gives 1 to 1000 samples a second."""
    times = np.array(raw, dtype=np.float64)
    if unit not in _SECONDS:
        steps = np.diff(times)
        typical = np.median(steps[steps > 0]) if (steps > 0).any() else 0
        unit = next((unit for unit, longest in _STEPS if typical < longest), "ns")
    return times * _SECONDS[unit]


def _scaled(signal: npt.NDArray[np.float64], units: Sequence[str]) -> npt.NDArray[np.float64]:
    """In g and rad/s. Without a unit, acceleration whose length is far above 1 is read as m/s^2: gravity is always there."""
    given = units[0] if units else ""
    long = bool(len(signal)) and float(np.median(np.linalg.norm(signal[:, :3], axis=1))) > 4
    scaled = signal.copy()
    if given.startswith("m/s") or (given != "g" and long):
        scaled[:, :3] /= GRAVITY
    if signal.shape[1] > 3 and units and units[3].startswith(("deg", "°")):
        scaled[:, 3:] = np.deg2rad(scaled[:, 3:])
    return scaled


def _timestamp(text: str) -> float:
    """Seconds of a date and time in ISO 8601; without a zone, UTC."""
    moment = datetime.fromisoformat(text.strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str, delimiter: str) -> float:
    """With a delimiter other than the comma, a comma is the decimal sign."""
    value = float(text if delimiter == "," else text.replace(",", "."))
    if not math.isfinite(value):
        raise ValueError("not a number")
    return value


def _is_number(text: str, delimiter: str) -> bool:
    try:
        _number(text, delimiter)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class CsvFolder(Source):
    """One person's file or folder, named after it. With `by_folder`, inner folders are labels whatever they are called."""

    path: Path
    cut: Cut = CUT
    by_folder: bool = False
    values: tuple[str, ...] = ()  # numbers to learn; labels then do not matter
    beside: Beside = ()

    @property
    def people(self) -> tuple[str, ...]:
        place = self.path.resolve()
        return (place.stem if place.is_file() else place.name,)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(sorted({label for table in self._tables for label in table.labels}))

    @property
    def notes(self) -> tuple[str, ...]:
        dropped = sum((table.dropped for table in self._tables), Counter[LeftOut]())
        return (
            tuple(f"Left out: {kind.words} in {count:,} rows." for kind, count in sorted(dropped.items()))
            + self._merged()
        )

    @property
    def inner(self) -> list[str]:
        """The folders in it that hold CSV files."""
        return sorted({parts[0] for parts in map(self._parts, _files(self.path)) if len(parts) > 1})

    @property
    def unclear(self) -> Path | None:
        """A file without labels of its own in a place that names two things."""
        return (
            None
            if self.by_folder
            else next((path for path in self._bare if len(names_in(self._parts(path))) > 1), None)
        )

    def load_person(self, index: int) -> Split:
        """In units of g and 2 rad/s."""
        name = person_at(self.people, index)
        names = (UNLABELLED,) if self.values else self.label_names
        places = {label: 0 if self.values else place for place, label in enumerate(self.label_names)}
        hertz = self.cut.hertz or watch.HERTZ
        recordings = [recording for table in self._tables for recording in _recordings(table, places, hertz)]
        split = split_recordings(name, recordings, names, replace(self.cut, hertz=hertz))
        return with_values(split, self.values) if self.values else split

    @cached_property
    def _tables(self) -> list[CsvTable]:
        if not self._read:
            raise DataMissing(f"{self.path} holds no CSV file with samples: export the recordings into it")
        widths = {table.signal.shape[1]: path for path, table in self._read.items()}
        if len(widths) > 1:
            found = " and ".join(f"{path.name} has {width} channels" for width, path in sorted(widths.items()))
            raise DataMalformed(f"{self.path}: {found}; all files need the same")
        if unclear := self.unclear:
            raise DataMalformed(two_readings(self.path, unclear))
        if self._bare:
            raise DataMalformed(
                f"{self._bare[0]}: there is no label: add a column `label`, or name the file after the activity"
            )
        return list(self._read.values())

    @cached_property
    def _read(self) -> Mapping[Path, CsvTable]:
        tables = {path: read_table(path, self._label(path), self.values, self.beside) for path in _files(self.path)}
        return {path: table for path, table in tables.items() if len(table.times)}

    @property
    def _bare(self) -> list[Path]:
        return [path for path, table in self._read.items() if not all(table.labels)]

    def _parts(self, path: Path) -> tuple[str, ...]:
        """The names from the folder down to the file, without the file's ending."""
        return (path.stem,) if path == self.path else path.relative_to(self.path).with_suffix("").parts

    def _label(self, path: Path) -> str:
        parts = self._parts(path)
        if self.values:
            return UNLABELLED
        if self.by_folder:
            return label_of_name(parts[0])
        names = names_in(parts)
        return names[0] if len(names) == 1 else ""

    def _merged(self) -> tuple[str, ...]:
        """Two people's files with labels of their own are one person's, unless one of them is named."""
        labels = set(self.label_names)
        others = [name for name in self.inner if _activity(name) and _activity(name) not in labels]
        if self.by_folder or len(others) < 2:
            return ()
        return (
            f"The folders {', '.join(others)} are read as one person's; csv:{self.path}#{others[0]} reads one of them.",
        )


@dataclass(frozen=True)
class CsvPeople(Source):
    """A folder with an inner folder for each person."""

    path: Path
    cut: Cut = CUT

    @cached_property
    def people(self) -> tuple[str, ...]:
        return tuple(CsvFolder(self.path).inner)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(sorted({label for folder in self._folders for label in folder.label_names}))

    @property
    def notes(self) -> tuple[str, ...]:
        found = [f"{folder.people[0]}: {note}" for folder in self._folders for note in folder.notes]
        about = f"Each inner folder is a person; if they are activities, write csv-by-folder:{self.path}."
        return (*found, about)

    def load_person(self, index: int) -> Split:
        person_at(self.people, index)
        return relabelled(self._folders[index].load_person(0), self.label_names)

    @cached_property
    def _folders(self) -> list[CsvFolder]:
        return [CsvFolder(self.path / name, self.cut) for name in self.people]


def csv_source(
    path: Path,
    person: str | None,
    *,
    by_folder: bool = False,
    cut: Cut = CUT,
    values: tuple[str, ...] = (),
    beside: Beside = (),
) -> Source:
    """One person's, or everyone's where the inner folders can be people."""
    whole = CsvFolder(path, cut, by_folder, values, beside)
    if person is None:
        return CsvPeople(path, cut) if whole.unclear else whole
    if not (path / person).is_dir():
        raise DataMissing(
            f"{path} has no folder {person!r} with CSV files; there are {', '.join(whole.inner) or 'none'}"
        )
    return replace(whole, path=path / person)


def two_readings(folder: Path, file: Path | None = None) -> str:
    """What to write where inner folders may be people or activities."""
    inner = CsvFolder(folder).inner
    place = file.relative_to(folder) if file else f"{inner[0]}/..."
    return (
        f"{folder}: in {place} the label is not clear. If {inner[0]} is a person, write csv:{folder}#{inner[0]} "
        f"(there are {', '.join(inner)}). If it is what was done, write csv-by-folder:{folder}"
    )


def names_in(parts: Sequence[str]) -> list[str]:
    """The names that may be a label, each once; a number above one of them may be a person."""
    activities = [_activity(part) for part in parts]
    last = max((place for place, name in enumerate(activities) if name), default=-1) + 1
    names = zip(parts[:last], activities[:last], strict=True)
    return list(dict.fromkeys(name or part for part, name in names if name or _is_numbered(part)))


def label_of_name(name: str) -> str:
    """`Walking_2024-05-01_10-22` and `walking (3)` mean `walking`: what comes before the first number, in lower case."""
    return re.split(r"[\s_.()-]*\d", name, maxsplit=1)[0].strip(" _-.()").lower()


def _activity(part: str) -> str:
    name = label_of_name(part)
    return "" if _OF_AN_APP.fullmatch(name) else name


def _is_numbered(part: str) -> bool:
    return not label_of_name(part) and not _DATE.fullmatch(part)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataMissing(f"{path} is not a folder, nor a CSV file: name one of them")
    return sorted(found for found in path.rglob("*") if found.suffix.lower() == ".csv" and found.is_file())


def _recordings(table: CsvTable, places: Mapping[str, int], hertz: float) -> list[Recording]:
    labels = np.array([places[label] for label in table.labels], dtype=np.int64)
    signal = np.concatenate([table.signal / watch.UNITS[: table.signal.shape[1]], table.beside, table.values], axis=1)
    return recordings_of(table.times, signal, labels, hertz)
