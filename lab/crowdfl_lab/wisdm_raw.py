"""WISDM's raw text, `WISDM_ar_v1.1_raw.txt`: lines `user,activity,timestamp,x,y,z;` at 20 Hz.

Times are in nanoseconds, read as seconds. Users come in any order. Faults are counted; a record that cannot be repaired is left
out.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

WISDM_URL = "https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz"
WISDM_FILE = "WISDM_ar_v1.1_raw.txt"  # in that archive
ACTIVITIES = ("Downstairs", "Jogging", "Sitting", "Standing", "Upstairs", "Walking")

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
