"""The one back-off: how long to wait before trying, or looking, again.

Sleep, clock and jitter are passed in, so that a test waits for nothing and knows every delay.
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")
_Error = TypeVar("_Error", bound=Exception)
_MOST_STEPS = 100  # a delay has long reached its cap; larger powers would overflow


def no_jitter(_low: float, high: float) -> float:
    return high


@dataclass(frozen=True)
class Backoff:
    """Delays that grow by `factor` from `first` to `longest`, in seconds; none goes past `deadline` after the start."""

    first: float = 0.2
    longest: float = 10.0
    factor: float = 2.0
    deadline: float = math.inf
    jitter: Callable[[float, float], float] = random.uniform  # spreads clients that lost one server together
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def steady(cls, interval: float, deadline: float = math.inf) -> "Backoff":
        return cls(first=interval, longest=interval, factor=1.0, deadline=deadline, jitter=no_jitter)

    def delay(self, failures: int, at_least: float = 0.0) -> float:
        """Seconds to wait after one more failure than `failures`: between half and all of what the cap allows."""
        most = min(self.longest, self.first * self.factor ** min(failures, _MOST_STEPS))
        return max(at_least, self.jitter(most / 2, most))

    def start(self) -> "Attempts":
        """The deadline counts from now."""
        return Attempts(self)


@dataclass
class Attempts:
    """Attempts at one thing: how many failed in a row, and until when to rest."""

    backoff: Backoff
    failures: int = 0
    _started: float = field(init=False, repr=False)
    _rest_until: float = field(default=-math.inf, init=False, repr=False)

    def __post_init__(self) -> None:
        self._started = self.backoff.clock()

    @property
    def is_resting(self) -> bool:
        return self.backoff.clock() < self._rest_until

    def fail(self, at_least: float = 0.0) -> float:
        """Count a failure; the seconds to rest now."""
        delay = self.backoff.delay(self.failures, at_least)
        self.failures += 1
        self._rest_until = self.backoff.clock() + delay
        return delay

    def succeed(self) -> None:
        self.failures = 0
        self._rest_until = -math.inf

    def wait(self, at_least: float = 0.0, tell: Callable[[float], object] = lambda _delay: None) -> bool:
        """Count a failure and sleep; False, at once, where that would go past the deadline. `tell` hears how long."""
        delay = self.fail(at_least)
        if self.backoff.clock() - self._started + delay > self.backoff.deadline:
            return False
        tell(delay)
        self.backoff.sleep(delay)
        return True


def retry(
    call: Callable[[], _Result],
    backoff: Backoff,
    on: type[_Error],
    *,
    passing: Callable[[_Error], bool] = lambda _error: True,
    tell: Callable[[_Error, float], object] = lambda _error, _delay: None,
) -> _Result:
    """The call's result. An error of the kind `on` that is `passing` is waited out, until the deadline; others are raised."""
    attempts = backoff.start()
    while True:
        try:
            return call()
        except on as error:
            if not passing(error) or not attempts.wait(tell=partial(tell, error)):
                raise
