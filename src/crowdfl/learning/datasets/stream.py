"""From a sensor's stream to recordings: broken where time jumps or the label changes."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from crowdfl.learning.datasets.data import Labels, Recording

__all__ = ["GRAVITY", "recordings_of", "runs_of", "timed"]

GRAVITY = 9.80665  # m/s^2 in a g

_LONGEST_GAP = 10  # samples at the rate asked for; what is missing for longer is not made up


def runs_of(*keys: npt.NDArray[np.integer]) -> list[slice]:
    """The stretches over which none of the keys changes."""
    changes = np.any([np.diff(key) != 0 for key in keys], axis=0)
    return _between(np.flatnonzero(changes) + 1, len(keys[0]))


def recordings_of(
    times: npt.NDArray[np.float64], signal: npt.NDArray[np.floating], labels: Labels, hertz: float
) -> list[Recording]:
    """Stretches to be made `hertz` samples a second. Times are in seconds; a sample at the time of the last is left out."""
    if not len(times):
        return []
    new = np.append(True, np.diff(times) != 0)
    times, signal, labels = times[new], signal[new], labels[new]
    steps = np.diff(times)
    broken = (steps < 0) | (steps > _LONGEST_GAP / hertz) | (np.diff(labels) != 0)
    parts = _between(np.flatnonzero(broken) + 1, len(times))
    return [Recording(signal[part], int(labels[part.start]), times[part]) for part in parts]


def timed(recording: Recording, hertz: float, wanted: float | None) -> Recording:
    """An even recording of `hertz` samples a second, to be resampled if another rate is wanted."""
    if wanted is None or wanted == hertz:
        return recording
    return Recording(recording.signal, recording.label, np.arange(len(recording.signal)) / hertz)


def _between(breaks: npt.NDArray[np.integer], end: int) -> list[slice]:
    return [slice(start, stop) for start, stop in pairwise([0, *breaks.tolist(), end]) if stop > start]
