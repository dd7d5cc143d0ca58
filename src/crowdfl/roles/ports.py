"""What the roles need from outside: a clock, durable stores, peers. Implemented by `storage` and `services`, and by tests."""

from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from crowdfl.crypto.randomizers import RandomizerSource
from crowdfl.errors import CrowdFLError
from crowdfl.protocols.profile import Identity
from crowdfl.roles.sp.ledger import Movement
from crowdfl.roles.sp.rounds import Round

__all__ = [
    "Blobs",
    "Clock",
    "CspPeer",
    "CspStore",
    "KgcPeer",
    "KgcStore",
    "SpStore",
    "Stock",
    "StoredParticipant",
    "StoredTask",
    "Upload",
    "UploadContext",
]


class Clock(Protocol):
    """Time in seconds since the epoch."""

    def now(self) -> float:
        """Now."""


class Blobs(Protocol):
    """Bytes under a name, written durably and as a whole: after a crash a blob is there or it is not."""

    def put(self, name: str, data: bytes) -> None:
        """Write once; the same bytes again are fine, other bytes are a `Conflict`."""

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        """`put` for several, which share the wait for their folder; if it fails, some may be there."""

    def get(self, name: str) -> bytes:
        """Read, or `NotReady`."""

    def has(self, name: str) -> bool:
        """Whether it is there."""

    def delete(self, name: str) -> None:
        """Remove; gone already is fine."""

    def clear(self, folder: str) -> None:
        """Remove every blob whose name begins with this one and a slash, and what a crash left of others there."""


class Stock(RandomizerSource, Protocol):
    """Randomizers made ahead of time for one key; each is handed out at most once, whatever crashes."""

    @property
    def available(self) -> int:
        """How many are left."""

    def fill(self, count: int, source: RandomizerSource) -> None:
        """Add some."""


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


class SpStore(Protocol):
    """SP's durable state. Every method is one transaction, unless called inside `transaction`."""

    def transaction(self) -> AbstractContextManager[None]:
        """Several calls as one transaction."""

    def add_task(self, task: StoredTask) -> None:
        """Once; the same again is fine, other contents are a `Conflict`."""

    def task(self, task: str) -> StoredTask:
        """Or `UnknownTask`."""

    def tasks(self) -> list[StoredTask]:
        """All of them."""

    def set_state(self, task: str, state: str, ended_at: float | None = None) -> None:
        """Change a task's state."""

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None:
        """Once; `TaskFull` beyond the limit."""

    def participants(self, task: str) -> list[StoredParticipant]:
        """In the order they joined, those who left included."""

    def participant(self, task: str, who: str) -> StoredParticipant:
        """One of them, or `UnknownParticipant`."""

    def signing_keys(self, task: str, since: int) -> dict[str, bytes]:
        """By name, in the order they joined, but for the first `since`."""

    def turnout(self, task: str, number: int) -> tuple[int, int]:
        """How many have uploaded in a round, and how many more are enrolled and have not left."""

    def leave(self, task: str, who: str) -> None:
        """Mark as gone."""

    def put_round(self, task: str, round_: Round) -> None:
        """Insert or update."""

    def rounds(self, task: str) -> list[Round]:
        """In order."""

    def round(self, task: str, number: int) -> Round:
        """One of them, or `NotReady`."""

    def acknowledge(self, task: str, number: int, uploads: Sequence[Upload]) -> list[bool | CrowdFLError]:
        """Add each to a round that is open, else `RoundNotOpen`, in one commit. True if new; False if this very upload is in;
        `AlreadyCounted` if another one of this participant's is, or if these very bytes were uploaded to this task before."""

    def upload(self, task: str, number: int, who: str) -> Upload | None:
        """A participant's upload of a round."""

    def standing(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
        """Task, round, participants and their uploads in one look, or `UnknownTask`."""

    def uploads(self, task: str, number: int) -> list[Upload]:
        """In the order they came."""

    def put_seed(self, task: str, number: int, purpose: str, state: bytes) -> None:
        """Once, durably, before anything masked by it leaves; other contents are a `Conflict`."""

    def seeds(self, task: str, number: int) -> dict[str, bytes]:
        """By purpose."""

    def post(self, task: str, movement: Movement) -> bool:
        """Into the ledger; see `Ledger.post`."""

    def movements(self, task: str) -> list[Movement]:
        """In order."""

    def memory(self, task: str) -> MutableMapping[str, bytes]:
        """Small things to remember about a task, by name."""

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        """Take or renew the right to work on a task; False while another owner's holds."""

    def release(self, task: str, owner: str) -> None:
        """Give the right back."""


class CspStore(Protocol):
    """CSP's durable state."""

    def transaction(self) -> AbstractContextManager[None]:
        """Several calls as one transaction."""

    def add_task(self, task: StoredTask) -> None:
        """Once."""

    def task(self, task: str) -> StoredTask:
        """Or `UnknownTask`."""

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None:
        """Once."""

    def participants(self, task: str, since: int = 0) -> list[StoredParticipant]:
        """In the order they joined, but for the first `since`."""

    def answered(self, task: str, request: str) -> str | None:
        """The name of the blob that answers a request, if it was answered."""

    def put_answer(self, task: str, request: str, blob: str) -> None:
        """Once."""

    def memory(self, task: str) -> MutableMapping[str, bytes]:
        """What the protocol side must remember between requests."""


class KgcStore(Protocol):
    """KGC's durable state."""

    def add_task(self, task: StoredTask) -> None:
        """Once."""

    def task(self, task: str) -> StoredTask:
        """Or `UnknownTask`."""

    def set_state(self, task: str, state: str, ended_at: float | None = None) -> None:
        """Change a task's state."""

    def use_invitation(self, task: str, number: str, who: str) -> None:
        """Once per invitation; the same holder again is fine, another is refused."""


class KgcPeer(Protocol):
    """KGC as SP or CSP reaches it, authenticated as itself."""

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        """Definition, appointment, and this role's bundle."""

    def acknowledge(self, task: str) -> None:
        """The bundle is durable here: KGC may destroy its copy."""


class CspPeer(Protocol):
    """CSP as SP reaches it."""

    def prepare(self, task: str) -> None:
        """Fetch the task's bundle, if it was not done."""

    def enrol(self, task: str, certificate: str) -> None:
        """Pass a participant's certificate on."""

    def answer(self, task: str, request: bytes) -> bytes:
        """One request, one reply; the same request again, the same reply."""
