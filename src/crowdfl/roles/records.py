"""What roles keep durably, as records: a class for each kind of row, with the decisions that follow from one alone.

A round's window is [t0, t0 + window]. *discard*: what comes later is refused. *retransmit*: later uploads are taken for `grace`
after the window, until the round closes. It closes early as the task's plan says. Below the quorum it is extended once by a
window, then aborted. Time is an argument.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from crowdfl.codes import Code
from crowdfl.documents.signed import Definition, EndReason
from crowdfl.errors import Forbidden, Replaced, RoundNotOpen, SettingsError, TooLate, Withdrawn
from crowdfl.protocols.profile import Identity
from crowdfl.settings import PlanSettings, TaskSettings
from crowdfl.text import printable

_TRIAL = PlanSettings()
LONGEST_REASON = 500  # characters that everyone who knows the task can read


class TaskState:
    """The states of a task."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"  # all rounds done: rewards can be claimed until the deadline
    SETTLED = "settled"  # money returned, uploads scrubbed


class EndedBy(Code):
    """Who, or what, has ended a task."""

    REQUESTER = "requester", "the requester"
    SP = "sp", "SP"
    CSP = "csp", "CSP"
    OPERATOR = "operator", "the operator"
    SP_OPERATOR = "sp_operator", "the operator of SP"
    CSP_OPERATOR = "csp_operator", "CSP's operator"
    PLAN = "plan", "its plan"
    LIFETIME = "lifetime", "the task's lifetime"


@dataclass(frozen=True)
class Tombstone:
    """What stays of how a task ended."""

    why: EndReason
    by: EndedBy
    reason: str = ""  # in words, for everyone
    document: str = ""  # SP's, where it was SP who said so

    def words(self) -> str:
        said = f": {printable(self.reason, LONGEST_REASON)}" if self.reason else ""
        return f"{self.why} by {self.by.words}{said}"

    def coded(self) -> dict[str, str]:
        """As everyone may read it; programs put codes into words of their own."""
        return {"why": self.why, "by": self.by, "reason": printable(self.reason, LONGEST_REASON)}


@dataclass(frozen=True)
class StoredTask:
    """A task as a role keeps it: its papers, where it stands, and what must be remembered of it."""

    task: str
    definition: str
    appointment: str
    state: str
    ended_at: float | None = None
    end: Tombstone | None = None
    first_seen: float | None = None  # by this role: a task past its longest life is ended
    sightings: int = 0  # past that life
    sighted_at: float | None = None  # the last of them
    # SP's
    paused_at: float | None = None
    ready_at: float | None = None  # since when the next round has all that it needs, but its time
    ordered_at: float | None = None  # when the requester signed its last order
    epoch: str = ""  # another after each restore from a backup: phones then look whether their uploads are still here
    unreconciled: bool = False  # restored from a backup: some may have been paid or returned before
    dropped: int = 0  # uploads that were damaged here: phones look then too
    csp_told: int = 0  # the position of the last participant that it was told of
    csp_away_since: float | None = None
    kgc_told_end: float | None = None  # when it acknowledged the end
    csp_told_end: float | None = None
    without_model: bool = False  # for good: the requester waits for none
    # SP's and CSP's
    sole_holder: bool = False  # KGC has destroyed its copies of what it dealt
    # CSP's
    restored: bool = False  # from a backup: no round is answered any more

    @property
    def opened(self) -> Definition:
        """The definition, with its signature checked."""
        return _opened(self.definition)

    @property
    def claims_until(self) -> float | None:
        """When the books of a task that has ended can be closed; None until its last round is over."""
        return None if self.ended_at is None else self.ended_at + self.opened.claim_window

    def unnotified(self, peers: Collection[str]) -> list[str]:
        """Which of these, `kgc` and `csp`, have not acknowledged the end."""
        told = {"kgc": self.kgc_told_end, "csp": self.csp_told_end}
        return [name for name in peers if told[name] is None]


@lru_cache(maxsize=64)
def _opened(definition: str) -> Definition:
    return Definition.open(definition)


