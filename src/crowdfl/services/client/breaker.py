"""Calls to another server, so that one which is away costs nobody a thread: a circuit breaker, and a bound on a request's wait.

Closed: calls go through. Open, after some failures in a row: every call fails at once, without one byte sent. Half open, after
a rest: one call goes through and decides; the others still fail at once.
"""

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum

from crowdfl.errors import ServiceUnavailable
from crowdfl.retry import Attempts, Backoff, no_jitter

_TRIAL_SECONDS = 5.0  # for which one call decides alone: one that hangs must not speak for all
_RESTS = Backoff(first=1.0, longest=15.0, jitter=no_jitter)
_DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)  # of the request that this thread answers


class BreakerState(StrEnum):
    """What becomes of the next call."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


@dataclass
class Breaker:
    """One for each peer of a process; every thread that calls the peer asks it first, and tells it how that went."""

    peer: str
    failures: int = 3  # in a row, until it opens
    rests: Backoff = _RESTS
    now: Callable[[], float] = time.time  # to say since when
    on_change: Callable[[str, bool], object] = lambda _peer, _up: None  # the peer's name, and whether it is up
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _failed: int = field(default=0, init=False)
    _since: float = field(default=0.0, init=False)
    _open: Attempts | None = field(default=None, init=False)  # None: closed
    _trial: float | None = field(default=None, init=False)  # since when somebody's call is deciding

    @property
    def state(self) -> BreakerState:
        with self._lock:
            if self._open is None:
                return BreakerState.CLOSED
            return BreakerState.OPEN if self._open.is_resting else BreakerState.HALF_OPEN

    @property
    def is_up(self) -> bool:
        return self._open is None

    @property
    def failing_since(self) -> float | None:
        """When the first of the failures in a row was, if the last call failed."""
        with self._lock:
            return self._since if self._failed else None

    def admit(self) -> None:
        """Before a call: `ServiceUnavailable` at once while the peer is away. Whoever is let in tells `record` about it."""
        with self._lock:
            if self._open is None:
                return
            deciding = self._trial is not None and self.now() - self._trial < _TRIAL_SECONDS
            if deciding or self._open.is_resting:
                since = datetime.datetime.fromtimestamp(self._since, datetime.UTC)
                raise ServiceUnavailable(
                    f"{self.peer} has not answered since {since:%Y-%m-%d %H:%M:%S} UTC: try again later"
                )
            self._trial = self.now()

    def record(self, *, answered: bool) -> None:
        """After a call that was admitted."""
        with self._lock:
            was_up = self._open is None
            self._trial = None
            if answered:
                self._failed, self._open = 0, None
            else:
                self._count_failure()
            is_up = self._open is None
        if was_up != is_up:
            self.on_change(self.peer, is_up)

    def _count_failure(self) -> None:
        self._since = self._since if self._failed else self.now()
        self._failed += 1
        if self._open is None and self._failed >= self.failures:
            self._open = self.rests.start()
        if self._open is not None:
            self._open.fail()


@contextlib.contextmanager
def place_in(places: threading.BoundedSemaphore, refusal: str) -> Iterator[None]:
    """One of so many places; `ServiceUnavailable` at once if all are taken."""
    if not places.acquire(blocking=False):
        raise ServiceUnavailable(f"{refusal}: try again later")
    try:
        yield
    finally:
        places.release()


@dataclass
class PeerPatience:
    """What a request may wait for other servers: so many seconds, and so many requests at once. The others answer at once."""

    seconds: float = 10.0
    most: int = 16  # of the forty threads that answer requests
    _places: threading.BoundedSemaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._places = threading.BoundedSemaphore(self.most)

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Everything that this thread asks a peer in here ends in time, or fails with `ServiceUnavailable`."""
        with place_in(self._places, f"{self.most} requests wait for other servers already"):
            token = _DEADLINE.set(time.monotonic() + self.seconds)
            try:
                yield
            finally:
                _DEADLINE.reset(token)


def allow(seconds: float) -> None:
    """The request that this thread answers has so many seconds from now: what it waits for is known to take long."""
    deadline = _DEADLINE.get()
    if deadline is not None:
        _DEADLINE.set(max(deadline, time.monotonic() + seconds))


def seconds_left() -> float | None:
    """Of the request that this thread answers; None if nobody waits for it."""
    deadline = _DEADLINE.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())
