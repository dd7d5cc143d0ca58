"""Clocks for two parties that take turns in one process: who was at work when, and on what kind of computation."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.protocols.exchange import Exchange
from crowdfl.protocols.messages import Message

__all__ = ["Lap", "RoleClock", "Span", "TimedBackend", "exchange", "seconds_by_kernel"]


@dataclass(frozen=True)
class Span:
    """One call of the backend."""

    kernel: type
    start: float
    end: float


@dataclass(frozen=True)
class TimedBackend:
    """A backend that notes when each kernel ran. The parties take turns, so that spans never overlap."""

    inner: Backend
    spans: list[Span] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The inner backend's."""
        return self.inner.name

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        """Note and pass on."""
        start = time.perf_counter()
        try:
            return self.inner.map(kernel, *blocks, out=out, progress=progress)
        finally:
            self.spans.append(Span(type(kernel), start, time.perf_counter()))


@dataclass(frozen=True)
class Lap:
    """One party's turn, between the request `before` it and the one `after` it (kinds of message; 0 at either end)."""

    role: str
    before: int
    after: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


def exchange(
    step: Exchange, answer: Callable[[bytes], bytes], hear: Callable[[bytes], None] = lambda _: None
) -> list[Lap]:
    """Carry bytes between SP and CSP until the step is done; `hear` is shown every request, off the clock."""
    laps: list[Lap] = []
    before = 0
    start = time.perf_counter()
    try:
        request = next(step)
        while True:
            now, kind = time.perf_counter(), Message.kind_of(request)
            laps.append(Lap("SP", before, kind, start, now))
            hear(request)
            start = time.perf_counter()
            reply = answer(request)
            now = time.perf_counter()
            laps.append(Lap("CSP", kind, kind, start, now))
            before, start = kind, now
            request = step.send(partial(bytes, reply))
    except StopIteration:
        laps.append(Lap("SP", before, 0, start, time.perf_counter()))
    return laps


def seconds_by_kernel(spans: Iterable[Span], laps: Iterable[Lap]) -> dict[str, float]:
    """Where the laps' time went: each kernel's seconds, and what no kernel accounts for as `other`."""
    laps = list(laps)
    totals: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        if laps[0].start <= span.start and span.end <= laps[-1].end:
            totals[span.kernel.__name__] += span.end - span.start
    totals["other"] = sum(lap.seconds for lap in laps) - sum(totals.values())
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


@dataclass
class RoleClock:
    """Seconds of each role, from blocks of code and from exchanges."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def at(self, role: str) -> Iterator[None]:
        """Times a block of code as one role's."""
        start = time.perf_counter()
        yield
        self.seconds[role] += time.perf_counter() - start

    def count(self, laps: Iterable[Lap]) -> None:
        """Adds the laps of an exchange."""
        for lap in laps:
            self.seconds[lap.role] += lap.seconds
