"""Server steps in the clear, which those of a protocol are compared with."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from crowdfl.settings import TaskSettings

_Floats = npt.NDArray[np.float64]


@dataclass
class PlainStep:
    """A server step in the clear: the next model from the last one and a round's average, by a task's `server_...` settings.

    FedAvgM (Hsu et al., 2019); FedAdagrad, FedAdam and FedYogi (Reddi et al., 2021). They keep something from round to round:
    one of these serves one run. With `none` the average is the next model.
    """

    kind: str = "none"
    rate: float = 1.0
    momentum: float = 0.9
    squares: float = 0.99
    floor: float = 0.001
    _m: _Floats = field(default_factory=lambda: np.zeros(()), repr=False)
    _v: _Floats = field(default_factory=lambda: np.zeros(()), repr=False)

    @classmethod
    def of(cls, settings: TaskSettings) -> Self:
        rate, momentum = float(settings.server_rate), float(settings.server_momentum)
        return cls(settings.server_step, rate, momentum, float(settings.server_squares), float(settings.server_floor))

    def next_model(self, start: npt.ArrayLike, average: npt.ArrayLike) -> _Floats:
        """`start` is the model that the round started from."""
        start, average = np.asarray(start, dtype=np.float64), np.asarray(average, dtype=np.float64)
        change = average - start
        if self.kind == "none":
            return average
        if self.kind == "fedavgm":
            self._m = self.momentum * self._m + change
            return np.asarray(start + self.rate * self._m)
        self._m = self.momentum * self._m + (1 - self.momentum) * change
        if self.kind == "fedadagrad":
            self._v = self._v + change**2
        elif self.kind == "fedadam":
            self._v = self.squares * self._v + (1 - self.squares) * change**2
        else:
            self._v = self._v - (1 - self.squares) * change**2 * np.sign(self._v - change**2)
        return np.asarray(start + self.rate * self._m / (np.sqrt(self._v) + self.floor))
