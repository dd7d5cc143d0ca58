"""What roles keep durably, as records: a class for each kind of row, with the decisions that follow from one alone.

A round's window is [t0, t0 + window]. What comes later is taken for `late` after the window, until the round closes; where that
is 0 it is refused (the paper's *retransmit* and *discard*). It closes early as the task's plan says. Below the quorum it is
extended once by a window, then aborted. Time is an argument.

Where late uploads are taken until an average is published (`averages_again`), a round closes at the end of its window and is
averaged. Its average is held, shown to nobody, for one window more, or until nobody can come any more. If somebody came
late, the first average is erased and all of them are averaged once more. It is published, and rewards follow.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from crowdfl.codes import Code
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import ClaimsExtension, Definition, EndReason
from crowdfl.errors import (
    CrowdFLError,
    EnrolmentOver,
    Forbidden,
    InvitationRefused,
    PlaceFreed,
    Replaced,
    RoundNotOpen,
    SettingsError,
    TaskUnreadable,
    TooLate,
    Withdrawn,
)
from crowdfl.protocols.profile import Identity
from crowdfl.settings import DAY, PlanSettings, TaskSettings, averages_again
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
    claims_extended: str | None = (
        None  # CSP's signed word that people can claim longer: on CSP, and on SP once it has asked
    )
    attested: str | None = None  # CSP's signed sum of all claims, once they have ended
    sightings: int = 0  # of its last day here, or of a later one
    sighted_at: float | None = None  # the last of them
    # SP's
    paused_at: float | None = None
    ready_at: float | None = None  # since when the next round has all that it needs, but its time
    ordered_at: float | None = None  # when the requester signed its last order
    epoch: str = ""  # another after each restore from a backup: phones then look whether their uploads are still here
    unreconciled: bool = False  # restored from a backup: some may have been paid or returned before
    dropped: int = 0  # uploads that were damaged here: phones look then too
    bonus: str | None = None  # CSP's signed word who gets one, in hex
    csp_away_since: float | None = None
    kgc_told_end: float | None = None  # when it acknowledged the end
    csp_told_end: float | None = None
    without_model: bool = False  # for good: the requester waits for none
    freed: int = 0  # the last round after which places were freed, of a task that SP recruits for
    # SP's and CSP's
    sole_holder: bool = False  # KGC has destroyed its copies of what it dealt
    steps: int = 0  # of rounds, that this server's own messages have left for: so many notes are in its guard
    said: str = ""  # the hash of what was said in the last of them
    # CSP's
    rolled_back: bool = False  # to an earlier state: no step is answered any more, claims are

    @property
    def opened(self) -> Definition:
        """The definition, with its signature checked; or `TaskUnreadable`."""
        try:
            return _opened(self.definition)
        except CrowdFLError as wrong:
            why = f"its definition cannot be read ({type(wrong).__name__}: {str(wrong)[:200]})"
            raise UnreadableTask(self.task, self.state, why).refusal() from None

    @property
    def claims_until(self) -> int:
        """Seconds since 1970: the last moment at which SP takes a claim."""
        return last_claims(self.opened, self.claims_extended)

    @property
    def attests_until(self) -> float:
        """CSP answers claims a day longer (or a shorter time to claim longer), and no books are closed before: two clocks may
        differ, and what SP took in the last minute is attested after it."""
        return self.claims_until + min(DAY, self.opened.claim_window)

    def unnotified(self, peers: Collection[str]) -> list[str]:
        """Which of these, `kgc` and `csp`, have not acknowledged the end."""
        told = {"kgc": self.kgc_told_end, "csp": self.csp_told_end}
        return [name for name in peers if told[name] is None]


_LAST_DAYS = 3 * DAY


def unclaimed_from(definition: Definition, claims_until: float) -> float:
    """From when what nobody has claimed is paid to people who said where: the last three days, or half of a shorter time."""
    return claims_until - min(_LAST_DAYS, definition.claim_window / 2)


@dataclass(frozen=True)
class UnreadableTask:
    """A task of which this version cannot read something. It stands still, with its money, and keeps no other waiting."""

    task: str
    state: str
    why: str
    steps: int = 0  # as a `StoredTask` has them
    said: str = ""

    def refusal(self) -> TaskUnreadable:
        return TaskUnreadable(
            f"task {self.task} cannot be read here: {self.why}. Nothing of it moves, and its money is held, until the operator "
            "has mended it or a version runs that can read it",
            self.why,
        )


def last_claims(definition: Definition, extended: str | None) -> int:
    """The last moment at which SP takes a claim; `extended` was checked when it came."""
    return definition.claims_until if extended is None else _extended(extended)


@lru_cache(maxsize=64)
def _extended(document: str) -> int:
    return ClaimsExtension.read(Envelope.parse(document, ClaimsExtension.kind)).until


@lru_cache(maxsize=64)
def _opened(definition: str) -> Definition:
    return Definition.open(definition)


@dataclass(frozen=True)
class StoredParticipant:
    """An enrolled participant."""

    identity: Identity
    certificate: str
    device: int = 1  # which one of its person's
    left: bool = False
    consent: str | None = None  # as it was signed
    consented_at: float | None = None  # when SP got it
    withdrawn_at: float | None = None
    replaced_by: str | None = None  # another of this task: the same person's, with a newer device
    recruited: bool = False  # by SP, where the task says so; else invited
    joined_at: float | None = None  # by SP's clock
    freed: bool = False  # its place, after a round in which nothing of it was accepted
    position: int = field(default=0, compare=False)  # grows with each who joins

    @property
    def state(self) -> str:
        if self.replaced_by is not None:
            return "replaced"
        if self.withdrawn_at is not None:
            return "withdrawn"
        return "freed" if self.freed else "left" if self.left else "in"

    def refusal(self) -> Forbidden:
        """Why nothing is taken of whoever has left."""
        who = self.identity.who
        if self.state == "withdrawn":
            return Withdrawn(
                f"{who} has withdrawn from this task, for good: to take part again, ask for a new invitation"
            )
        if self.state == "freed":
            return PlaceFreed(
                f"nothing of {who} was accepted in a round, and its place was freed: join again, if there is one"
            )
        return replaced(who) if self.state == "replaced" else Forbidden(f"{who} has left this task: join again")


def replaced(who: str) -> Replaced:
    return Replaced(
        f"another device has taken the place of {who}, by an invitation of the requester's. What this one has earned stays "
        "claimable, by it alone. If you know of no other device, ask the requester"
    )


@dataclass(frozen=True)
class UsedInvitation:
    """An invitation that KGC has certified somebody's keys for."""

    number: str
    device: int
    who: str