@dataclass(frozen=True)
class StoredParticipant:
    """An enrolled participant."""

    identity: Identity
    certificate: str
    left: bool = False
    refused: bool = False  # by CSP, when SP told it of this one
    consent: str | None = None  # as it was signed
    consented_at: float | None = None  # when SP got it
    withdrawn_at: float | None = None
    replaces: str | None = None  # another of this task: the same person's, with another device
    replaced_by: str | None = None
    position: int = field(default=0, compare=False)  # grows with each who joins

    @property
    def state(self) -> str:
        if self.replaced_by is not None:
            return "replaced"
        return "withdrawn" if self.withdrawn_at is not None else "left" if self.left else "in"

    def refusal(self) -> Forbidden:
        """Why nothing is taken of whoever has left."""
        who = self.identity.who
        if self.state == "withdrawn":
            return Withdrawn(
                f"{who} has withdrawn from this task, for good: to take part again, ask for a new invitation"
            )
        return replaced(who) if self.state == "replaced" else Forbidden(f"{who} has left this task: join again")


def replaced(who: str) -> Replaced:
    return Replaced(
        f"another device has taken the place of {who}, by an invitation of the requester's. What this one has earned stays "
        "claimable, by it alone. If you know of no other device, ask the requester"
    )


class RoundState(StrEnum):
    """The states of a round, in order; `aborted` ends one that found too few participants, or that CSP has ended."""

    OPEN = "open"
    CLOSED = "closed"
    WEIGHED = "weighed"  # rewards are computed, of a round that pays; nothing is shown to anyone yet
    REWARDED = "rewarded"
    ABORTED = "aborted"


@dataclass(frozen=True)
class Round:
    """One round of a task."""

    number: int
    opened_at: float
    state: RoundState = RoundState.OPEN
    extended: bool = False
    redrawn: int = 0  # how often others were drawn in place of who had not sent
    final: bool = False  # its average is for the requester alone; of a host that opens rounds itself
    asked: bool = False  # CSP may have heard of it: its uploads are settled
    # What it made, by the hash that names the file (`roles.sp.results`); None: nothing, or not yet. Each is set once.
    average: str | None = None  # for participants, or for everyone
    model: str | None = None  # the average for the requester alone
    rewards: str | None = None
    rejected: str | None = None  # whose uploads the servers left out, and why
    left_over: str | None = None  # what the next round needs of it

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

    def decide(
        self,
        settings: TaskSettings,
        now: float,
        uploads: int,
        enrolled: int,
        plan: PlanSettings = _TRIAL,
        *,
        has_reference: bool = True,
    ) -> "Round":
        """What an open round becomes at this moment: itself, extended, closed or aborted.

        One that people are drawn for draws others at half of its window, and when it is extended.
        Without the reference that its task has, it waits until no upload is taken any more, and is given up.
        """
        if self.state is not RoundState.OPEN:
            return self
        found = self._decided(settings, now, uploads, enrolled, plan)
        if found.state is RoundState.OPEN and settings.per_round is not None:
            due = (self.opened_at + settings.window / 2 <= now < found.deadline(settings)) + found.extended
            return replace(found, redrawn=max(due, self.redrawn))
        if found.state is not RoundState.CLOSED or has_reference:
            return found
        return self if now < self.last_call(settings) else replace(self, state=RoundState.ABORTED)

    def _decided(self, settings: TaskSettings, now: float, uploads: int, enrolled: int, plan: PlanSettings) -> "Round":
        places = [
            plan.goal,
            enrolled if plan.closes == "everyone" else None,
            settings.per_round if self.redrawn else None,
        ]
        wanted = min((one for one in places if one is not None), default=math.inf)
        if uploads >= wanted and uploads >= settings.min_participants:
            return replace(self, state=RoundState.CLOSED)
        if now < self.deadline(settings):
            return self
        if uploads < settings.min_participants and not self.extended:
            return replace(self, extended=True)
        if now < self.last_call(settings):  # retransmission: the grace runs
            return self
        enough = uploads >= settings.min_participants
        return replace(self, state=RoundState.CLOSED if enough else RoundState.ABORTED)


@dataclass(frozen=True)
class Upload:
    """An acknowledged upload."""

    who: str
    digest: str
    late: bool


@dataclass(frozen=True)
class UploadContext:
    """Where some participants stand in a round: all that their uploads are judged by."""

    state: str  # of the task
    round: Round | None
    enrolled: frozenset[str]
    left: frozenset[str]  # of those
    uploads: Mapping[str, Upload]  # by participant
    drawn: frozenset[str]  # of the enrolled, for this round


