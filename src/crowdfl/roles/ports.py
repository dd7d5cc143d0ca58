"""What the roles need from outside: a clock, durable stores, peers. Implemented by `storage` and `services`, and by tests."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.paillier.pctd import RandomizerSource
from crowdfl.errors import CrowdFLError
from crowdfl.protocols.profile import SpRecord
from crowdfl.protocols.records import Look, Place, Standing
from crowdfl.roles.records import (
    ClockNotes,
    Movement,
    Round,
    RoundState,
    StoredDeposit,
    StoredDispute,
    StoredParticipant,
    StoredPayee,
    StoredPayment,
    StoredSubscription,
    StoredTask,
    TaskStatus,
    Trouble,
    UnreadableTask,
    Upload,
    UploadContext,
    UsedInvitation,
)


class Clock(Protocol):
    """Time in seconds since the epoch."""

    def now(self) -> float: ...


@dataclass
class ManualClock:
    """Time as its owner says."""

    time: float = 0.0

    def now(self) -> float:
        return self.time


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

    def put_file(self, name: str, file: Path) -> None:
        """`put` of what is in a file of this machine, which is never all in memory; the file may go away afterwards."""

    def clear(self, folder: str) -> None:
        """Remove every blob whose name begins with this one and a slash, and what a crash left of others there."""

    def listing(self, inside: str = "") -> dict[str, float]:
        """Every blob's name, or of those in a folder, and when it was written, in seconds of the machine's own clock."""

    def remove_unfinished(self, before: float) -> int:
        """Remove what a crash left of writes that began before this moment; how many there were."""


def replace_blob(blobs: Blobs, name: str, data: bytes) -> None:
    """In place of what is there; a crash in between leaves nothing."""
    blobs.delete(name)
    blobs.put(name, data)


class Stock(RandomizerSource, Protocol):
    """Randomizers made ahead of time for one key; each is handed out at most once, whatever crashes."""

    @property
    def available(self) -> int: ...
    def fill(self, count: int, source: RandomizerSource) -> None: ...


class TaskStore(Protocol):
    """What every role keeps of its tasks. Every method is one transaction, unless called inside `transaction`."""

    def transaction(self) -> AbstractContextManager[None]: ...  # several calls as one
    def add_task(self, task: StoredTask) -> None: ...  # idempotent; other papers are a Conflict
    def task(self, task: str) -> StoredTask: ...  # or UnknownTask
    def tasks(self) -> list[StoredTask]: ...  # those that can be read
    def all_tasks(self) -> list[StoredTask | UnreadableTask]: ...
    def unreadable(self) -> list[UnreadableTask]: ...  # the others, which move nowhere
    def change_task(self, task: str, **changes: object) -> None: ...  # of a `StoredTask`; or UnknownTask


class GuardedStore(TaskStore, Protocol):
    """What SP and CSP keep of their guard: its name."""

    def guard_identity(self, new: Callable[[], str]) -> str: ...  # `new` makes one where none is known
    def change_guard(self, name: str) -> None: ...


class CrowdStore(GuardedStore, Protocol):
    """What SP and CSP keep besides: who takes part."""

    def add_participant(self, task: str, participant: StoredParticipant, limit: int, most: int = ...) -> None:
        """Or `TaskFull`: of so many places, or so many who ever joined. The first keys of an invitation stand (`Conflict`). A
        newer device takes the place of older ones: those have left from then on, and take none; one that is not the newest is
        `Replaced`. Whoever's place was freed comes back if there is one."""

    def participant(self, task: str, who: str) -> StoredParticipant: ...  # or UnknownParticipant

    def participants(self, task: str, since: int = 0, most: int = ...) -> list[StoredParticipant]:
        """In the order they joined, those who left included: so many, from after the position `since` on."""