class RoundState(StrEnum):
    """The states of a round: open, closed, weighed if it pays, rewarded; where late uploads are averaged in, closed, held,
    gathered, published if it pays, rewarded. `aborted` ends one that is given up."""

    OPEN = "open"
    CLOSED = "closed"
    HELD = "held"  # averaged, and shown to nobody: late uploads are still taken
    GATHERED = "gathered"  # no upload is taken any more; what came late is averaged in
    PUBLISHED = "published"  # the average can be read; rewards are to be computed
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
    word: str | None = None  # CSP's signed word about one that was given up
    closed_at: float | None = None  # when it took its last upload, where that was before its last call
    void: str | None = None  # why it was given up: `reasons.Reason` or `reasons.Void`
    held: str | None = (
        None  # the encrypted average between averaging and rewards; erased for a second one, and at the end
    )

    @property
    def is_over(self) -> bool:
        return self.state in (RoundState.REWARDED, RoundState.ABORTED)

    def deadline(self, settings: TaskSettings) -> float:
        return self.opened_at + settings.window * (2 if self.extended else 1)

    def fits(self, settings: TaskSettings, until: float) -> bool:
        """Whether it can take uploads to its end before this moment."""
        return self.last_call(settings) <= until

    def last_call(self, settings: TaskSettings) -> float:
        """When any upload ends: the deadline, and as long after it as late ones are taken."""
        return self.deadline(settings) + settings.grace

    def require_upload_welcome(self, settings: TaskSettings, now: float) -> None:
        """Refuse an upload that comes too late, saying what to do."""
        if self.state not in taking_uploads(settings):
            raise RoundNotOpen(f"round {self.number} is {self.state}: come back for the next round")
        if now > self.last_call(settings):
            raise TooLate(
                f"round {self.number} ended {now - self.last_call(settings):.0f} s ago and takes no more uploads: "
                "join the next round"
            )

    def is_late(self, settings: TaskSettings, now: float) -> bool:
        return now > self.deadline(settings)

    def is_gathered(
        self, settings: TaskSettings, now: float, uploads: int, enrolled: int, plan: PlanSettings = _TRIAL
    ) -> bool:
        """Whether the average that is held waits for nobody any more."""
        return now >= self.last_call(settings) or uploads >= self._wanted(settings, enrolled, plan)

    def decide(
        self,
        settings: TaskSettings,
        now: float,
        uploads: int,
        enrolled: int,
        plan: PlanSettings = _TRIAL,
        *,
        has_reference: bool = True,
        until: float = math.inf,
    ) -> "Round":
        """What an open round becomes at this moment: itself, extended, closed or aborted; never extended past `until`.

        One that people are drawn for draws others at half of its window, and when it is extended.
        Without the reference that its task has, it waits until no upload is taken any more, and is given up.
        """
        if self.state is not RoundState.OPEN:
            return self
        found = self._decided(settings, now, uploads, enrolled, plan, until)
        if found.state is RoundState.OPEN and settings.per_round is not None:
            due = (self.opened_at + settings.window / 2 <= now < found.deadline(settings)) + found.extended
            return replace(found, redrawn=max(due, self.redrawn))
        if found.state is not RoundState.CLOSED or has_reference:
            return found
        return self if now < self.last_call(settings) else replace(self, state=RoundState.ABORTED)

    def _decided(
        self, settings: TaskSettings, now: float, uploads: int, enrolled: int, plan: PlanSettings, until: float
    ) -> "Round":
        enough = uploads >= settings.min_participants
        if uploads >= self._wanted(settings, enrolled, plan) and enough:
            return replace(self, state=RoundState.CLOSED)
        if now < self.deadline(settings):
            return self
        longer = replace(self, extended=True)
        if not enough and not self.extended and longer.fits(settings, until):
            return longer
        if now < self.last_call(settings) and not (enough and averages_again(settings)):  # late ones still come
            return self
        return replace(self, state=RoundState.CLOSED if enough else RoundState.ABORTED)

    def _wanted(self, settings: TaskSettings, enrolled: int, plan: PlanSettings) -> float:
        """With so many uploads nobody is waited for."""
        places = [
            plan.goal,
            enrolled if plan.closes == "everyone" else None,
            settings.per_round if self.redrawn else None,
        ]
        return min((one for one in places if one is not None), default=math.inf)


