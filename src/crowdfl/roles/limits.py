"""What a service grants a new task, and a requester. Tasks that were accepted before go on, whatever the limits are now."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from crowdfl.documents.signed import Definition
from crowdfl.errors import LimitExceeded, QuotaExceeded
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.roles.model_size import WEIGHT_BYTES
from crowdfl.roles.records import StoredTask, TaskState
from crowdfl.settings import DAY, SpSettings, TaskLimits


@dataclass(frozen=True)
class TaskBounds:
    """How long one task may last, and what is dealt for it. The defaults, for all roles in one process, allow everything."""

    rounds: float = math.inf
    claim_window: float = math.inf  # seconds
    days: float = math.inf  # from its creation to its last day of claims
    dealt_bytes: float = math.inf  # for one server, in all rounds

    @classmethod
    def of(cls, settings: TaskLimits) -> "TaskBounds":
        days = settings.max_task_time / DAY
        return cls(settings.max_rounds, settings.max_claim_window, days, settings.max_dealt_bytes)

    def require(self, definition: Definition, now: float) -> None:
        settings, window = definition.settings, definition.claim_window
        if now >= definition.rounds_until:
            raise LimitExceeded("the last day of this task's rounds is over: define it again, with other dates")
        _require("rounds", settings.rounds, self.rounds, "max_rounds")
        _require("seconds of `claim_window`", window, self.claim_window, "max_claim_window")
        days = math.ceil((definition.claims_until - now) / DAY)
        less = "fewer `rounds`, a shorter `window`, `every`, `room` or `claim_window`, an earlier `enrol_until` or `start_at`"
        _require("days until its last day of claims", days, self.days, "max_task_time", less)
        dealt = max(dealt_sizes(definition).values(), default=0) * settings.rounds
        _require(
            "bytes dealt to one server, with `lanes` for everyone in all rounds",
            dealt,
            self.dealt_bytes,
            "max_dealt_bytes",
        )


@dataclass(frozen=True)
class SpQuotas:
    """What SP grants besides: how many tasks a requester has at a time, and how large a task's initial weights are."""

    bounds: TaskBounds = field(default_factory=TaskBounds)
    tasks: float = math.inf
    initial_bytes: float = math.inf

    @classmethod
    def of(cls, settings: SpSettings) -> "SpQuotas":
        return cls(TaskBounds.of(settings), settings.max_tasks, settings.max_initial_bytes)

    def require(self, definition: Definition, now: float) -> None:
        """The definition within its bounds, its model too."""
        self.bounds.require(definition, now)
        self.require_initial(definition.spec.parameters * WEIGHT_BYTES)

    def require_initial(self, size: int) -> None:
        """Of a task's first weights."""
        if size > self.initial_bytes:
            raise LimitExceeded(
                f"the initial weights have {size:,} bytes, and this platform takes {self.initial_bytes:,}: "
                "use a smaller model, or ask its operator for a larger `max_initial_bytes`"
            )

    def require_place(self, definition: Definition, stored: Iterable[StoredTask]) -> None:
        """Every task that is not settled keeps keys, uploads and money here."""
        held = [one for one in stored if one.state != TaskState.SETTLED]
        if len(held) < self.tasks:
            return
        theirs = sum(one.opened.requester == definition.requester for one in held)
        if theirs >= self.tasks:
            raise QuotaExceeded(
                f"this requester has {theirs} tasks here that are not settled, and {self.tasks} are the most: wait until "
                "one is settled, or ask the operator of SP for a larger `max_tasks`"
            )


def _require(what: str, asked: float, most: float, setting: str, less: str = "less") -> None:
    if asked > most:
        raise QuotaExceeded(
            f"this task asks for {asked:,.15g} {what}, and {most:,.15g} are the most here: ask for {less}, or ask the operator "
            f"of this service for a larger `{setting}`"
        )
