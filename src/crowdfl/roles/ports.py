"""What the roles need from outside: a clock, durable stores, peers. Implemented by `storage` and `services`, and by tests."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Protocol

from crowdfl.crypto.paillier.pctd import RandomizerSource
from crowdfl.errors import CrowdFLError
from crowdfl.protocols.profile import Identity
from crowdfl.roles.sp.ledger import Movement
from crowdfl.roles.sp.rounds import Round


class Clock(Protocol):
    """Time in seconds since the epoch."""

    def now(self) -> float: ...


class Events(Protocol):
    """Who is told what happened, once it is durable: an event's name and fields, none of them secret."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


def ignore_event(event: str, /, **fields: object) -> None:
    """For whoever does not watch."""


class Blobs(Protocol):
    """Bytes under a name, written durably and as a whole: after a crash a blob is there or it is not."""

    def get(self, name: str) -> bytes: ...  # or NotReady
    def open(self, name: str) -> BinaryIO: ...  # to read a long one piece by piece, or NotReady; the caller closes it
    def has(self, name: str) -> bool: ...
    def delete(self, name: str) -> None: ...  # idempotent

    def put(self, name: str, data: bytes) -> None:
        """Write once; the same bytes again change nothing, other bytes are a `Conflict`."""

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        """`put` for several, which share the wait for their folder; if it fails, some may be there."""

    def clear(self, folder: str) -> None:
        """Remove every blob whose name begins with this one and a slash, and what a crash left of others there."""

    def listing(self) -> dict[str, float]:
        """Every blob's name, and when it was written, in seconds of the machine's own clock."""

    def remove_unfinished(self, before: float) -> int:
        """Remove what a crash left of writes that began before this moment; how many there were."""


class Stock(RandomizerSource, Protocol):
    """Randomizers made ahead of time for one key; each is handed out at most once, whatever crashes."""

    @property
    def available(self) -> int: ...
    def fill(self, count: int, source: RandomizerSource) -> None: ...


@dataclass(frozen=True)
class StoredTask:
    """A task as a role keeps it."""

    task: str
    definition: str
    appointment: str
    state: str
    ended_at: float | None = None


@dataclass(frozen=True)
class StoredParticipant:
    """An enrolled participant."""

    identity: Identity
    certificate: str
    left: bool = False


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

    def state_at(self, now: float) -> PaymentState:
        """As everyone sees it: of a running one whose process no longer renews its lease, nobody knows."""
        lost = self.state is PaymentState.RUNNING and (self.until is None or self.until <= now)
        return PaymentState.UNKNOWN if lost else self.state

    @property
    def key(self) -> str:
        """Names this payment to the bank, whoever asks and however often: the same task and participant, the same key."""
        return payment_key(self.task, self.who)


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


class TaskStore(Protocol):
    """What every role keeps of its tasks. Every method is one transaction, unless called inside `transaction`."""

    def transaction(self) -> AbstractContextManager[None]: ...  # several calls as one
    def add_task(self, task: StoredTask) -> None: ...  # idempotent; other contents are a Conflict
    def task(self, task: str) -> StoredTask: ...  # or UnknownTask
    def tasks(self) -> list[StoredTask]: ...
    def set_state(self, task: str, state: str, ended_at: float | None = None) -> None: ...
    def memory(self, task: str) -> MutableMapping[str, bytes]: ...  # small things to remember about a task


class CrowdStore(TaskStore, Protocol):
    """What SP and CSP keep besides: who takes part."""

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None: ...  # or TaskFull

    def participants(self, task: str, since: int = 0) -> list[StoredParticipant]:
        """In the order they joined, those who left included, but for the first `since`."""


