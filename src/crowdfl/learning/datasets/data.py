"""Where training data comes from: one person's windows and labels, behind one small interface.

A recording is cut by time, the earlier part to train and the later part to test, with a gap between. Each part is resampled and
windowed after the cut, so that neither carries a sample from one side to the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing, SettingsError
from crowdfl.learning.datasets.resample import even

__all__ = [
    "Cut",
    "Labels",
    "Person",
    "Recording",
    "Source",
    "Split",
    "Windows",
    "person_at",
    "split_recordings",
    "windows_of",
]

Windows = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """How recordings become windows. Lengths are in samples, of which there are `hertz` a second; None: as recorded."""

    length: int
    step: int
    held_out: float = 0.3
    gap: int = 0
    hertz: float | None = None

    def __post_init__(self) -> None:
        if self.length < 1 or self.step < 1:
            raise SettingsError("a window's length and step are at least one sample")
        if not 0 < self.held_out < 1:
            raise SettingsError("the held-out share lies strictly between 0 and 1")
        if self.gap < 0:
            raise SettingsError("the gap between training and held-out samples cannot be negative")
        if self.hertz is not None and not 0 < self.hertz < math.inf:
            raise SettingsError(f"samples come at a rate above zero, not {self.hertz} a second")


@dataclass(frozen=True, eq=False)
class Recording:
    """One uninterrupted stretch of (samples, channels) with one label; with times in seconds if it is to be resampled."""

    signal: npt.NDArray[np.floating]
    label: int
    times: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Person:
    """What one device knows: windows (n, length, channels), and into `label_names` a label for each."""

    name: str
    windows: Windows
    labels: Labels
    label_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.windows.ndim != 3:
            raise DataMalformed(f"{self.name}: windows have the axes (n, length, channels), not {self.windows.shape}")
        if self.labels.shape != (len(self.windows),):
            raise DataMalformed(f"{self.name}: {len(self.windows)} windows and labels of shape {self.labels.shape}")
        if not np.isfinite(self.windows).all():
            raise DataMalformed(f"{self.name}: a window holds NaN or infinity")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.label_names):
            raise DataMalformed(f"{self.name}: a label is outside 0 to {len(self.label_names) - 1}")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Split:
    """One person's data, with no sample on both sides."""

    train: Person
    held_out: Person


class Source(Protocol):
    """A data set of several people, loaded one person at a time."""

    @property
    def people(self) -> Sequence[str]:
        """Their names, in order."""

    @property
    def label_names(self) -> tuple[str, ...]:
        """What the labels mean, the same for everyone."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report on this data must not leave unsaid."""

    def load_person(self, index: int) -> Split:
        """The data of `people[index]` and of nobody else."""


def person_at(people: Sequence[str], index: int) -> str:
    """The name of a person in a data set; an index does not wrap round to another."""
    if not 0 <= index < len(people):
        raise DataMissing(f"the data has people 0 to {len(people) - 1}, not {index}")
    return people[index]


def windows_of(signal: npt.NDArray[np.floating], length: int, step: int) -> Windows:
    """All whole windows of (samples, channels), as (n, length, channels)."""
    samples, channels = signal.shape
    if samples < length:
        return np.empty((0, length, channels), dtype=np.float32)
    views = np.lib.stride_tricks.sliding_window_view(signal, length, axis=0)[::step]
    return np.ascontiguousarray(views.transpose(0, 2, 1), dtype=np.float32)


def split_recordings(name: str, recordings: Sequence[Recording], label_names: tuple[str, ...], cut: Cut) -> Split:
    """Cut every recording by time, then each part into windows."""
    early, late = [], []
    for recording in recordings:
        first, second = _parts(recording, cut)
        early.append((windows_of(first, cut.length, cut.step), recording.label))
        late.append((windows_of(second, cut.length, cut.step), recording.label))
    return Split(_person(name, early, label_names), _person(name, late, label_names))


def _parts(recording: Recording, cut: Cut) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """The samples before the cut and those after the gap, evenly spaced."""
    signal, times = recording.signal, recording.times
    end = len(signal) - round(len(signal) * cut.held_out)
    if times is None:
        return signal[:end], signal[end + cut.gap :]
    if cut.hertz is None:
        raise SettingsError("a recording with times needs a rate to be resampled to: give `hertz`")
    start = int(np.searchsorted(times, times[max(end - 1, 0)] + cut.gap / cut.hertz, side="right"))
    start = max(start, end)
    return even(times[:end], signal[:end], cut.hertz), even(times[start:], signal[start:], cut.hertz)


def _person(name: str, parts: Sequence[tuple[Windows, int]], label_names: tuple[str, ...]) -> Person:
    if not parts:
        raise DataMalformed(f"{name}: there are no recordings")
    windows = np.concatenate([windows for windows, _ in parts])
    labels = np.repeat([label for _, label in parts], [len(windows) for windows, _ in parts]).astype(np.int64)
    return Person(name, windows, labels, label_names)