class SpStore(CrowdStore, Protocol):
    """SP's durable state."""

    def note_trouble(self, trouble: Trouble) -> None: ...  # once more, since it was first noted
    def forget_trouble(self, task: str, work: str) -> None: ...
    def troubles(self, task: str | None = None) -> list[Trouble]: ...  # of a task, or of all

    def leave(self, task: str, who: str) -> None: ...
    def withdraw(self, task: str, who: str, now: float) -> None: ...  # and leave; the first time counts
    def devices(self, task: str, place: str) -> list[str]: ...  # who have joined under a number, in this order
    def free(self, task: str, number: int, people: Sequence[str]) -> None: ...  # their places, after this round
    def recruit(
        self, task: str, place: str, now: float, most: int
    ) -> bool: ...  # note that it is given; False: so many were in the last hour. The same one again is not counted

    def status(self, task: str) -> TaskStatus: ...  # or UnknownTask

    def set_round(self, task: str, known: Round | None, changed: Round) -> None:
        """Compare and set: `Conflict`, and nothing is changed, unless the round is still as it is known; None: a new one."""

    def rounds(self, task: str) -> list[Round]: ...  # in order
    def round(self, task: str, number: int) -> Round: ...  # or NotReady
    def draw(
        self, task: str, number: int, people: Sequence[str]
    ) -> None: ...  # these are in the round, and are told so
    def drawn(self, task: str, number: int) -> frozenset[str]: ...  # empty: everyone is
    def places_drawn(self, task: str, number: int) -> int: ...  # how many those are
    def upload(self, task: str, number: int, who: str) -> Upload | None: ...
    def uploads(self, task: str, number: int) -> list[Upload]: ...  # in the order they came
    def uploads_after(self, task: str, number: int, position: int, most: int) -> list[tuple[int, Upload]]: ...
    def last_uploads(self, task: str, number: int, most: int) -> list[Upload]: ...  # the newest first
    def upload_counts(self, task: str) -> dict[int, int]: ...  # by round, of those that have any
    def dropped_uploads(self, task: str) -> dict[int, list[str]]: ...  # whose, by round
    def gone_uploads(self, task: str) -> list[tuple[int, str, str]]: ...  # round, whose, digest: withdrawn or replaced

    def turnout(self, task: str, number: int) -> tuple[int, int]:
        """How many have uploaded in a round, and how many more are in it, enrolled, and have not left."""

    def acknowledge(
        self,
        task: str,
        number: int,
        uploads: Sequence[Upload],
        most: float = ...,
        states: Collection[RoundState] = ...,
    ) -> list[bool | CrowdFLError]:
        """Add each to a round that is open, or in one of these states, and has fewer than `most`, else `RoundNotOpen`, in one
        commit. True if new; False if this very upload is in; `AlreadyCounted` if another one of this participant's is, or if
        these very bytes were uploaded to this task before; `Forbidden` if the participant has left."""

    def drop_uploads(self, task: str, number: int, uploads: Sequence[Upload], *, damaged: bool = True) -> None:
        """As if they had never come: the same bytes may come again. That they were dropped stays known. Idempotent.

        Those that are not `damaged` were taken back, and are not counted among the damaged ones.
        """

    def upload_context(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
        """Task, round, participants and their uploads in one look, or `UnknownTask`."""

    def sp_record(self, task: str, number: int) -> SpRecord: ...  # what SP's half of the protocol has decided

    def set_sp_record(self, task: str, number: int, known: SpRecord, changed: SpRecord) -> None:
        """Compare and set what is kept of the task and of the round: `Conflict`, and nothing is changed, unless both are still
        as they are known. Durably, before anything that depends on it leaves."""

    def erase_seeds(
        self, task: str, number: int | None = None
    ) -> None: ...  # records of a round, or all; no copy stays
    def seed_counts(self) -> dict[str, int]: ...  # records by task, of those that have any
    def replies(self, task: str, number: int) -> dict[str, bytes]: ...  # digests of CSP's that were used, by request
    def use_reply(self, task: str, number: int, request: str, digest: bytes) -> bytes: ...  # once; the one that counts
    def forget_replies(self, task: str, number: int) -> None: ...

    def post(self, task: str, *movements: Movement) -> bool: ...  # as Ledger.post; True if any is new
    def movements(self, task: str) -> list[Movement]: ...  # in order
    def movement(self, task: str, name: str) -> Movement | None: ...
    def add_deposit(self, deposit: StoredDeposit) -> None: ...  # a new one
    def deposit(self, task: str, name: str) -> StoredDeposit: ...  # or UnknownDeposit
    def deposits(self, task: str | None = None) -> list[StoredDeposit]: ...  # of a task, or of all that can be read
    def decide_deposit(self, deposit: StoredDeposit) -> None: ...  # its new state
    def add_payment(self, payment: StoredPayment) -> None: ...  # a new one
    def payment(self, task: str, who: str, sequence: int) -> StoredPayment | None: ...
    def instalments(self, task: str, who: str) -> list[StoredPayment]: ...  # of one person, by sequence

    def payments(self, task: str | None = None, states: Sequence[str] | None = None) -> list[StoredPayment]:
        """Of a task, or of all that can be read, in these states or in any, in the order they were made."""

    def change_payment(self, known: StoredPayment, changed: StoredPayment) -> bool:
        """Compare and set: False, and nothing is changed, unless the payment is still as it is known."""

    def payee(self, task: str, who: str) -> StoredPayee: ...  # an empty one, of whom nothing is kept
    def payees(self, task: str) -> dict[str, StoredPayee]: ...  # by name, of whom anything is kept
    def change_payee(self, known: StoredPayee, changed: StoredPayee) -> bool: ...  # as `change_payment`

    def add_dispute(self, dispute: StoredDispute) -> None: ...  # a new one
    def dispute(self, task: str, who: str, number: int) -> StoredDispute | None: ...
    def disputes(self, task: str | None = None, who: str | None = None) -> list[StoredDispute]: ...  # in order
    def change_dispute(self, dispute: StoredDispute) -> None: ...  # its new state

    def put_subscription(self, subscription: StoredSubscription) -> None: ...  # in place of this participant's other
    def delete_subscription(self, task: str, who: str | None = None) -> None: ...  # one, or all of a task; idempotent

    def take_subscriptions(self, task: str, number: int, message: str, most: int) -> list[StoredSubscription]:
        """Those that were not told `opened` or `closing` of this round, and are from now on: no two callers get one."""

    def mark_paid_before(self, task: str, amounts: Mapping[str, int]) -> None:
        """Payments that the bank has made, by key, and that SP forgot when it was restored from a backup. Idempotent."""

    def paid_before(self, task: str) -> dict[str, int]: ...

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        """Take or renew the right to work on a task; False while another owner's holds."""

    def release(self, task: str, owner: str, until: float | None = None) -> None:
        """Its owner's, at once; or it keeps the others waiting until then, and its owner never."""

    def seize(self, task: str, owner: str, now: float, seconds: float) -> None: ...  # whoever holds it loses it
    def clock_notes(self) -> ClockNotes: ...

    def note_clock(
        self, *, seen: float | None = None, confirmed: float | None = None, in_doubt: bool | None = None
    ) -> None:
        """What is not given stays as it is."""


class CspStore(CrowdStore, Protocol):
    """CSP's durable state: the records of its side of the protocol, and the name of the blob that answers each request."""

    def answer_context(self, task: str, request: str) -> tuple[StoredTask | None, int, str | None]:
        """The task, how many take part in it, and the blob that answers a request, in one look."""

    def answered(self, task: str, request: str) -> str | None: ...
    def record(self, task: str, place: Place) -> Standing: ...

    def set_records(self, task: str, look: Look, request: str, blob: str | None) -> None:
        """What a request sets, and the blob that answers it if it is not refused, in one transaction. `Overtaken`, and nothing
        is set, if a record that it has read does not stand as it was read, or if the request was answered before."""

    def recorded_rounds(self, task: str) -> list[int]: ...  # in order
    def erase_answers(self, task: str) -> None: ...  # and all records; no copy stays

    def erase_steps(self, task: str, look: Look, kinds: Collection[int]) -> None:
        """The answers of steps, and all records but those of these kinds; these as `look` has set them. No copy stays."""

    def answer_counts(self) -> dict[str, Counter[str]]: ...  # by task: of `answers` and of `records`


class KgcStore(TaskStore, Protocol):
    """KGC's durable state."""

    def used_invitations(self, task: str) -> list[UsedInvitation]: ...
    def use_invitation(self, task: str, used: UsedInvitation, certificate: str) -> None:
        """Idempotent for one holder, else `InvitationRefused`; so it is for one that a newer device's was used after."""

    def certified(
        self, task: str, name: str
    ) -> str | None: ...  # the newest certificate of a number, or of whose this is


class KgcPeer(Protocol):
    """KGC as SP or CSP reaches it, authenticated as itself."""

    def bundle(self, task: str) -> tuple[str, str, bytes]: ...  # definition, appointment, and this role's bundle
    def dealt(
        self, task: str, number: int
    ) -> bytes | memoryview: ...  # a file of this role, by its own number, before it acknowledges
    def acknowledge(self, task: str) -> bool: ...  # all of it is durable here; whether KGC has no copy left of anything


class EndPeer(Protocol):
    """KGC or CSP as SP tells it that a task is over."""

    def end(self, task: str, document: str) -> None: ...  # a signed `TaskEnd`; idempotent


class CspPeer(Protocol):
    """CSP as SP reaches it."""

    def prepare(self, task: str) -> None: ...  # fetch the task's bundle; idempotent
    def enrol(self, task: str, certificate: str) -> None: ...
    def attested(self, task: str) -> str: ...  # CSP's signed sum of all claims, once they have ended; else NotReady
    def claims_extended(
        self, task: str
    ) -> str: ...  # its signed word that people can claim longer; "" if there is none

    def answer(self, task: str, request: Long, longest: int) -> Long:
        """The same request again, the same reply. Whoever reads it from a network reads `longest` bytes of it at most."""
