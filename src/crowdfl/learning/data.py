"""Where training data comes from: one person's windows and labels, behind one small interface.

A recording is cut by time, the earlier part to train and the later part to test, with a gap between. Windows are made after the
cut, so that overlapping ones never carry a sample from one side to the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, SettingsError

__all__ = ["Cut", "Labels", "Person", "Recording", "Source", "Split", "Windows", "split_recordings", "windows_of"]

Windows = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """How recordings become windows. Lengths are in samples."""

    length: int
    step: int
    held_out: float = 0.3
    gap: int = 0

    def __post_init__(self) -> None:
        if self.length < 1 or self.step < 1:
            raise SettingsError("a window's length and step are at least one sample")
        if not 0 < self.held_out < 1:
            raise SettingsError("the held-out share lies strictly between 0 and 1")
        if self.gap < 0:
            raise SettingsError("the gap between training and held-out samples cannot be negative")


@dataclass(frozen=True, eq=False)
class Recording:
    """One uninterrupted stretch of (samples, channels) with one label."""

    signal: npt.NDArray[np.floating]
    label: int


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

    def load_person(self, index: int) -> Split:
        """The data of `people[index]` and of nobody else."""


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
        end = len(recording.signal) - round(len(recording.signal) * cut.held_out)
        early.append((windows_of(recording.signal[:end], cut.length, cut.step), recording.label))
        late.append((windows_of(recording.signal[end + cut.gap :], cut.length, cut.step), recording.label))
    return Split(_person(name, early, label_names), _person(name, late, label_names))


def _person(name: str, parts: Sequence[tuple[Windows, int]], label_names: tuple[str, ...]) -> Person:
    if not parts:
        raise DataMalformed(f"{name}: there are no recordings")
    windows = np.concatenate([windows for windows, _ in parts])
    labels = np.repeat([label for _, label in parts], [len(windows) for windows, _ in parts]).astype(np.int64)
    return Person(name, windows, labels, label_names)
