"""Server steps: what every reader makes of a round's average before the next round starts from it.

With S the model that the round started from, A the round's average and g = A - S, both in plain numbers, not in units:

    fedavgm    m = momentum * m + g                                                       S' = S + rate * m
    the others m = momentum * m + (1 - momentum) * g                                      S' = S + rate * m / (sqrt(v) + floor)
    fedadagrad v = v + g * g
    fedadam    v = squares * v + (1 - squares) * (g * g)
    fedyogi    v = squares * v + (1 - squares) * (v - sign(v - g * g) * (g * g)): nothing cancels, however small squares is

Every device computes the same bits: each operation is one of IEEE doubles, correctly rounded, element by element and in this
order, from left to right; what is added to S is rounded to whole units, halves to the even one.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from crowdfl.errors import SlotOverflow
from crowdfl.settings import TaskSettings

Floats = npt.NDArray[np.float64]
Moments = tuple[Floats, ...]
"""m, and of all but `fedavgm` v: what a reader carries from round to round."""

_TINY = math.ldexp(1, -256)  # less is 0: some programs' doubles have no subnormal numbers
_LARGEST = math.ldexp(1, 62)  # units


@dataclass(frozen=True)
class ServerStep:
    """One task's step."""

    kind: str
    unit: int
    rate: float
    momentum: float
    squares: float
    floor: float

    @classmethod
    def of(cls, settings: TaskSettings) -> Self | None:
        """None where readers take the average as it is."""
        if settings.server_step == "none":
            return None
        decays = float(settings.server_momentum), float(settings.server_squares)
        unit = 10**settings.decimals
        rate = float(settings.server_rate)
        return cls(settings.server_step, unit, rate, *decays, float(settings.server_floor))

    @property
    def moments(self) -> int:
        """How many arrays of doubles a reader carries."""
        return 1 if self.kind == "fedavgm" else 2

    def furthest(self, change: float) -> float:
        """How far a round can move a weight, if no average moves one by more than `change`: docs/shares.md has the proof."""
        if self.kind == "fedavgm":
            return self.rate * change / (1 - self.momentum)
        return min(self.rate * (1 - self.momentum) * self._most(), self.rate * change / self.floor)

    def _most(self) -> float:
        """Of |m| / sqrt(v), over 1 - momentum."""
        b1, b2 = self.momentum, self.squares
        if self.kind == "fedadagrad":
            return 1 / math.sqrt(1 - b1 * b1)
        most = 1 / math.sqrt((1 - b2) * (1 - b1 * b1 / b2))
        return most if self.kind == "fedadam" else most + (math.sqrt(b2) + b1) / (b2 - b1 * b1)

    def start(self, parameters: int) -> Moments:
        return tuple(np.zeros(parameters) for _ in range(self.moments))

    def apply(self, change: npt.NDArray[np.int64], moments: Moments) -> tuple[npt.NDArray[np.int64], Moments]:
        """What is added to the model, in units, from what the average would add; and the moments after it."""
        g = change.astype(np.float64) / self.unit
        if self.kind == "fedavgm":
            after: Moments = (_plain(self.momentum * moments[0] + g),)
            step = self.rate * after[0]
        else:
            m, v = moments
            m = _plain(self.momentum * m + (1 - self.momentum) * g)
            v = _plain(self._spread(v, g * g))
            after = (m, v)
            step = self.rate * m / (np.sqrt(v) + self.floor)
        return _whole(step * self.unit), after

    def _spread(self, v: Floats, square: Floats) -> Floats:
        if self.kind == "fedadagrad":
            return v + square
        fresh = square if self.kind == "fedadam" else v - np.sign(v - square) * square
        return self.squares * v + (1 - self.squares) * fresh


def _plain(values: Floats) -> Floats:
    values[np.abs(values) < _TINY] = 0.0
    return values


def _whole(step: Floats) -> npt.NDArray[np.int64]:
    if not np.abs(step).max() < _LARGEST:
        raise SlotOverflow(
            "the server step takes a weight out of range: this task's `server_rate` is too large; tell the requester"
        )
    return np.rint(step).astype(np.int64)
