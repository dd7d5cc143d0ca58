"""From windows to a network's inputs. A task names one of these, so that every participant computes the same.

None of them is fitted to data: there is nothing to leak and nothing to distribute.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from crowdfl.errors import SettingsError
from crowdfl.learning.datasets.data import Windows

Inputs = npt.NDArray[np.float32]
_Number = TypeVar("_Number", bound=np.floating)

_FREQUENCIES = 6  # of a two-second window: 0.5 to 3 Hz, where limbs move
_SPECTRUM = 30
_STILL = 1e-6  # a number that never changes is not divided by zero
_FLOOR = 0.02  # about the noise of a resting sensor, in g; keeps the logarithm of stillness finite


def _rows(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """One for each window; there may be none."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def _log(values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.asarray(np.log(values + _FLOOR))


def motion(windows: Windows) -> Inputs:
    """Nine numbers per channel: mean, deviation, jerkiness and the six lowest frequencies.

    All but the mean as logarithms: people differ in vigour by a factor, which a logarithm turns into a shift.
    """
    mean = windows.mean(axis=1)
    moving = windows - mean[:, None, :]
    spectrum = np.abs(np.fft.rfft(moving, axis=1))[:, 1 : _FREQUENCIES + 1] * (2 / windows.shape[1])
    deviation = windows.std(axis=1)
    jerk = 5 * np.abs(np.diff(windows, axis=1)).mean(axis=1)
    parts = [2 * mean, _log(_rows(spectrum)) + 2, _log(deviation) + 1, _log(jerk) + 1]
    return np.concatenate(parts, axis=1).astype(np.float32)


def spectral(windows: Windows) -> Inputs:
    """The strengths of up to 30 frequencies as logarithms, then mean and deviation, of each channel.

    Hann's window fades both ends, so that a movement cut off there does not smear over all frequencies.
    """
    length = windows.shape[1]
    signal = windows.astype(np.float64)
    mean = signal.mean(axis=1)
    faded = np.hanning(length)[:, None] * (signal - mean[:, None, :])
    strengths = np.abs(np.fft.rfft(faded, axis=1))[:, 1 : _SPECTRUM + 1] * (2 / length)
    logs = _log(_rows(strengths))
    return np.concatenate([logs, mean, signal.std(axis=1)], axis=1).astype(np.float32)


FEATURES: Mapping[str, Callable[[Windows], Inputs]] = MappingProxyType(
    {"flat": _rows, "motion": motion, "spectral": spectral, "windows": lambda windows: windows}  # the last, as they are
)


def features(name: str, windows: Windows) -> Inputs:
    if name not in FEATURES:
        raise SettingsError(f"there are no features called {name!r}: choose one of {', '.join(sorted(FEATURES))}")
    if name == "motion" and windows.shape[1] < 2:  # one sample does not move
        raise SettingsError('features = "motion" need windows of at least 2 samples: for one, say features = "flat"')
    return FEATURES[name](windows)


def beside(windows: Windows, sensors: int) -> Inputs:
    """Of what was recorded beside motion: mean and deviation of each sensor, then the answers, which do not change."""
    slow = windows[:, :, :sensors].astype(np.float64)
    return np.concatenate([slow.mean(axis=1), slow.std(axis=1), windows[:, 0, sensors:]], axis=1).astype(np.float32)


def features_per_window(name: str, length: int, channels: int) -> int:
    """As many numbers as each window becomes."""
    return features(name, np.zeros((1, length, channels), dtype=np.float32)).size


def scaled(inputs: Inputs, own: Inputs) -> Inputs:
    """Each number less its mean over `own`, a person's training windows, and divided by its deviation there; in doubles."""
    rows = own.astype(np.float64)
    mean = rows.mean(axis=0)
    deviation = np.sqrt(((rows - mean) ** 2).mean(axis=0))
    return np.asarray((inputs - mean) / np.maximum(deviation, _STILL), dtype=np.float32)
