"""The paper's data set from WISDM's public raw text: 36 users x 70 windows of 90 samples x 3 axes, 49 of each to train.

The rule is in lab/docs/experiments.md ("The data set"). Samples are taken as they were recorded, without resampling. Sums are
exact and files are written without a clock, so that the same raw text gives the same bytes on every machine.

The raw text, `WISDM_ar_v1.1_raw.txt`, has lines `user,activity,timestamp,x,y,z;` at 20 Hz. Times are in
nanoseconds, read as seconds. Users come in any order. Faults are counted; a record that cannot be repaired is left out.
"""

import io
import math
import zipfile
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataAltered, DataMalformed

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


SET_FILE = "wisdm_v1.1_crowdfl_2520x90x3.npz"
HOW_TO_GET = (
    f"run `crowdfl wisdm fetch data` (11 MB from {WISDM_URL}), then `crowdfl wisdm build data/{WISDM_FILE} data`"
)
RULE = "crowdfl build-wisdm 1"  # another rule would have another number

USERS, LENGTH = 36, 90
TRAIN, TEST = 49, 21
TABLE_2: Mapping[str, int] = {
    "Downstairs": 176,
    "Jogging": 518,
    "Sitting": 92,
    "Standing": 85,
    "Upstairs": 200,
    "Walking": 693,
}

# As WISDM_ar_v1.1_raw_about.txt says: 1,098,207 records.
KNOWN_RECORDS: Mapping[str, int] = {
    "Downstairs": 100_427,
    "Jogging": 342_177,
    "Sitting": 59_939,
    "Standing": 48_395,
    "Upstairs": 122_869,
    "Walking": 424_400,
}
_FAULTY = 0.2  # at most this share of an activity's records may be unusable
_MORE = 0.001  # and so many more may be there, for some stand several on a line

_LONGEST_GAP = 1.0  # seconds
_STEPS = (90, 45, 30, 15, 5)
_STILL = 1e-6  # a time step that never changes is not divided by zero
_YEAR_ONE = (1980, 1, 1, 0, 0, 0)  # of every entry of the file: the earliest that the format has
_Starts = list[list[int]]  # of each activity, at which record its windows start
_Counts = list[list[int]]  # of each user, by activity


@dataclass(frozen=True, eq=False)
class _User:
    """One user's samples, and where windows may start on either side."""

    name: str
    samples: npt.NDArray[np.float64]
    train: _Starts
    test: _Starts


def build_arrays(people: Mapping[int, Sequence[float]]) -> dict[str, npt.NDArray[Any]]:
    """The set's arrays from what `read_wisdm` gives: for each user rows of seconds, x, y, z and label."""
    if sorted(people) != list(range(1, USERS + 1)):
        raise DataMalformed(f"the raw text has {len(people)} users; expected users 1 to {USERS}")
    users = [_user(number, np.asarray(people[number]).reshape(-1, 5)) for number in sorted(people)]
    counts = allot([[len(starts) for starts in user.train] for user in users], TRAIN, _totals())
    chosen = [_windows_of(user, row) for user, row in zip(users, counts, strict=True)]
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [each[name] for each in chosen] for name in chosen[0]}
    joined = {name: np.concatenate(rows) for name, rows in parts.items()}
    numbers = np.repeat(np.array(sorted(people), dtype=np.uint8), TRAIN + TEST)
    return joined | {"user": numbers, "label_names": np.array(ACTIVITIES), "rule": np.array(RULE)}


def check_known(people: Mapping[int, Sequence[float]]) -> None:
    """Compare the usable records of each activity with what WISDM says of the file, which has some faulty ones too."""
    labels = np.concatenate([np.asarray(rows).reshape(-1, 5)[:, 4] for rows in people.values()]).astype(np.int64)
    found = np.bincount(labels, minlength=len(ACTIVITIES)).tolist()
    for name, count in zip(ACTIVITIES, found, strict=True):
        known = KNOWN_RECORDS[name]
        if not (1 - _FAULTY) * known <= count <= (1 + _MORE) * known:
            raise DataAltered(
                f"the text has {count:,} usable records of {name}, WISDM v1.1 has {known:,}: "
                "is it WISDM_ar_v1.1_raw.txt, whole? To build from it all the same, add --unchecked"
            )


def _totals() -> list[int]:
    return [TABLE_2[name] for name in ACTIVITIES]


def _user(number: int, rows: npt.NDArray[np.float64]) -> _User:
    stretches = _stretches(rows[:, 0], rows[:, 4])
    sides = [_parts(*stretch) for stretch in stretches]
    labels = [int(rows[start, 4]) for start, _ in stretches]
    name = f"user {number}"
    train = _enough(name, [side[0] for side in sides], labels, TRAIN)
    return _User(name, rows[:, 1:4], train, _enough(name, [side[1] for side in sides], labels, TEST))


