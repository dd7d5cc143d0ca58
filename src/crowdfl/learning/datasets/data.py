"""Where training data comes from: one person's windows and labels, behind one small interface.

From a sensor's stream to recordings: it is broken where time jumps or the label changes. From a recording to windows: it is
cut by time, the earlier part to train and the later part to test, with a gap between. Each part is resampled and windowed
after the cut, so that no sample reaches both sides. And one person's data on a task's terms.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing, SettingsError

Windows = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]
_Floats = npt.NDArray[np.floating]

GRAVITY = 9.80665  # m/s^2 in a g
UNLABELLED = "unlabelled"  # the label of windows that have values alone
_LONGEST_GAP = 10  # samples at the rate asked for; a longer gap is not filled in
_STILL = 1e-6  # a channel that never moves is not divided by zero


@dataclass(frozen=True)
class Cut:
    """How recordings become windows. Lengths are in samples, of which there are `hertz` a second; None: as recorded.

    `TrainingSettings` has the bounds.
    """

    length: int
    step: int
    held_out: float = 0.3
    gap: int = 0
    hertz: float | None = None


@dataclass(frozen=True, eq=False)
class Recording:
    """One uninterrupted stretch of (samples, channels) with one label; with times in seconds if it is to be resampled."""

    signal: npt.NDArray[np.floating]
    label: int
    times: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Person:
    """What one device knows: windows (n, length, channels), and a label for each, as an index into `label_names`.

    Data to learn numbers from has `values` too, (n, values), a column for each of `value_names`.
    """

    name: str
    windows: Windows
    labels: Labels
    label_names: tuple[str, ...]
    values: Values | None = None
    value_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.windows.ndim != 3:
            raise DataMalformed(f"{self.name}: windows have the axes (n, length, channels), not {self.windows.shape}")
        if self.labels.shape != (len(self.windows),):
            raise DataMalformed(f"{self.name}: {len(self.windows)} windows and labels of shape {self.labels.shape}")
        if not np.isfinite(self.windows).all():
            raise DataMalformed(f"{self.name}: a window holds NaN or infinity")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.label_names):
            raise DataMalformed(f"{self.name}: a label is outside 0 to {len(self.label_names) - 1}")
        if self.values is not None and self.values.shape != (wanted := (len(self.windows), len(self.value_names))):
            raise DataMalformed(f"{self.name}: values of shape {self.values.shape}; expected {wanted}")
        if self.values is not None and not np.isfinite(self.values).all():
            raise DataMalformed(f"{self.name}: a value is NaN or infinity")

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
    def people(self) -> Sequence[str]: ...  # their names, in order
    @property
    def label_names(self) -> tuple[str, ...]: ...  # the same for everyone
    @property
    def notes(self) -> tuple[str, ...]:
        """What every report on this data must mention."""
        return ()

    def load_person(self, index: int) -> Split: ...  # the data of `people[index]` and of nobody else


def person_at(people: Sequence[str], index: int) -> str:
    """The name of a person in a data set. A negative index is refused."""
    if not 0 <= index < len(people):
        raise DataMissing(f"the data has people 0 to {len(people) - 1}, not {index}")
    return people[index]


def standardised(split: Split, channels: int | None = None) -> Split:
    """Each of the first channels with mean 0 and deviation 1 over the training windows; the held-out ones by the same."""
    if not len(split.train):
        raise DataMalformed(f"{split.train.name}: there are no training windows to standardise by")
    mean, deviation = split.train.windows.mean(axis=(0, 1)), split.train.windows.std(axis=(0, 1))
    scale = np.maximum(deviation, _STILL)
    if channels is not None:
        mean[channels:], scale[channels:] = 0, 1  # beside motion

    def scaled(person: Person) -> Person:
        windows = ((person.windows - mean) / scale).astype(np.float32)
        return replace(person, windows=windows)

    return Split(scaled(split.train), scaled(split.held_out))


def relabelled(split: Split, names: Sequence[str]) -> Split:
    """With a task's labels, found by name, ignoring case. Windows with a label that the task does not have are left out."""
    if split.train.label_names == (UNLABELLED,) and split.train.values is not None:
        raise DataMalformed(
            f"{split.train.name}: this data has values ({', '.join(split.train.value_names)}) and no labels. To learn them, "
            'say target = "value" in [training], as in `crowdfl train --set target=value`'
        )
    places = {name.casefold(): place for place, name in enumerate(names)}
    moved = np.array([places.get(name.casefold(), -1) for name in split.train.label_names], dtype=np.int64)
    if (moved < 0).all():
        mine = ", ".join(split.train.label_names)
        wanted = ", ".join(names)
        raise DataMalformed(
            f"{split.train.name}: none of the labels {mine} is among the task's: {wanted}. Take other data, or let the task "
            f"say labels = {json.dumps(split.train.label_names, ensure_ascii=False)} in its [training]"
        )

    def side(person: Person) -> Person:
        labels = moved[person.labels]
        return Person(person.name, person.windows[labels >= 0], labels[labels >= 0], tuple(names))

    return Split(side(split.train), side(split.held_out))