def taking_uploads(settings: TaskSettings) -> tuple[RoundState, ...]:
    """The states in which a round takes uploads."""
    late = (RoundState.CLOSED, RoundState.HELD) if averages_again(settings) else ()
    return (RoundState.OPEN, *late)


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
    listed: int  # of those that have not left, who came by SP's list
    ready_at: float | None
    claims_extended: str | None
    rounds: Sequence[tuple[Round, int, int]]  # with its uploads, and how many were drawn for it: 0 of all


NOT_OPEN = {
    "full": "all places of this task are taken",
    "over": "the time to join this task is over, as its plan says",
    "ended": "this task has ended: nobody can join any more",
}
"""Why nobody can join, as SP tells everyone who looks."""


def require_in_time(plan: PlanSettings, device: int, expires: float, now: float) -> None:
    """Whether somebody may join now, as KGC, SP and CSP each decide by their own clock; a person who is in, with another
    device, after enrolment too."""
    if device == 1 and now > plan.enrolment_end:
        raise EnrolmentOver(NOT_OPEN["over"])
    if now > expires:
        raise InvitationRefused("this invitation has expired; ask the requester for another")


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


class PayState(Code):
    """Where somebody's money stands: these words alone, on phones, in both consoles, in files and in answers."""

    EARNED = "earned", "earned"
    CLAIMED = "claimed", "claimed"
    NO_DESTINATION = "no_destination", "say where to be paid"
    WAITING = "waiting", "waiting for payment"
    PAID = "paid", "paid"
    FAILED = "failed", "failed"


