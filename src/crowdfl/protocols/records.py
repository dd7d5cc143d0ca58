"""Records: the typed state that a server decides by, and what one request reads and sets of it.

A server is a transition: from the records as they stand and a request to an answer, or to a refusal, and the records as they
are then. It does no I/O. Whoever keeps the records sets what a request has changed together with its answer, in one
transaction, and only if every record that the request has read is still as it was read. So of two processes one has answered,
and the other looks again.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from crowdfl.crypto.randomness import secret_bytes
from crowdfl.errors import CrowdFLError, Overtaken
from crowdfl.protocols.messages import Limits, Message

_Record = TypeVar("_Record", bound=Message)

Outcome = bytes | CrowdFLError | None
"""An answer, or a refusal that changes the records: both are kept. A refusal that is raised changes nothing.

None: that this very request takes its step is to be set first, then the same is asked for again. So a failure of the machine
while something is computed gives nobody a second try with other contents.
"""


@dataclass(frozen=True, order=True)
class Place:
    """Which record: its kind, and of which round, step, part (a cohort, a piece) and person it is, where it is of one."""

    kind: int
    number: int = 0
    step: int = 0
    part: int = 0
    who: str = ""


@dataclass(frozen=True)
class Standing:
    """A record as it stands: how often it was set, and its bytes. What was never set stands at 0."""

    revision: int = 0
    body: bytes | None = field(default=None, repr=False)


class RecordSource(Protocol):
    """Where records are, and the long values that they name by their hash."""

    def standing(self, place: Place) -> Standing: ...
    def file(self, number: int, name: str) -> bytes: ...  # of a round


class Look:
    """What one request has read, and what it sets. `fresh` draws secret bytes."""

    def __init__(self, source: RecordSource, *, fresh: Callable[[int], bytes] = secret_bytes) -> None:
        self._source, self.fresh = source, fresh
        self.read: dict[Place, int] = {}  # by place, the revision
        self.written: dict[Place, bytes | None] = {}  # None: it is erased
        self.files: dict[tuple[int, str], bytes] = {}  # to be written before the records that name them
        self._bodies: dict[Place, bytes | None] = {}

    def get(
        self, kind: type[_Record], number: int = 0, *, step: int = 0, part: int = 0, who: str = ""
    ) -> _Record | None:
        place = Place(kind.kind, number, step, part, who)
        if place in self.written:
            body = self.written[place]
        else:
            if place not in self.read:
                found = self._source.standing(place)
                self.read[place], self._bodies[place] = found.revision, found.body
            body = self._bodies[place]
        return None if body is None else kind.from_bytes(body, Limits(None, 0, len(body), longest=len(body)))

    def put(self, record: Message, number: int = 0, *, step: int = 0, part: int = 0, who: str = "") -> None:
        """One that was not read before must not be there yet."""
        self.written[Place(record.kind, number, step, part, who)] = record.to_bytes()

    def erase(self, kind: type[Message], number: int = 0, *, step: int = 0, part: int = 0) -> None:
        if self.get(kind, number, step=step, part=part) is not None:
            self.written[Place(kind.kind, number, step, part)] = None

    def keep(self, number: int, data: bytes) -> str:
        """A long value of a round; the name that a record has of it."""
        name = hashlib.sha256(data).hexdigest()
        self.files[number, name] = data
        return name

    def file(self, number: int, name: str) -> bytes:
        kept = self.files.get((number, name))
        return self._source.file(number, name) if kept is None else kept


class AnsweringSide(Protocol):
    """CSP's half of a profile's protocols, as whoever keeps its records sees it."""

    def answer(self, records: Look, request: bytes) -> Outcome: ...


@dataclass
class MemoryRecords:
    """Records and answers that last as long as the process, kept as a store keeps them."""

    fresh: Callable[[int], bytes] = field(default=secret_bytes, repr=False)
    records: dict[Place, Standing] = field(default_factory=dict, repr=False)
    files: dict[tuple[int, str], bytes] = field(default_factory=dict, repr=False)
    answers: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def standing(self, place: Place) -> Standing:
        return self.records.get(place, Standing())

    def file(self, number: int, name: str) -> bytes:
        return self.files[number, name]

    def copy(self) -> "MemoryRecords":
        """As they stand, without the answers."""
        return MemoryRecords(self.fresh, dict(self.records), dict(self.files))

    def answer(self, side: AnsweringSide, request: bytes) -> bytes:
        if request in self.answers:
            return self.answers[request]
        outcome = None
        while outcome is None:
            look = Look(self, fresh=self.fresh)
            outcome = side.answer(look, request)
            self.set(look)
        if isinstance(outcome, CrowdFLError):
            raise outcome
        self.answers[request] = outcome
        return outcome

    def set(self, look: Look) -> None:
        require_as_read(look, lambda place: self.standing(place).revision)
        self.files |= look.files
        self.records |= revised(look)


def require_as_read(look: Look, revision: Callable[[Place], int]) -> None:
    """Every record that was read stands as it did, and what is new is not there."""
    for place in look.read.keys() | look.written.keys():
        if revision(place) != look.read.get(place, 0):
            raise Overtaken("another process has answered meanwhile")


def revised(look: Look) -> Mapping[Place, Standing]:
    """What is set, with its next revision."""
    return {place: Standing(look.read.get(place, 0) + 1, body) for place, body in look.written.items()}
