"""A CSV file as a phone's sensor app exports it: time, x, y, z, perhaps rotation, and a label.

Apps differ in headers, units and ways to write the time; docs/learning.md lists what is understood.
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
_LABELS = ("label", "activity", "class", "exercise")
_UNIT = re.compile(r"(.*?)[\s_]*[(\[]([^)\]]*)[)\]]\s*|(.*?)_(s|ms|us|ns)")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_STEPS = (("s", 1.0), ("ms", 1e3), ("us", 1e6))  # a step below this is in this unit


@dataclass(frozen=True, eq=False)
class CsvTable:
    """Samples in the file's order: seconds, channels in g and rad/s, a label each; and why rows were left out."""

    times: npt.NDArray[np.float64]
    signal: npt.NDArray[np.float64]
    labels: Sequence[str]
    dropped: Counter[str]


@dataclass(frozen=True)
class _Columns:
    """The position of each field in a row, and the units the header gives."""

    time: int
    channels: tuple[int, ...]
    label: int | None
    time_unit: str = ""
    units: tuple[str, ...] = ()


def read_table(path: Path, label: str) -> CsvTable:
    """A file's samples; `label` is for samples without a label of their own, which may stay without one."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        head = text.partition("\n")[0]
        delimiter = next((mark for mark in ";\t" if mark in head), ",")
        rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataMalformed(f"{path} is not CSV text: {error}") from error
    if not rows:
        return CsvTable(np.zeros(0), np.zeros((0, 3)), [], Counter())
    has_header = not any(_is_number(cell, delimiter) for cell in rows[0])
    columns = _columns(path, rows[0]) if has_header else _default_columns(path, rows[0])
    return _table(path, columns, rows[has_header:], delimiter, label)


def _default_columns(path: Path, row: Sequence[str]) -> _Columns:
    if len(row) not in (4, 5):
        raise DataMalformed(f"{path} has no header and {len(row)} columns: give it `timestamp,x,y,z,label`")
    return _Columns(0, (1, 2, 3), 4 if len(row) == 5 else None)


def _columns(path: Path, head: Sequence[str]) -> _Columns:
    names, units = zip(*map(_name_and_unit, head), strict=True)
    time = next((i for i, name in enumerate(names) if _TIMES.fullmatch(name)), None)
    axes, turns = (_triple(pattern, names) for pattern in (_AXIS, _TURN))
    if time is None or axes is None:
        raise DataMalformed(f"{path}: the header is {', '.join(head)}; it needs a time, x, y and z")
    channels = (*axes, *(turns or ()))
    label = next((i for i, name in enumerate(names) if name in _LABELS), None)
    return _Columns(time, channels, label, units[time], tuple(units[i] for i in channels))


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
    labels: list[str] = []
    for row in rows:
        try:
            sample = [_number(row[place], delimiter) for place in columns.channels]
            name = row[columns.label].strip().lower() if columns.label is not None else ""
            time = row[columns.time]
            is_number = _is_number(time, delimiter)
            value = _number(time, delimiter) if is_number else _timestamp(time)
        except (IndexError, ValueError) as wrong:
            dropped["a missing field" if isinstance(wrong, IndexError) else "not a number"] += 1
            continue
        (numbers if is_number else dates).append(value)
        samples.append(sample)
        labels.append(name or label)
    if numbers and dates:
        raise DataMalformed(f"{path}: some times are numbers and some are dates: export it again with one of them")
    signal = np.array(samples, dtype=np.float64).reshape(-1, len(columns.channels))
    times = _seconds(numbers, columns.time_unit) if numbers else np.array(dates, dtype=np.float64)
    return CsvTable(times, _scaled(signal, columns.units), labels, dropped)


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
