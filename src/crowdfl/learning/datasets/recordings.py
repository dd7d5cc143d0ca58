"""From a sensor's stream to recordings, and from recordings to windows.

A stream is broken where time jumps or the label changes. A recording is cut by time, the earlier part to train and the later
part to test, with a gap between. Each part is resampled and windowed after the cut, so that no sample reaches both sides.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Cut, Labels, Person, Recording, Split, Windows

GRAVITY = 9.80665  # m/s^2 in a g

_LONGEST_GAP = 10  # samples at the rate asked for; a longer gap is not filled in

_Floats = npt.NDArray[np.floating]


def runs_of(*keys: npt.NDArray[np.integer]) -> list[slice]:
    changes = np.any([np.diff(key) != 0 for key in keys], axis=0)
    return _between(np.flatnonzero(changes) + 1, len(keys[0]))


def recordings_of(times: npt.NDArray[np.float64], signal: _Floats, labels: Labels, hertz: float) -> list[Recording]:
    """Stretches to be resampled to `hertz`. Times are in seconds; a sample at the time of the one before is left out."""
    if not len(times):
        return []
    new = np.append(True, np.diff(times) != 0)
    times, signal, labels = times[new], signal[new], labels[new]
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