class SpStore(CrowdStore, Protocol):
    """SP's durable state."""

    def participant(self, task: str, who: str) -> StoredParticipant: ...  # or UnknownParticipant
    def leave(self, task: str, who: str) -> None: ...
    def put_round(self, task: str, round_: Round) -> None: ...  # insert or update
    def rounds(self, task: str) -> list[Round]: ...  # in order
    def round(self, task: str, number: int) -> Round: ...  # or NotReady
    def upload(self, task: str, number: int, who: str) -> Upload | None: ...
    def uploads(self, task: str, number: int) -> list[Upload]: ...  # in the order they came
    def last_uploads(self, task: str, number: int, most: int) -> list[Upload]: ...  # the newest first
    def upload_counts(self, task: str) -> dict[int, int]: ...  # by round, of those that have any
    def seeds(self, task: str, number: int) -> dict[str, bytes]: ...  # by purpose
    def erase_seeds(self, task: str, number: int | None = None) -> None: ...  # of a round, or all; no copy stays
    def seed_counts(self) -> dict[str, int]: ...  # by task, of those that have any
    def post(self, task: str, movement: Movement) -> bool: ...  # as Ledger.post
    def movements(self, task: str) -> list[Movement]: ...  # in order
    def add_deposit(self, deposit: StoredDeposit) -> None: ...  # a new one
    def deposit(self, task: str, name: str) -> StoredDeposit: ...  # or UnknownDeposit
    def deposits(self, task: str | None = None) -> list[StoredDeposit]: ...  # of a task or of all, in order
    def decide_deposit(self, deposit: StoredDeposit) -> None: ...  # its new state
    def add_payment(self, payment: StoredPayment) -> None: ...  # a new one
    def payment(self, task: str, who: str) -> StoredPayment | None: ...
    def release(self, task: str, owner: str) -> None: ...
    def signing_keys(self, task: str, since: int) -> dict[str, bytes]: ...  # by name, as they joined, from `since` on

    def turnout(self, task: str, number: int) -> tuple[int, int]:
        """How many have uploaded in a round, and how many more are enrolled and have not left."""

    def acknowledge(self, task: str, number: int, uploads: Sequence[Upload]) -> list[bool | CrowdFLError]:
        """Add each to a round that is open, else `RoundNotOpen`, in one commit. True if new; False if this very upload is in;
        `AlreadyCounted` if another one of this participant's is, or if these very bytes were uploaded to this task before."""

    def drop_upload(self, task: str, number: int, who: str) -> None:
        """As if it had never come: the same bytes may come again. Idempotent."""

    def upload_context(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
        """Task, round, participants and their uploads in one look, or `UnknownTask`."""

    def put_seed(self, task: str, number: int, purpose: str, state: bytes) -> None:
        """Once, durably, before anything masked by it leaves; other contents are a `Conflict`."""

    def payments(self, task: str | None = None, states: Sequence[str] | None = None) -> list[StoredPayment]:
        """Of a task or of all, in these states or in any, in the order they were made."""

    def change_payment(self, known: StoredPayment, changed: StoredPayment) -> bool:
        """Compare and set: False, and nothing is changed, unless the payment is still as it is known."""

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        """Take or renew the right to work on a task; False while another owner's holds."""


class CspStore(CrowdStore, Protocol):
    """CSP's durable state: the name of the blob that answers each request."""

    def answered(self, task: str, request: str) -> str | None: ...
    def put_answer(self, task: str, request: str, blob: str) -> None: ...  # once

    def erase_answers(self, task: str, keep: Collection[str]) -> None:
        """Delete the names of answers, and all that is remembered of a task but for these names."""

    def answer_counts(self, keep: Collection[str]) -> dict[str, Counter[str]]:
        """By task: how many `answers` are named, how many other things are remembered (`memory`)."""


class KgcStore(TaskStore, Protocol):
    """KGC's durable state."""

    def use_invitation(self, task: str, number: str, who: str) -> None: ...  # idempotent for one holder, else refused


class KgcPeer(Protocol):
    """KGC as SP or CSP reaches it, authenticated as itself."""

    def bundle(self, task: str) -> tuple[str, str, bytes]: ...  # definition, appointment, and this role's bundle
    def dealt(self, task: str, number: int) -> bytes: ...  # this role's file of a round, before it acknowledges
    def acknowledge(self, task: str) -> None: ...  # all of it is durable here: KGC may destroy its copy


class EndPeer(Protocol):
    """KGC or CSP as SP tells it that a task is over."""

    def end(self, task: str, document: str) -> None: ...  # a signed `TaskEnd`; idempotent


class CspPeer(Protocol):
    """CSP as SP reaches it."""

    def prepare(self, task: str) -> None: ...  # fetch the task's bundle; idempotent
    def enrol(self, task: str, certificate: str) -> None: ...
    def answer(self, task: str, request: bytes) -> bytes: ...  # the same request again, the same reply
