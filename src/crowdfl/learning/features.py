"""From windows to a network's inputs. A task names one of these, so that every participant computes the same.

None of them is fitted to data: there is nothing to leak and nothing to distribute.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from crowdfl.errors import SettingsError
from crowdfl.learning.datasets.data import Windows

Inputs = npt.NDArray[np.float32]

_FREQUENCIES = 6  # of a two-second window: 0.5 to 3 Hz, where limbs move
_FLOOR = 0.02  # about the noise of a resting sensor, in g; keeps the logarithm of stillness finite


def flat(windows: Windows) -> Inputs:
    return windows.reshape(len(windows), -1)


def motion(windows: Windows) -> Inputs:
    """Nine numbers per channel: mean, deviation, jerkiness and the six lowest frequencies.

    All but the mean as logarithms: people differ in vigour by a factor, which a logarithm turns into a shift.
    """
    mean = windows.mean(axis=1)
    moving = windows - mean[:, None, :]
    spectrum = np.abs(np.fft.rfft(moving, axis=1))[:, 1 : _FREQUENCIES + 1] * (2 / windows.shape[1])
    deviation = windows.std(axis=1)
    jerk = 5 * np.abs(np.diff(windows, axis=1)).mean(axis=1)
    parts = [2 * mean, _log(spectrum.reshape(len(windows), -1)) + 2, _log(deviation) + 1, _log(jerk) + 1]
    return np.concatenate(parts, axis=1).astype(np.float32)


FEATURES: Mapping[str, Callable[[Windows], Inputs]] = MappingProxyType({"flat": flat, "motion": motion})


def features(name: str, windows: Windows) -> Inputs:
    if name not in FEATURES:
        raise SettingsError(f"there are no features called {name!r}: choose one of {', '.join(sorted(FEATURES))}")
    return FEATURES[name](windows)


def features_per_window(name: str, length: int, channels: int) -> int:
    return int(features(name, np.zeros((1, length, channels), dtype=np.float32)).shape[1])


def _log(values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return np.asarray(np.log(values + _FLOOR))
