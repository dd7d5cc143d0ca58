"""What people upload who want to be paid without the work, or for spoilt work. Each declares as many samples as it may.

A cheater knows what every participant knows: all averages so far, the task's norm bound, its own data. Those of a group also
share random numbers, so that they can agree on an upload.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Flat = npt.NDArray[np.float64]
_FAINT = 0.01


@dataclass(frozen=True, eq=False)
class CheaterView:
    """What a cheater has when it makes its upload. `averages` ends with the base; `train` takes whether labels are flipped.

    In a task with a server step they are the models that rounds started from, and `last` is the last average.
    """

    averages: Sequence[Flat]
    bound: float
    own: np.random.Generator
    common: np.random.Generator
    train: Callable[[bool], Flat]
    last: Flat | None = None

    def step(self, ago: int) -> Flat:
        """By what an average differed from the one before; 1 is the last. Zero where there were not that many rounds."""
        if len(self.averages) <= ago:
            return np.zeros_like(self.averages[-1])
        return self.averages[-ago] - self.averages[-ago - 1]


@dataclass(frozen=True)
class Cheat:
    """A way to cheat: the change of the base that it uploads. `least` is the smallest group that it makes sense for."""

    name: str
    does: str
    change: Callable[[CheaterView], Flat]
    least: int = 1


def scaled(change: Flat, norm: float) -> Flat:
    """The same direction with this norm; zero stays zero."""
    length = float(np.linalg.norm(change))
    return change * (norm / length) if length > 0 else change


def _noise(generator: np.random.Generator, like: Flat, norm: float) -> Flat:
    return scaled(generator.normal(size=like.shape), norm)


def _noisy_replay(view: CheaterView) -> Flat:
    last = view.step(1)
    return last + _noise(view.own, last, float(np.linalg.norm(last)))


CHEATS = (
    Cheat("echo", "uploads the last average unchanged", lambda view: np.zeros_like(view.averages[-1])),
    Cheat("faint echo", "moves it by a hundredth of the last step of the average", lambda view: _FAINT * view.step(1)),
    Cheat("replay", "repeats the last step of the average", lambda view: view.step(1)),
    Cheat("older replay", "repeats the step before the last", lambda view: view.step(2)),
    Cheat("noisy replay", "repeats the last step with as much noise", _noisy_replay),
    Cheat("replay at the bound", "repeats the last step, as long as allowed", lambda v: scaled(v.step(1), v.bound)),
    Cheat("noise", "uploads noise as long as an honest update", lambda v: _noise(v.own, v.averages[-1], v.bound / 2)),
    Cheat("flipped labels", "trains on its data with the labels in reverse order", lambda view: view.train(True)),
    Cheat("boosting", "trains, and scales up as far as allowed", lambda view: scaled(view.train(False), view.bound)),
    Cheat(
        "collusion",
        "all upload one common noise, as long as allowed",
        lambda view: _noise(view.common, view.averages[-1], view.bound),
        least=2,
    ),
)
STEP_CHEATS = (  # without a server step the last average is the base, and this is an echo
    Cheat(
        "average again",
        "uploads the last average",
        lambda v: (v.averages[-1] if v.last is None else v.last) - v.averages[-1],
    ),
)
