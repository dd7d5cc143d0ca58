"""Samples taken at any times, made even."""

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed

__all__ = ["even"]

_Floats = npt.NDArray[np.floating]


def even(times: npt.NDArray[np.float64], signal: _Floats, hertz: float) -> _Floats:
    """`hertz` samples a second from the first one on, by straight lines between neighbours. Times are in seconds."""
    if not len(times):
        return signal
    lasts = times[-1] - times[0]
    samples = int(lasts * hertz + 1e-6) + 1  # a grid point that rounding pushed behind the last sample still counts
    if samples > 100 * len(times):
        raise DataMalformed(f"{len(times)} samples in {lasts:g} s are too few to make {hertz:g} a second of them")
    smooth = _smooth(signal, round(len(times) / samples))
    grid = times[0] + np.arange(samples) / hertz
    return np.stack([np.interp(grid, times, channel) for channel in smooth.T], axis=1)


def _smooth(signal: _Floats, width: int) -> _Floats:
    """A running mean, so that what moves faster than the lower rate shows is averaged away and not folded in."""
    if width < 2:
        return signal
    box = np.ones(width)
    counts = np.convolve(np.ones(len(signal)), box, mode="same")
    return np.stack([np.convolve(channel, box, mode="same") / counts for channel in signal.T], axis=1)