def _stretches(times: npt.NDArray[np.float64], labels: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    steps = np.diff(times)
    broken = (steps < 0) | (steps > _LONGEST_GAP) | (np.diff(labels) != 0)
    return list(pairwise([0, *(np.flatnonzero(broken) + 1).tolist(), len(times)]))


def _parts(start: int, end: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """To train, and after an unused window to test; 7 of 10 samples are before the cut."""
    cut = start + (end - start) * 7 // 10
    return (start, cut), (cut + LENGTH, end)


def _enough(name: str, parts: Sequence[tuple[int, int]], labels: Sequence[int], wanted: int) -> _Starts:
    """Where windows start, by activity, at the widest step that gives enough of them."""
    found: _Starts = []
    for step in _STEPS:
        found = [[] for _ in ACTIVITIES]
        for (start, end), label in zip(parts, labels, strict=True):
            found[label] += range(start, end - LENGTH + 1, step)
        if sum(map(len, found)) >= wanted:
            return found
    raise DataMalformed(f"{name} has {sum(map(len, found))} windows of {LENGTH} samples; {wanted} are needed")


def allot(available: _Counts, each: int, totals: Sequence[int] | None = None) -> _Counts:
    """How many windows of each activity a user gives: `each` in all, and by activity the totals, if given."""
    counts = [divided(each, row, row) for row in available]
    if totals is not None:
        while move := _next_move(counts, available, totals):
            for user, label, other in move:
                counts[user][label] -= 1
                counts[user][other] += 1
    return counts


def divided(number: int, shares: Sequence[int], most: Sequence[int]) -> list[int]:
    """`number` in proportion to the shares, none above its most, by Sainte-Lague's method; the first of equals."""
    found = [0] * len(shares)
    for _ in range(number):
        open_places = [i for i in range(len(shares)) if found[i] < most[i]]
        # Who has no share of its own comes last.
        found[min(open_places, key=lambda i: (shares[i] == 0, Fraction(2 * found[i] + 1, shares[i] or 1), i))] += 1
    return found


def _next_move(counts: _Counts, available: _Counts, totals: Sequence[int]) -> list[tuple[int, int, int]]:
    """The shortest chain of (user, from, to) that takes a window from an activity with too many to one with too few."""
    surplus = [sum(row[i] for row in counts) - total for i, total in enumerate(totals)]
    if not any(surplus):
        return []
    reached: dict[int, list[tuple[int, int, int]]] = {i: [] for i in range(len(totals)) if surplus[i] > 0}
    waiting = list(reached)
    for label in waiting:  # grows while it is walked
        if surplus[label] < 0:
            return reached[label]
        for other in range(len(totals)):
            user = None if other in reached else _mover(counts, available, label, other)
            if user is not None:
                reached[other] = [*reached[label], (user, label, other)]
                waiting.append(other)
    short = ", ".join(ACTIVITIES[i] for i in range(len(totals)) if surplus[i] < 0)
    raise DataMalformed(f"the raw text has too few windows of {short}: the totals of the paper's table 2 cannot be met")


def _mover(counts: _Counts, available: _Counts, label: int, other: int) -> int | None:
    """Who can best give one window of `other` for one of `label`: who takes most of the one and least of the other."""
    able = [
        (Fraction(row[other] + 1, have[other]) - Fraction(row[label], have[label]), user)
        for user, (row, have) in enumerate(zip(counts, available, strict=True))
        if row[label] > 0 and row[other] < have[other]
    ]
    return min(able)[1] if able else None


def _windows_of(user: _User, counts: Sequence[int]) -> dict[str, npt.NDArray[Any]]:
    rest = divided(TEST, counts, [len(starts) for starts in user.test])
    sides = [_spread(user.train, counts), _spread(user.test, rest)]
    starts = [start for side in sides for start, _ in side]
    windows = np.stack([user.samples[start : start + LENGTH] for start in starts])
    mean, deviation = _statistics(windows[:TRAIN])
    scaled = (windows - mean) / np.maximum(deviation, _STILL)
    return {
        "x_z": scaled.astype(np.float32),
        "label": np.array([label for side in sides for _, label in side], dtype=np.uint8),
        "train": np.arange(TRAIN + TEST) < TRAIN,
        "src_index": np.array(starts, dtype=np.int32),
        "est_sigma": _by_axis(deviation),
        "est_mu": _by_axis(mean),
    }


def _spread(starts: _Starts, counts: Sequence[int]) -> list[tuple[int, int]]:
    """Of each activity so many, evenly over time; all of them in the order of time, with their activity."""
    taken = [
        (own[(2 * i + 1) * len(own) // (2 * count)], label)
        for label, (own, count) in enumerate(zip(starts, counts, strict=True))
        for i in range(count)
    ]
    return sorted(taken)


def _statistics(windows: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and deviation over the windows, by time step and axis; `fsum` rounds once, in whatever order it adds."""
    mean = _sums(windows) / len(windows)
    return mean, np.sqrt(_sums(np.square(windows - mean)) / len(windows))


def _sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    columns = values.reshape(len(values), -1).T
    return np.array([math.fsum(column) for column in columns.tolist()]).reshape(values.shape[1:])


def _by_axis(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Its mean over the time steps: enough to give m/s^2 back approximately."""
    return (_sums(values) / len(values)).astype(np.float32)[None]


def npz_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """An .npz file whose bytes follow from the arrays alone: sorted, uncompressed, without times."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            entry, content = zipfile.ZipInfo(f"{name}.npy", _YEAR_ONE), io.BytesIO()
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            np.lib.format.write_array(content, np.ascontiguousarray(arrays[name]), version=(1, 0), allow_pickle=False)
            archive.writestr(entry, content.getvalue())
    return file.getvalue()


def set_path(out: Path) -> Path:
    return out if out.suffix == ".npz" else out / SET_FILE
