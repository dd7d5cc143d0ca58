"""seglearn's watch data: 140 recordings of 7 shoulder exercises by 10 people, a smartwatch's six axes at 50 Hz.

The file `watch.npz` lies beside this module; `watch.NOTICE` has its origin, licence and layout.
"""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crowdfl.errors import DataAltered, DataMissing
from crowdfl.learning.datasets.data import Cut, Recording, Source, Split, person_at
from crowdfl.learning.datasets.recordings import split_recordings, timed

FILE = Path(__file__).with_name("watch.npz")
SHA256 = "9bb2789f421ea5f7c55c0fb13f8639da36e04dcb2fe631d15ee4f96ce9dcf8cb"
PEOPLE = 10
HERTZ = 50.0
EXERCISES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")

# Two seconds, a new window every half second, and two unused seconds between training and held-out samples.
CUT = Cut(length=100, step=25, held_out=0.3, gap=100)

# Constants of the sensor rather than anyone's statistics: every phone scales alike without telling or learning anything about
# the others, and the averaged model also serves a person who never took part. Acceleration is in g, rotation in rad/s.
UNITS = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])

_MILLIONTHS = 1e6
_REINSTALL = "install crowdfl again to restore it"


@dataclass(frozen=True)
class Watch(Source):
    """Ten people, `watch-01` to `watch-10`."""

    cut: Cut = CUT
    path: Path = FILE
    people: ClassVar = tuple(f"watch-{number:02}" for number in range(1, PEOPLE + 1))
    label_names: ClassVar = EXERCISES

    def load_person(self, index: int) -> Split:
        """In units of g and 2 rad/s."""
        name = person_at(self.people, index)
        recordings = _recordings(read_checked(self.path), index + 1)
        recordings = [timed(recording, HERTZ, self.cut.hertz) for recording in recordings]
        return split_recordings(name, recordings, EXERCISES, self.cut)


def read_checked(path: Path = FILE) -> bytes:
    """The file's bytes. They are hashed and used from memory, so that the file cannot change in between."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataMissing(f"there is no {path}: {_REINSTALL}") from error
    if (found := hashlib.sha256(data).hexdigest()) != SHA256:
        raise DataAltered(f"{path} has the SHA-256 {found[:16]}..., not {SHA256[:16]}...: {_REINSTALL}")
    return data


def _recordings(data: bytes, subject: int) -> list[Recording]:
    """The recordings of one subject; the arrays of the others are not decompressed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        planes, lengths, exercises = (file[f"{name}_{subject}"] for name in ("steps", "lengths", "exercises"))
    steps = np.ascontiguousarray(planes.transpose(2, 1, 0)).view("<i4")[..., 0]
    signals = np.split(steps.cumsum(axis=0) / _MILLIONTHS / UNITS, np.cumsum(lengths)[:-1])
    return [Recording(signal, int(label)) for signal, label in zip(signals, exercises, strict=True)]