def valued(split: Split, names: Sequence[str]) -> Split:
    """With the values that a task names, ignoring case; where it names one and the data has one, that is it."""
    name, mine = split.train.name, split.train.value_names
    if split.train.values is None:
        raise DataMalformed(
            f"{name}: the task learns values ({', '.join(names)}), and this data has none: docs/learning.md"
        )
    places = {one.casefold(): place for place, one in enumerate(mine)}
    if len(names) == len(mine) == 1:
        places = {names[0].casefold(): 0}
    missing = [one for one in names if one.casefold() not in places]
    if missing:
        raise DataMalformed(f"{name}: the task's value {missing[0]!r} is not among the data's: {', '.join(mine)}")
    chosen = [places[one.casefold()] for one in names]

    def side(person: Person) -> Person:
        values = None if person.values is None else person.values[:, chosen]
        return replace(person, values=values, value_names=tuple(names))

    return Split(side(split.train), side(split.held_out))


def runs_of(*keys: npt.NDArray[np.integer]) -> list[slice]:
    changes = np.any([np.diff(key) != 0 for key in keys], axis=0)
    return _between(np.flatnonzero(changes) + 1, len(keys[0]))


def recordings_of(times: npt.NDArray[np.float64], signal: _Floats, labels: Labels, hertz: float) -> list[Recording]:
    """Stretches to be resampled to `hertz`. Times are in seconds; a sample at the time of the one before is left out."""
    if not len(times):
        return []
    new = np.append(True, np.diff(times) != 0)
    times = times[new]
    signal = signal[new]
    labels = labels[new]
    steps = np.diff(times)
    broken = (steps < 0) | (steps > _LONGEST_GAP / hertz) | (np.diff(labels) != 0)
    parts = _between(np.flatnonzero(broken) + 1, len(times))
    return [Recording(signal[part], int(labels[part.start]), times[part]) for part in parts]


def timed(recording: Recording, hertz: float, wanted: float | None) -> Recording:
    """Add times to a recording of `hertz` samples a second if another rate is wanted."""
    if wanted is None or wanted == hertz:
        return recording
    return Recording(recording.signal, recording.label, np.arange(len(recording.signal)) / hertz)


def resampled(times: npt.NDArray[np.float64], signal: _Floats, hertz: float) -> _Floats:
    """`hertz` samples a second from the first one on, by linear interpolation. Times are in seconds."""
    if not len(times):
        return signal
    duration = times[-1] - times[0]
    samples = int(duration * hertz + 1e-6) + 1  # a grid point that rounding pushed behind the last sample still counts
    if samples > 100 * len(times):
        raise DataMalformed(f"{len(times)} samples in {duration:g} s are too few to resample to {hertz:g} Hz")
    smooth = _smooth(signal, round(len(times) / samples))
    grid = times[0] + np.arange(samples) / hertz
    return np.stack([np.interp(grid, times, channel) for channel in smooth.T], axis=1)


def windows_of(signal: _Floats, length: int, step: int) -> Windows:
    """All whole windows of (samples, channels), as (n, length, channels)."""
    samples, channels = signal.shape
    if samples < length:
        return np.empty((0, length, channels), dtype=np.float32)
    views = np.lib.stride_tricks.sliding_window_view(signal, length, axis=0)[::step]
    return np.ascontiguousarray(views.transpose(0, 2, 1), dtype=np.float32)


def split_recordings(name: str, recordings: Sequence[Recording], label_names: tuple[str, ...], cut: Cut) -> Split:
    early, late = [], []
    for recording in recordings:
        first, second = _parts(recording, cut)
        early.append((windows_of(first, cut.length, cut.step), recording.label))
        late.append((windows_of(second, cut.length, cut.step), recording.label))
    return Split(_person(name, early, label_names), _person(name, late, label_names))


def with_values(split: Split, names: tuple[str, ...]) -> Split:
    """The last channels become values: a window's value is the mean over its samples."""

    def side(person: Person) -> Person:
        channels = person.windows.shape[2] - len(names)
        values = person.windows[:, :, channels:].mean(axis=1, dtype=np.float64).astype(np.float32)
        windows = np.ascontiguousarray(person.windows[:, :, :channels])
        return replace(person, windows=windows, values=values, value_names=names)

    return Split(side(split.train), side(split.held_out))


def _parts(recording: Recording, cut: Cut) -> tuple[_Floats, _Floats]:
    """The samples before the cut and those after the gap, evenly spaced."""
    signal, times = recording.signal, recording.times
    end = len(signal) - round(len(signal) * cut.held_out)
    if times is None:
        return signal[:end], signal[end + cut.gap :]
    if cut.hertz is None:
        raise SettingsError("a recording with times needs a rate to be resampled to: set `hertz`")
    start = int(np.searchsorted(times, times[max(end - 1, 0)] + cut.gap / cut.hertz, side="right"))
    start = max(start, end)
    return resampled(times[:end], signal[:end], cut.hertz), resampled(times[start:], signal[start:], cut.hertz)


def _person(name: str, parts: Sequence[tuple[Windows, int]], label_names: tuple[str, ...]) -> Person:
    if not parts:
        raise DataMalformed(f"{name}: there are no recordings")
    windows = np.concatenate([windows for windows, _ in parts])
    labels = np.repeat([label for _, label in parts], [len(windows) for windows, _ in parts]).astype(np.int64)
    return Person(name, windows, labels, label_names)


def _smooth(signal: _Floats, width: int) -> _Floats:
    """A running mean, so that frequencies above the new rate are damped rather than aliased."""
    if width < 2:
        return signal
    box = np.ones(width)
    counts = np.convolve(np.ones(len(signal)), box, mode="same")
    return np.stack([np.convolve(channel, box, mode="same") / counts for channel in signal.T], axis=1)


def _between(breaks: npt.NDArray[np.integer], end: int) -> list[slice]:
    return [slice(start, stop) for start, stop in pairwise([0, *breaks.tolist(), end]) if stop > start]