@dataclass(frozen=True)
class Movement:
    """Millionths from one account to another, under a name that makes it happen once."""

    name: str
    source: str
    target: str
    amount: int

    def __post_init__(self) -> None:
        if not isinstance(self.amount, int) or isinstance(self.amount, bool) or self.amount < 0:
            raise SettingsError(f"a movement is a whole number of millionths, not {self.amount!r}")
        if self.source == self.target:
            raise SettingsError(f"a movement from {self.source} to itself")


@dataclass(frozen=True)
class TaskStatus:
    """Where a task stands, in one look: who takes part, and how many uploads each round has."""

    state: str
    ended_at: float | None
    end: Tombstone | None
    epoch: str
    dropped: int
    active: int  # participants that have not left
    places_taken: int  # by those who have left too
    ready_at: float | None
    rounds: Sequence[tuple[Round, int, int]]  # with its uploads, and how many were drawn for it: 0 of all


NOT_OPEN = {
    "full": "all places of this task are taken",
    "over": "the time to join this task is over, as its plan says",
    "ended": "this task has ended: nobody can join any more",
}
"""Why nobody can join, as SP tells everyone who looks."""


class DepositState(StrEnum):
    """A deposit is announced by the requester and decided, once, by whoever runs SP."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"


@dataclass(frozen=True)
class StoredDeposit:
    """Millionths that a requester says to have paid in, and what the operator says about it."""

    task: str
    name: str
    amount: int
    state: DepositState
    announced_at: float
    decided_at: float | None = None


class PaymentState(StrEnum):
    """`unknown`: a program was run and nobody knows whether it paid; it is never run again by itself."""

    PENDING = "pending"
    RUNNING = "running"
    PAID = "paid"
    UNKNOWN = "unknown"


ASKED = b""
"""The destination of a payment whose participant has not said yet where to be paid."""


@dataclass(frozen=True)
class StoredPayment:
    """What a participant is owed for its claim: one for each task and participant."""

    task: str
    who: str
    amount: int
    claim: str  # the digest of the claim
    claimed: str  # JSON: millionths by round, as CSP attested them
    state: PaymentState
    since: float  # when this state began
    until: float | None = None  # running: its owner's lease; pending after a failure: the rest before the next attempt
    owner: str | None = None  # the process that runs it, or ran it last
    attempts: int = 0
    error: str | None = None  # why the last attempt did not end well
    destination: bytes | None = field(default=None, repr=False)  # sealed to the payer; None: nobody asks, or it is paid

    def state_at(self, now: float) -> PaymentState:
        """As everyone sees it: of a running one whose process no longer renews its lease, nobody knows."""
        lost = self.state is PaymentState.RUNNING and (self.until is None or self.until <= now)
        return PaymentState.UNKNOWN if lost else self.state

    @property
    def key(self) -> str:
        """Names this payment to the bank, whoever asks and however often: the same task and participant, the same key."""
        return payment_key(self.task, self.who)


@dataclass(frozen=True)
class StoredSubscription:
    """Where a participant's browser takes reminders."""

    task: str
    who: str
    endpoint: str = field(repr=False)
    key: bytes = field(repr=False)
    auth: bytes = field(repr=False)
    opened: int = 0  # the last round that it was told to be open
    closing: int = 0  # and to be about to close


def payment_key(task: str, who: str) -> str:
    return hashlib.sha256(f"crowdfl payment {task} {who}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class PaidClaim:
    """What became of a claim: millionths by round."""

    paid: Mapping[int, int]
    claimed: Mapping[int, int]

    @property
    def amount(self) -> int:
        return sum(self.paid.values())

    @property
    def short(self) -> dict[int, int]:
        """What is missing, by round: somebody had claimed more of that round than was theirs."""
        return {
            n: claimed - self.paid.get(n, 0) for n, claimed in self.claimed.items() if self.paid.get(n, 0) < claimed
        }


@dataclass(frozen=True)
class ClockNotes:
    """What SP has noted of its machine's clock: the time it saw last, the one that the operator confirmed, a doubt."""

    seen: float | None = None
    confirmed: float | None = None
    in_doubt: bool = False
