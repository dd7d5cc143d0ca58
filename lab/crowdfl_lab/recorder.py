"""An observer of rounds: who worked how long at which stage, and what went over the wire.

The parties take turns, so that stretches of work never overlap.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.protocols.exchange import Observer
from crowdfl.protocols.party import View


@dataclass(frozen=True)
class Lap:
    """One stretch of a role's work."""

    stage: str
    role: str
    seconds: float


@dataclass
class RoundRecorder(Observer):
    """Records laps and messages by role. Several rounds add up, until `reset`.

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

    def view(self, role: str) -> View:
        return View(keep=self.keep_views)

    def begin(self, stage: str) -> None:
        if stage != self.stage:
            self.say(f"stage of the round: {stage}")
        self.stage = stage

    @contextmanager
    def working(self, role: str) -> Iterator[None]:
        start = self.clock()
        yield
        self.laps.append(Lap(self.stage, role, self.clock() - start))

    def message(self, sender: str, receiver: str, message: Long) -> None:
        self.sent[sender, receiver] += 1
        if self.keep_messages:
            self.messages.append((sender, receiver, whole(message)))

    def reset(self) -> None:
        """Forget laps and messages; parties keep their costs and views."""
        for record in (self.laps, self.messages, self.sent):
            record.clear()

    def seconds_of(self, role: str, *stages: str) -> float:
        return sum(lap.seconds for lap in self.laps if lap.role == role and (not stages or lap.stage in stages))
