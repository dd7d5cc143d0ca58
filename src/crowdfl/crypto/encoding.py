"""Signed fixed point: weights as integers at scale 10^L.

The paper floors (section 4.1), which biases an average by half a unit per participant's sample; the default here rounds to
nearest (deviation D6). A double is not the decimal that it is printed as: 2.07 * 10^6 comes out just below 2070000, and one in
a hundred decimals would be floored to the unit below. So what is to be floored is rounded to a millionth of a unit first. NaN
and infinity are refused before anything is encrypted; weights beyond the clip are clipped, and the caller is
told how many.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdfl.errors import EncodingError, NotFinite

_HALF_A_MILLIONTH = 5e-7  # of a unit; the error of a double is less up to 2^31 units


@dataclass(frozen=True, eq=False)
class Encoded:
    """Integers at scale 10^L, and how many weights were clipped to get them."""

    values: npt.NDArray[np.int64]
    clipped: int


@dataclass(frozen=True)
class FixedPoint:
    """[a] = a * 10^L as an integer, for |a| <= C; a task's settings see to it that C * 10^L is below 2^53."""

    decimals: int = 6
    clip: float = 16.0
    rounding: Literal["nearest", "floor"] = "nearest"

    @property
    def scale(self) -> int:
        return int(10**self.decimals)

    @property
    def bound(self) -> int:
        """The largest absolute value of an encoded weight."""
        return int(np.ceil(self.clip * self.scale))

    def encode(self, weights: npt.ArrayLike) -> Encoded:
        """Weights of any shape as a flat array of integers."""
        flat = np.asarray(weights, dtype=np.float64).reshape(-1)
        broken = np.flatnonzero(~np.isfinite(flat))
        if broken.size:
            where = f"the first at position {broken[0]}"
            raise NotFinite(f"{broken.size} of {flat.size} weights are NaN or infinite, {where}")
        beyond = int(np.count_nonzero(np.abs(flat) > self.clip))
        scaled = np.clip(flat, -self.clip, self.clip) * self.scale
        integers = np.rint(scaled) if self.rounding == "nearest" else _floor(scaled)
        return Encoded(integers.astype(np.int64), beyond)

    def decode(self, values: npt.NDArray[np.int64], divisor: int = 1) -> npt.NDArray[np.float64]:
        """Integers at scale 10^L back to weights, divided by `divisor` (for a sum: the total it is the sum of)."""
        if divisor < 1:
            raise EncodingError(f"a sum is divided by the positive total it is the sum of, not by {divisor}")
        return values.astype(np.float64) / (float(self.scale) * divisor)


def _floor(scaled: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of the numbers as rounded to a millionth: computed without dividing, so that large ones stay exact."""
    nearest = np.rint(scaled)
    return np.where(np.abs(nearest - scaled) <= _HALF_A_MILLIONTH, nearest, np.floor(scaled))
