"""When a service sweeps: at its start, and then every hour."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from crowdfl.services.background.workers import Ticker

HOUR = 3600.0


class Sweep(Protocol):
    """`machine_time` is that of the file system; `counting` says that an hour has passed since the last one."""

    def __call__(self, machine_time: float, *, counting: bool) -> None: ...


@dataclass
class Sweeper:
    """Sweeps at the start, and then every hour, by the time that passes and not by what the clock says.

    `tick` is called often by a `Ticker`; `often` is what is done each time.
    """

    sweep: Sweep
    often: Callable[[], bool] = lambda: False
    every: float = HOUR
    elapsed: Callable[[], float] = time.monotonic
    machine_time: Callable[[], float] = time.time
    _last: float | None = field(default=None, init=False, repr=False)  # that went well
    _counted: float | None = field(
        default=None, init=False, repr=False
    )  # well or not: what failed counts nothing twice

    def tick(self) -> bool:
        more, now = self.often(), self.elapsed()
        if self._last is None or now - self._last >= self.every:
            counting = self._counted is not None and now - self._counted >= self.every
            if counting or self._counted is None:
                self._counted = now
            self.sweep(self.machine_time(), counting=counting)
            self._last = now
        return more


class SweepTicker(Ticker):
    """The thread that looks whether a sweep is due."""

    name = "sweeper"
    without = "what ended tasks held is not erased"
