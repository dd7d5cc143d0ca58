"""WISDM's raw text, `WISDM_ar_v1.1_raw.txt`: lines `user,activity,timestamp,x,y,z;` at 20 Hz.

Times are in nanoseconds and acceleration in m/s^2, read as seconds and g. Users come in any order. Faults are counted; a
record that cannot be repaired is left out.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets.data import GRAVITY, Cut, Source, Split, person_at, recordings_of, split_recordings

WISDM_URL = "https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz"
WISDM_FILE = "WISDM_ar_v1.1_raw.txt"  # in that archive
ACTIVITIES = ("Downstairs", "Jogging", "Sitting", "Standing", "Upstairs", "Walking")
HERTZ = 20.0

# The paper's 90 samples, side by side, and an unused window between training and held-out samples.
CUT = Cut(length=90, step=90, held_out=0.3, gap=90, hertz=HERTZ)

_LABELS = {name: label for label, name in enumerate(ACTIVITIES)}
_FIELDS = 6
_Record = tuple[int, float, float, float, float, int]


@dataclass
class Faults:
    """How often each fault occurs: in records that could be repaired, and in those that were left out."""

    repaired: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def notes(self) -> tuple[str, ...]:
        groups = {"Repaired": self.repaired, "Left out": self.dropped}
        return tuple(
            f"{name}: " + ", ".join(f"{kind} {count:,}" for kind, count in sorted((+counter).items())) + "."
            for name, counter in groups.items()
            if +counter
        )


@dataclass(frozen=True)
class WisdmRaw(Source):
    """The people are the users, in the order of their numbers."""

    path: Path
    cut: Cut = CUT
    label_names: ClassVar = ACTIVITIES

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(map(str, sorted(self._content[0])))

    @property
    def faults(self) -> Faults:
        return self._content[1]

    @property
    def notes(self) -> tuple[str, ...]:
        return self.faults.notes

    def load_person(self, index: int) -> Split:
        name = person_at(self.people, index)
        rows = np.frombuffer(self._content[0][int(name)], dtype=np.float64).reshape(-1, 5)
        times, signal, labels = rows[:, 0], rows[:, 1:4] / GRAVITY, rows[:, 4].astype(np.int64)
        hertz = self.cut.hertz or HERTZ
        recordings = recordings_of(times, signal, labels, hertz)
        return split_recordings(name, recordings, ACTIVITIES, replace(self.cut, hertz=hertz))

    @cached_property
    def _content(self) -> "tuple[dict[int, array[float]], Faults]":
        try:
            with self.path.open(encoding="ascii", errors="replace") as lines:
                found = read_wisdm(lines)
        except FileNotFoundError as error:
            raise DataMissing(f"there is no {self.path}: take {WISDM_FILE} out of {WISDM_URL}") from error
        if not found[0]:
            raise DataMalformed(f"{self.path} has no record `user,activity,timestamp,x,y,z;`: is it WISDM's raw text?")
        return found


def read_wisdm(lines: Iterable[str]) -> "tuple[dict[int, array[float]], Faults]":
    """For each user rows of seconds, x, y, z and label, one after the other; and the faults."""
    people: dict[int, array[float]] = {}
    last: dict[int, _Record] = {}
    faults = Faults()
    for line in lines:
        for text in _records(line, faults):
            record = _parse(text, faults)
            if record is None:
                continue
            if record == last.get(record[0]):
                faults.dropped["repeated record"] += 1
                continue
            last[record[0]] = record
            people.setdefault(record[0], array("d")).extend(record[1:])
    return people, faults


def _records(line: str, faults: Faults) -> list[str]:
    """The records of a line. There should be one, which ends in a semicolon."""
    line = line.strip()
    if line.find(";") == len(line) - 1 > 0:
        return [line[:-1]]  # the usual form, first because there are a million of them
    if not line:
        faults.dropped["empty line"] += 1
        return []
    *records, rest = line.split(";")
    if rest:
        faults.repaired["no semicolon at the end"] += 1
        records.append(rest)
    filled = [record for record in records if record.strip(", ")]
    faults.dropped["empty record"] += len(records) - len(filled)
    faults.repaired["several records on a line"] += len(filled) > 1
    return filled


def _parse(text: str, faults: Faults) -> _Record | None:
    fields = text.split(",")
    if trailing := len(fields) == _FIELDS + 1 and not fields[-1].strip():
        fields.pop()
    if len(fields) != _FIELDS or not all(fields):
        faults.dropped["missing field" if len(fields) <= _FIELDS else "too many fields"] += 1
        return None
    user, activity, time, *axes = fields
    try:
        x, y, z = map(float, axes)
        record = int(user), float(time) / 1e9, x, y, z, _LABELS[activity.strip()]
        if not math.isfinite(record[1] + x + y + z):
            raise ValueError
    except (ValueError, KeyError) as wrong:
        faults.dropped["not a number" if isinstance(wrong, ValueError) else "unknown activity"] += 1
        return None
    if not record[1]:
        faults.dropped["zero timestamp"] += 1
        return None
    if trailing:
        faults.repaired["trailing comma"] += 1
    return record