@dataclass(frozen=True)
class StoredPayment:
    """An instalment of what a participant is owed: all that SP has added with one claim."""

    task: str
    who: str
    sequence: int  # how many of its rounds this one and those before it pay, attested or unused; after a restore more
    amount: int
    word: int  # of that, millionths that SP alone says to be owed: of unused uploads
    state: PaymentState
    since: float  # when this state began
    until: float | None = None  # running: its owner's lease; pending after a failure: the rest before the next attempt
    owner: str | None = None  # the process that runs it, or ran it last
    attempts: int = 0
    error: str | None = None  # why the last attempt did not end well
    note: str = ""  # how it was paid, where its operator had to say so

    def state_at(self, now: float) -> PaymentState:
        """As everyone sees it: of a running one whose process no longer renews its lease, nobody knows."""
        lost = self.state is PaymentState.RUNNING and (self.until is None or self.until <= now)
        return PaymentState.UNKNOWN if lost else self.state

    def pay_state(self, now: float, *, has_place: bool) -> PayState:
        """As people read it; `has_place`: somebody knows where to pay, or nobody is asked."""
        state = self.state_at(now)
        if state is PaymentState.PAID:
            return PayState.PAID
        if state is PaymentState.UNKNOWN or (state is PaymentState.PENDING and self.error is not None):
            return PayState.FAILED
        return PayState.WAITING if has_place or state is PaymentState.RUNNING else PayState.NO_DESTINATION

    @property
    def key(self) -> str:
        """Names this payment to the bank, whoever asks and however often."""
        return payment_key(self.task, self.who, self.sequence)


@dataclass(frozen=True)
class PayWord:
    """Where SP says that the money of one round stands; `note`: how it was paid, or why it failed."""

    amount: int
    state: PayState
    note: str = ""
    since: float = 0.0

    @classmethod
    def by_round(cls, rows: Sequence[Mapping[str, Any]]) -> dict[int, "PayWord"]:
        """As SP's answer tells it; `FormatError` for a state that nobody knows."""
        return {
            int(one["round"]): cls(
                int(one["amount"]), PayState(one["state"]), printable(str(one["note"]), 500), float(one["since"])
            )
            for one in rows
        }

    def row(self, number: int) -> dict[str, Any]:
        return {"round": number, **vars(self), "state": str(self.state)}


@dataclass(frozen=True)
class StoredPayee:
    """What the payer is shown of somebody: where to pay, and CSP's newest statement."""

    task: str
    who: str
    offered: bytes = field(default=b"", repr=False)  # the destination that came last, sealed to the payer; empty: none
    destination: bytes = field(default=b"", repr=False)  # the one that the statement names; empty: it is not here
    statement: bytes = field(default=b"", repr=False)  # a `PayStatement`, as CSP has signed it; empty: no claim yet
    sequence: int = 0  # of the statement
    named: bytes = b""  # the hash of the destination that it names


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


def payment_key(task: str, who: str, sequence: int) -> str:
    return hashlib.sha256(f"crowdfl payment 2 {task} {who} {sequence}".encode()).hexdigest()[:32]


class DisputeState(StrEnum):
    """Of an unused upload that its owner claims and the books do not owe for; the operator decides once."""

    OPEN = "open"
    PAID = "paid"
    REFUSED = "refused"


@dataclass(frozen=True)
class StoredDispute:
    """Both proofs: the claim that its owner has signed, and what SP's books said then."""

    task: str
    who: str
    number: int  # of the round
    amount: int
    claim: bytes = field(repr=False)
    books: str  # JSON
    state: DisputeState
    since: float  # when this state began


@dataclass(frozen=True)
class PaidClaim:
    """What became of a claim: millionths by round. A round that is in none of them is not over yet."""

    paid: Mapping[int, int]  # of what was earned; less than was claimed where the round had no more
    unused: Mapping[int, int] = field(default_factory=dict)
    disputed: Mapping[int, int] = field(default_factory=dict)  # until SP's operator has decided

    @property
    def amount(self) -> int:
        """Millionths that are paid, now or before."""
        return sum(self.paid.values()) + sum(self.unused.values())


@dataclass(frozen=True)
class Trouble:
    """A step of a task, or a chore beside it, that fails: since when, how often, and how it failed at last."""

    task: str
    work: str  # which chore; empty: the task's own steps
    since: float
    last: float
    times: int
    error: str
    reason: str


@dataclass(frozen=True)
class ClockNotes:
    """What SP has noted of its machine's clock: the time it saw last, the one that the operator confirmed, a doubt."""

    seen: float | None = None
    confirmed: float | None = None
    in_doubt: bool = False
