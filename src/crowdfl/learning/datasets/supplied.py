"""Data that comes with CrowdFL: a watch's recordings, and made-up people for tests and first tries.

The watch data is seglearn's: 140 recordings of 7 shoulder exercises by 10 people, a smartwatch's six axes at 50 Hz. The file
`watch.npz` lies beside this module; `watch.NOTICE` has its origin, licence and layout.
"""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crowdfl.errors import DataAltered, DataMissing
from crowdfl.learning.datasets.data import (
    Cut,
    Recording,
    Source,
    Split,
    person_at,
    split_recordings,
    timed,
    with_values,
)

FILE = Path(__file__).with_name("watch.npz")
SHA256 = "9bb2789f421ea5f7c55c0fb13f8639da36e04dcb2fe631d15ee4f96ce9dcf8cb"
PEOPLE = 10
HERTZ = 50.0
EXERCISES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
PACES = ("slow", "middling", "fast")  # of made-up people
VALUES = ("pace",)

# Two seconds, a new window every half second, and two unused seconds between training and held-out samples.
CUT = Cut(length=100, step=25, held_out=0.3, gap=100)

# Constants of the sensor rather than anyone's statistics: every phone scales alike without telling or learning anything about
# the others, and the averaged model also serves a person who never took part. Acceleration is in g, rotation in rad/s.
UNITS = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])

_MILLIONTHS = 1e6
_SECONDS = 40  # of a made-up recording
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


@dataclass(frozen=True)
class Synthetic(Source):
    """`count` people who swing a limb at three paces, each with a strength of their own; the same seed makes the same ones.

    The label says which pace it is, the value `pace` how many times a second.
    """

    count: int = 10
    seed: int = 0
    channels: int = 3
    cut: Cut = CUT
    label_names: ClassVar = PACES
    notes: ClassVar = ("The data is made up.",)

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(f"synthetic-{number}" for number in range(1, self.count + 1))

    def load_person(self, index: int) -> Split:
        name = person_at(self.people, index)
        generator = np.random.default_rng([self.seed, index])
        split = split_recordings(name, [self._swing(label, generator) for label in range(3)], PACES, self.cut)
        return with_values(split, VALUES)

    def _swing(self, label: int, generator: "np.random.Generator") -> Recording:
        hertz = self.cut.hertz or HERTZ
        time = np.arange(round(_SECONDS * hertz))[:, None] / hertz
        pace = 0.5 * (label + 1) * generator.uniform(0.9, 1.1)
        vigour, phase = generator.uniform(0.5, 1.5, (2, 1, self.channels)) * [[[1.0]], [[2 * np.pi]]]
        noise = 0.1 * generator.normal(size=(len(time), self.channels))
        swing = vigour * np.sin(2 * np.pi * pace * time + phase) + noise
        return Recording(np.append(swing, np.full((len(time), 1), pace), axis=1), label)
