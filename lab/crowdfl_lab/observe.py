"""An observer for the laboratory: who worked when, on which stage, between which messages, and what went over the wire.

The parties of `crowdfl_lab.parties` take turns in one process, so that stretches of work never overlap.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.protocols.exchange import Observer
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import Costs, View


@dataclass(frozen=True)
class Lap:
    """One stretch of a role's work, between the request `before` it and the one `after` it (kinds; 0 at either end)."""

    stage: str
    role: str
    before: int
    after: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass
class RoundRecorder(Observer):
    """Records laps, messages and costs by role. Several rounds add up, until `reset`.

    Views and messages hold secrets of a run and grow with it: they are kept where asked for alone. `clock` may be one of
    processor time.
    """

    keep_views: bool = False
    keep_messages: bool = False
    clock: Callable[[], float] = time.perf_counter
    say: Callable[[str], None] = field(default=lambda _: None, repr=False)  # hears of each new stage
    stage: str = ""
    laps: list[Lap] = field(default_factory=list)
    messages: list[tuple[str, str, bytes]] = field(default_factory=list, repr=False)  # sender, receiver, bytes
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)  # messages, by sender and receiver
    costs_by_role: defaultdict[str, list[Costs]] = field(default_factory=lambda: defaultdict(list))
    _kind: int = 0

    def costs(self, role: str) -> Costs:
        self.costs_by_role[role].append(Costs())
        return self.costs_by_role[role][-1]

    def view(self, role: str) -> View:
        return View(keep=self.keep_views)

    def begin(self, stage: str) -> None:
        if stage != self.stage:
            self.say(f"stage of the round: {stage}")
        self.stage, self._kind = stage, 0

    @contextmanager
    def working(self, role: str) -> Iterator[None]:
        start = self.clock()
        yield
        kind = self._kind
        self.laps.append(Lap(self.stage, role, kind, kind if role == "CSP" else 0, start, self.clock()))

    def message(self, sender: str, receiver: str, message: bytes) -> None:
        self.sent[sender, receiver] += 1
        if self.keep_messages:
            self.messages.append((sender, receiver, message))
        if (sender, receiver) == ("SP", "CSP"):
            self._kind = Message.kind_of(message)
            self.laps[-1] = replace(self.laps[-1], after=self._kind)

    def reset(self) -> None:
        """Forget laps and messages; parties that are built keep their costs and views."""
        for record in (self.laps, self.messages, self.sent):
            record.clear()

    @property
    def seconds(self) -> defaultdict[tuple[str, str], float]:
        totals: defaultdict[tuple[str, str], float] = defaultdict(float)
        for lap in self.laps:
            totals[lap.stage, lap.role] += lap.seconds
        return totals

    def seconds_of(self, role: str, *stages: str) -> float:
        return sum(lap.seconds for lap in self.laps if lap.role == role and (not stages or lap.stage in stages))

    def total(self, role: str, operation: str) -> int:
        """How often a role's parties did an operation, since they were built."""
        return sum(costs.total(operation) for costs in self.costs_by_role[role])


@dataclass(frozen=True)
class Span:
    """One call of the backend."""

    kernel: type
    start: float
    end: float


@dataclass(frozen=True)
class TimedBackend:
    """A backend that notes when each kernel ran."""

    inner: Backend
    spans: list[Span] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        start = time.perf_counter()
        try:
            return self.inner.map(kernel, *blocks, out=out, progress=progress)
        finally:
            self.spans.append(Span(type(kernel), start, time.perf_counter()))


def seconds_by_kernel(spans: Iterable[Span], laps: Iterable[Lap]) -> dict[str, float]:
    """Where the laps' time went: each kernel's seconds, and what no kernel accounts for as `other`."""
    laps = list(laps)
    totals: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        if any(lap.start <= span.start and span.end <= lap.end for lap in laps):
            totals[span.kernel.__name__] += span.end - span.start
    totals["other"] = sum(lap.seconds for lap in laps) - sum(totals.values())
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
