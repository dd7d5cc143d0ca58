"""SP's own work in the background: `tick` until nothing is left to do, then wait a little."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from structlog.types import FilteringBoundLogger

from crowdfl.retry import Attempts, Backoff, no_jitter
from crowdfl.roles.sp.core import Failures
from crowdfl.services.background.worker import Worker, log_failure

LONGEST_PAUSE = 30.0


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
        name, _, work = task.partition(" ")  # a task's own steps, or a chore beside them
        fields = {"task": name, "failures": attempts.failures, "rests": rests} | ({"work": work} if work else {})
        log_failure(self.log, "a task's step failed", failure, **fields)

    def record_success(self, task: str) -> None:
        self._attempts.pop(task, None)

    def count(self) -> int:
        return len(self._attempts)

    def _backoff(self) -> Backoff:
        return Backoff(first=2 * self.interval, longest=LONGEST_PAUSE, jitter=no_jitter, clock=self.clock)


@dataclass
class Ticker(Worker):
    """A thread that ticks. What fails is logged by name and tried again later, the later the more often it failed."""

    tick: Callable[[], bool]
    interval: float = 1.0

    name = "sp-ticker"
    without = "the rounds do not move"

    def _work(self) -> None:
        backoff = Backoff(first=self.interval, longest=LONGEST_PAUSE, jitter=no_jitter)
        failures = 0
        while not self._stop.wait(backoff.delay(failures)):
            try:
                while not self._stop.is_set() and self.tick():
                    pass
                failures = 0
            except Exception as failure:  # noqa: BLE001 -- the next look may find it mended
                if self._stop.is_set():
                    return
                failures += 1
                log_failure(self.log, "tick failed", failure, failures=failures)
