"""A CSV file as a phone's sensor app exports it: time, x, y, z, perhaps rotation, and a label.

Apps differ in headers, units and ways to write the time; docs/learning.md lists what is understood. Numbers to learn are
columns too: of the names that a task gives its values, or, for a single one, `value` or `target`.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.recordings import GRAVITY

_TIMES = re.compile(r"(?:unix|epoch|elapsed|logging|sensor)?(?:timestamp|time|seconds|ts|t)(?:elapsed)?")
_AXIS = re.compile(r"(a|acc|gf|accel|acceleration|accelerometer)?(?:axis|value)?([xyz])(?:axis|value)?")
_TURN = re.compile(r"(g|gyr|gyro|gyroscope|rotation|rotationrate)(?:axis|value)?([xyz])(?:axis|value)?")
_VALUES = ("value", "target")
_LABELS = ("label", "activity", "class", "exercise")
_UNIT = re.compile(r"(.*?)[\s_]*[(\[]([^)\]]*)[)\]]\s*|(.*?)_(s|ms|us|ns)")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_STEPS = (("s", 1.0), ("ms", 1e3), ("us", 1e6))  # a step below this is in this unit


@dataclass(frozen=True, eq=False)
class CsvTable:
    """Samples in the file's order: seconds, channels in g and rad/s, a label each; why rows were left out; and values."""

    times: npt.NDArray[np.float64]
    signal: npt.NDArray[np.float64]
    labels: Sequence[str]
    dropped: Counter[str]
    values: npt.NDArray[np.float64]  # (samples, values)


@dataclass(frozen=True)
class _Columns:
    """The position of each field in a row, and the units the header gives."""

    time: int
    channels: tuple[int, ...]
    label: int | None
    time_unit: str = ""
    units: tuple[str, ...] = ()
    values: tuple[int, ...] = ()


def read_table(path: Path, label: str, values: Sequence[str] = ()) -> CsvTable:
    """A file's samples; `label` is for those without one, and may be empty. `values` names numbers to learn."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.partition("\n")[0]
        delimiter = next((mark for mark in ";\t" if mark in head), ",")
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataMalformed(f"{path} is not CSV text: {error}") from error
    if not rows:
        return CsvTable(np.zeros(0), np.zeros((0, 3)), [], Counter(), np.zeros((0, len(values))))
    has_header = not any(_is_number(cell, delimiter) for cell in rows[0])
    if values and not has_header:
        raise DataMalformed(f"{path} has no header: it must name the column of each value, {', '.join(values)}")
    columns = _columns(path, rows[0], values) if has_header else _default_columns(path, rows[0])
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


def _columns(path: Path, head: Sequence[str], values: Sequence[str] = ()) -> _Columns:
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
    return _Columns(time, channels, label, units[time], tuple(units[i] for i in channels), found)


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
    return re.sub(r"[^a-z]", "", name.lower().replace("linear", "")), unit.strip().lower()


def _triple(pattern: re.Pattern[str], names: Sequence[str]) -> tuple[int, ...] | None:
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        if match := pattern.fullmatch(name):
            found.setdefault(match[2], place)
    return tuple(found[axis] for axis in "xyz") if len(found) == 3 else None


def _table(path: Path, columns: _Columns, rows: Sequence[Sequence[str]], delimiter: str, label: str) -> CsvTable:
    dropped: Counter[str] = Counter()
    numbers: list[float] = []
    dates: list[float] = []  # a file holds times as numbers or as dates, not both
    samples: list[list[float]] = []
    learned: list[list[float]] = []
    labels: list[str] = []
    for row in rows:
        try:
            sample = [_number(row[place], delimiter) for place in columns.channels]
            learned_here = [_number(row[place], delimiter) for place in columns.values]
            name = row[columns.label].strip().lower() if columns.label is not None else ""
            time = row[columns.time]
            is_number = _is_number(time, delimiter)
            value = _number(time, delimiter) if is_number else _timestamp(time)
        except (IndexError, ValueError) as wrong:
            dropped["a missing field" if isinstance(wrong, IndexError) else "not a number"] += 1
            continue
        (numbers if is_number else dates).append(value)
        samples.append(sample)
        learned.append(learned_here)
        labels.append(name or label)
    if numbers and dates:
        raise DataMalformed(f"{path}: some times are numbers and some are dates: export it again with one of them")
    signal = np.array(samples, dtype=np.float64).reshape(-1, len(columns.channels))
    times = _seconds(numbers, columns.time_unit) if numbers else np.array(dates, dtype=np.float64)
    values = np.array(learned, dtype=np.float64).reshape(len(learned), len(columns.values))
    return CsvTable(times, _scaled(signal, columns.units), labels, dropped, values)


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
