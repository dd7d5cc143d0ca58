"""seglearn's watch data: 140 recordings of 7 shoulder exercises by 10 people, a smartwatch's six axes at 50 Hz.

The file comes with the package `seglearn` (BSD). It is found through the package's own list of files, checked against a known
hash and read without importing the package; of the recordings in it only those of the person asked for are ever decoded.
"""

import hashlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from crowdfl.errors import DataAltered, DataMissing
from crowdfl.learning.datasets.data import Cut, Recording, Split, person_at, split_recordings
from crowdfl.learning.datasets.object_file import StoredArray, read_object_file
from crowdfl.learning.datasets.stream import timed

__all__ = ["CUT", "EXERCISES", "HERTZ", "PEOPLE", "SHA256", "UNITS", "Watch", "find_watch_file", "load_person"]

SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
PEOPLE = 10
HERTZ = 50.0
EXERCISES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")

# Two seconds, a new window every half second, and two unused seconds between what is learnt from and what is tested on.
CUT = Cut(length=100, step=25, held_out=0.3, gap=100)

# Constants of the sensor rather than anyone's statistics: every phone scales alike without telling or learning anything about
# the others, and the averaged model also serves a person who never took part. Acceleration is in g, rotation in rad/s.
UNITS = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])

_PACKAGE = "seglearn"
_INSTALL = "`pip install --no-deps seglearn==1.2.5` brings it"


@dataclass(frozen=True)
class Watch:
    """The data set as a `Source`. Without a path, the file of the installed package."""

    cut: Cut = CUT
    path: Path | None = None

    @property
    def people(self) -> tuple[str, ...]:
        """watch-01 to watch-10."""
        return tuple(map(_name, range(PEOPLE)))

    @property
    def label_names(self) -> tuple[str, ...]:
        """The exercises."""
        return EXERCISES

    @property
    def notes(self) -> tuple[str, ...]:
        """None: units are the sensor's, and nothing is fitted."""
        return ()

    def load_person(self, index: int) -> Split:
        """One person's windows, in units of g and 2 rad/s."""
        name = person_at(self.people, index)
        recordings = _recordings(_checked(self.path or find_watch_file()), index + 1)
        recordings = [timed(recording, HERTZ, self.cut.hertz) for recording in recordings]
        return split_recordings(name, recordings, EXERCISES, self.cut)


def load_person(index: int, cut: Cut = CUT) -> Split:
    """Person `index`, from 0, of the installed data set."""
    return Watch(cut).load_person(index)


def find_watch_file() -> Path:
    """Where the package put its data file."""
    try:
        files = metadata.distribution(_PACKAGE).files or []
    except metadata.PackageNotFoundError as error:
        raise DataMissing(f"the watch data comes with the package {_PACKAGE}: {_INSTALL}") from error
    for file in files:
        if file.name == "watch_dataset.npy":
            return Path(str(file.locate()))
    raise DataMissing(f"the installed {_PACKAGE} lists no watch_dataset.npy: {_INSTALL}")


def _name(index: int) -> str:
    return f"watch-{index + 1:02}"


def _checked(path: Path) -> bytes:
    """The file's bytes, hashed and used as one and the same, so that no swap fits in between."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise DataMissing(f"there is no {path}: {_INSTALL}") from error
    if (found := hashlib.sha256(data).hexdigest()) != SHA256:
        raise DataAltered(
            f"{path} is not the known watch data (SHA-256 {found[:16]}..., not {SHA256[:16]}...): {_INSTALL}"
        )
    return data


def _recordings(data: bytes, subject: int) -> list[Recording]:
    """The recordings of one subject; the others' stay undecoded and are dropped with the file."""
    match read_object_file(data):
        case {"X": list(signals), "y": StoredArray() as y, "subject": StoredArray() as subjects}:
            exercises = y.read()
            mine = np.flatnonzero(subjects.read() == subject)
            return [Recording(signals[i].read() / UNITS, int(exercises[i])) for i in mine]
        case _:
            raise DataAltered("the watch data holds other things than signals, exercises and subjects")
