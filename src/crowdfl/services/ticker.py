"""SP's own work in the background: `tick` until nothing is left to do, then wait a little."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from structlog.types import FilteringBoundLogger

from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.retry import Attempts, Backoff, no_jitter
from crowdfl.roles.sp.core import Failures
from crowdfl.services.http import logs
from crowdfl.services.http.app_factory import Background

_LONGEST_PAUSE = 30.0


@dataclass
class FailureBackoff(Failures):
    """Lets a task whose steps fail rest, longer each time, while the others go on."""

    log: FilteringBoundLogger
    interval: float = 1.0
    clock: Callable[[], float] = time.monotonic
    _attempts: dict[str, Attempts] = field(default_factory=dict, repr=False)

    def is_backing_off(self, task: str) -> bool:
        return task in self._attempts and self._attempts[task].is_resting

    def record_failure(self, task: str, failure: Exception) -> None:
        """The log gets the name of what was wrong, and the message of an error of this project's own."""
        attempts = self._attempts.setdefault(task, self._backoff().start())
        rests = attempts.fail()
        failures = attempts.failures
        self.log.warning("a task's step failed", task=task, **logs.described(failure), failures=failures, rests=rests)

    def record_success(self, task: str) -> None:
        self._attempts.pop(task, None)

    def count(self) -> int:
        return len(self._attempts)

    def _backoff(self) -> Backoff:
        return Backoff(first=2 * self.interval, longest=_LONGEST_PAUSE, jitter=no_jitter, clock=self.clock)


@dataclass
class Ticker(Background):
    """A thread that ticks. What fails is logged by name and tried again later, the later the more often it failed."""

    tick: Callable[[], bool]
    log: FilteringBoundLogger
    interval: float = 1.0
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="sp-ticker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the step at hand, which a restart would only repeat."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LONGEST_PAUSE)

    def check(self) -> None:
        """Raise if the thread has ended, as it does at an unexpected error."""
        if self._thread is None or not self._thread.is_alive():
            raise ServiceUnavailable("the rounds do not move: restart this service and look into its log")

    def _run(self) -> None:
        backoff = Backoff(first=self.interval, longest=_LONGEST_PAUSE, jitter=no_jitter)
        failures = 0
        while not self._stop.wait(backoff.delay(failures)):
            try:
                while not self._stop.is_set() and self.tick():
                    pass
                failures = 0
            except (CrowdFLError, OSError) as failure:
                failures += 1
                self.log.warning("tick failed", **logs.described(failure), failures=failures)
