"""SP's own work in the background: `tick` until nothing is left to do, then wait a little."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from structlog.types import FilteringBoundLogger

from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.roles.sp.core import Failures

__all__ = ["Rests", "Ticker"]

_LONGEST_PAUSE = 30.0


@dataclass
class Rests(Failures):
    """Lets a task whose steps fail rest, longer each time, while the others go on."""

    log: FilteringBoundLogger
    interval: float = 1.0
    _failures: dict[str, int] = field(default_factory=dict, repr=False)
    _until: dict[str, float] = field(default_factory=dict, repr=False)

    def is_backing_off(self, task: str) -> bool:
        """For now."""
        return time.monotonic() < self._until.get(task, 0.0)

    def record_failure(self, task: str, failure: Exception) -> None:
        """The log gets the name of what was wrong; a message may quote what is not for it."""
        self._failures[task] = failures = self._failures.get(task, 0) + 1
        pause = _pause(self.interval, failures)
        self._until[task] = time.monotonic() + pause
        self.log.warning(
            "a task's step failed", task=task, error=type(failure).__name__, failures=failures, rests=pause
        )

    def record_success(self, task: str) -> None:
        """As new."""
        self._failures.pop(task, None)
        self._until.pop(task, None)


def _pause(interval: float, failures: int) -> float:
    return min(_LONGEST_PAUSE, interval * 2.0 ** min(failures, 10))


@dataclass
class Ticker:
    """A thread that ticks. What fails is logged by name and tried again later, the later the more often it failed."""

    tick: Callable[[], bool]
    log: FilteringBoundLogger
    interval: float = 1.0
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> None:
        """Begin."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="sp-ticker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the step at hand, which a restart would only repeat."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LONGEST_PAUSE)

    def check(self) -> None:
        """Whether it still goes on; an error that nobody foresaw ends it."""
        if self._thread is None or not self._thread.is_alive():
            raise ServiceUnavailable("the rounds do not move: restart this service and look into its log")

    def _run(self) -> None:
        failures = 0
        while not self._stop.wait(_pause(self.interval, failures)):
            try:
                while not self._stop.is_set() and self.tick():
                    pass
                failures = 0
            except (CrowdFLError, OSError) as failure:
                failures += 1
                self.log.warning("tick failed", error=type(failure).__name__, failures=failures)
