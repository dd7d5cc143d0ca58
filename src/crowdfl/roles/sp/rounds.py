"""When a round closes, extends, aborts, and which uploads it takes. Pure decisions: time is an argument.

Window [t0, t0 + window]. *discard*: what comes later is refused. *retransmit*: later uploads are taken for `grace` after the
window, until the round closes. A round closes early once everyone enrolled has uploaded. Below the quorum it is
extended once by a window, then aborted.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from crowdfl.errors import RoundNotOpen, TooLate
from crowdfl.settings import TaskSettings


class RoundState(StrEnum):
    """The states of a round, in order; `aborted` ends one that found too few participants, or that CSP has ended."""

    OPEN = "open"
    CLOSED = "closed"
    WEIGHED = "weighed"  # rewards are computed, of a round that pays; nothing is shown to anyone yet
    REWARDED = "rewarded"
    ABORTED = "aborted"


class TaskState:
    """The states of a task."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"  # all rounds done: rewards can be claimed until the deadline
    SETTLED = "settled"  # money returned, uploads scrubbed


@dataclass(frozen=True)
class Round:
    """One round of a task."""

    number: int
    opened_at: float
    state: RoundState = RoundState.OPEN
    extended: bool = False

    @property
    def is_over(self) -> bool:
        return self.state in (RoundState.REWARDED, RoundState.ABORTED)

    def deadline(self, settings: TaskSettings) -> float:
        return self.opened_at + settings.window * (2 if self.extended else 1)

    def last_call(self, settings: TaskSettings) -> float:
        """When any upload ends: the deadline, or with retransmission the grace after it."""
        late = settings.grace if settings.strategy == "retransmit" else 0.0
        return self.deadline(settings) + late

    def require_upload_welcome(self, settings: TaskSettings, now: float) -> None:
        """Refuse an upload that comes too late, saying what to do."""
        if self.state is not RoundState.OPEN:
            raise RoundNotOpen(f"round {self.number} is {self.state}: come back for the next round")
        if now > self.last_call(settings):
            raise TooLate(
                f"round {self.number} ended {now - self.last_call(settings):.0f} s ago and takes no more uploads: "
                "join the next round"
            )

    def is_late(self, settings: TaskSettings, now: float) -> bool:
        return now > self.deadline(settings)

    def decide(self, settings: TaskSettings, now: float, uploads: int, enrolled: int) -> "Round":
        """What an open round becomes at this moment: itself, extended, closed or aborted."""
        if self.state is not RoundState.OPEN:
            return self
        if uploads >= enrolled and uploads >= settings.min_participants:
            return replace(self, state=RoundState.CLOSED)
        if now < self.deadline(settings):
            return self
        if uploads < settings.min_participants and not self.extended:
            return replace(self, extended=True)
        if now < self.last_call(settings):  # retransmission: the grace runs
            return self
        enough = uploads >= settings.min_participants
        return replace(self, state=RoundState.CLOSED if enough else RoundState.ABORTED)
