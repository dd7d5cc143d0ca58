"""The roles' ports in memory: for every party in one process, for tests, and for nothing that must survive."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace

from crowdfl.errors import (
    AlreadyCounted,
    Conflict,
    CrowdFLError,
    InvitationRefused,
    NotReady,
    RoundNotOpen,
    TaskFull,
    UnknownParticipant,
    UnknownTask,
)
from crowdfl.roles.ports import StoredParticipant, StoredTask, Upload, UploadContext
from crowdfl.roles.sp.ledger import Ledger, Movement
from crowdfl.roles.sp.rounds import Round, RoundState

__all__ = ["ManualClock", "MemoryBlobs", "MemoryStore"]


@dataclass
class ManualClock:
    """Time as its owner says."""

    time: float = 0.0

    def now(self) -> float:
        return self.time


class MemoryBlobs:
    """Blobs in a dictionary."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            if self._blobs.setdefault(name, data) != data:
                raise Conflict(f"{name} is there already, with other contents")

    def get(self, name: str) -> bytes:
        if name not in self._blobs:
            raise NotReady(f"{name} is not there (yet)")
        return self._blobs[name]

    def has(self, name: str) -> bool:
        return name in self._blobs

    def delete(self, name: str) -> None:
        self._blobs.pop(name, None)

    def clear(self, folder: str) -> None:
        for name in [name for name in self._blobs if name.startswith(f"{folder}/")]:
            del self._blobs[name]

    def names(self) -> Iterator[str]:
        return iter(sorted(self._blobs))


@dataclass
class _TaskRecord:
    """What a role knows of one task."""

    papers: StoredTask | None = None
    people: dict[str, StoredParticipant] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    uploads: dict[int, dict[str, Upload]] = field(default_factory=lambda: defaultdict(dict))
    digests: set[str] = field(default_factory=set)
    seeds: dict[int, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))
    movements: list[Movement] = field(default_factory=list)
    memory: dict[str, bytes] = field(default_factory=dict)
    lease: tuple[str, float] | None = None
    invitations: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)

    def snapshot(self) -> "_TaskRecord":
        """A copy that later changes leave alone; what the containers hold is immutable."""
        copied = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                setattr(copied, name, copy(value))
        copied.uploads = defaultdict(dict, {number: dict(those) for number, those in self.uploads.items()})
        copied.seeds = defaultdict(dict, {number: dict(those) for number, those in self.seeds.items()})
        return copied


class MemoryStore:
    """SP's, CSP's and KGC's store, as `SqlStore` keeps it in a database; threads may share it."""

    def __init__(self) -> None:
        self._tasks: defaultdict[str, _TaskRecord] = defaultdict(_TaskRecord)
        self._lock = threading.RLock()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            before = defaultdict(_TaskRecord, {task: record.snapshot() for task, record in self._tasks.items()})
            try:
                yield
            except BaseException:
                self._tasks = before
                raise

    def add_task(self, task: StoredTask) -> None:
        with self._lock:
            known = self._tasks[task.task].papers
            if known is None:
                self._tasks[task.task].papers = task
            elif (known.definition, known.appointment) != (task.definition, task.appointment):
                raise Conflict(f"task {task.task} is there already, with other papers")

    def task(self, task: str) -> StoredTask:
        found = self._tasks[task].papers if task in self._tasks else None
        if found is None:
            raise UnknownTask(f"there is no task {task} here")
        return found

    def tasks(self) -> list[StoredTask]:
        with self._lock:
            return [record.papers for _, record in sorted(self._tasks.items()) if record.papers is not None]

    def set_state(self, task: str, state: str, ended_at: float | None = None) -> None:
        with self._lock:
            stored = self.task(task)
            ended = stored.ended_at if ended_at is None else ended_at
            self._tasks[task].papers = replace(stored, state=state, ended_at=ended)

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None:
        with self._lock:
            people, who = self._tasks[task].people, participant.identity.who
            known = people.get(who)
            if known is None and len(people) >= limit:
                raise TaskFull(f"all {limit} places of this task are taken")
            if known is not None and known.identity != participant.identity:
                raise Conflict(f"{who} is enrolled with other keys")
            people[who] = participant if known is None else replace(known, left=known.left and participant.left)

    def participants(self, task: str, since: int = 0) -> list[StoredParticipant]:
        return list(self._tasks[task].people.values())[since:]

    def participant(self, task: str, who: str) -> StoredParticipant:
        if who not in self._tasks[task].people:
            raise UnknownParticipant(f"nobody called {who} is enrolled in this task")
        return self._tasks[task].people[who]

    def signing_keys(self, task: str, since: int) -> dict[str, bytes]:
        return {one.identity.who: one.identity.signing for one in self.participants(task, since)}

    def turnout(self, task: str, number: int) -> tuple[int, int]:
        with self._lock:
            uploads = self._tasks[task].uploads[number]
            missing = [who for who, one in self._tasks[task].people.items() if not one.left and who not in uploads]
            return len(uploads), len(missing)

    def leave(self, task: str, who: str) -> None:
        with self._lock:
            self._tasks[task].people[who] = replace(self.participant(task, who), left=True)

    def put_round(self, task: str, round_: Round) -> None:
        self._tasks[task].rounds[round_.number] = round_

    def rounds(self, task: str) -> list[Round]:
        return [round_ for _, round_ in sorted(self._tasks[task].rounds.items())]

    def round(self, task: str, number: int) -> Round:
        if number not in self._tasks[task].rounds:
            raise NotReady(f"round {number} has not opened yet")
        return self._tasks[task].rounds[number]

    def acknowledge(self, task: str, number: int, uploads: Sequence[Upload]) -> list[bool | CrowdFLError]:
        with self._lock:
            round_ = self._tasks[task].rounds.get(number)
            if round_ is None or round_.state is not RoundState.OPEN:
                return [RoundNotOpen(f"round {number} has closed: come back for the next round") for _ in uploads]
            return [self._acknowledge(self._tasks[task], number, upload) for upload in uploads]

    def _acknowledge(self, record: _TaskRecord, number: int, upload: Upload) -> bool | CrowdFLError:
        mine = record.uploads[number].get(upload.who)
        if mine is not None and mine.digest == upload.digest:
            return False
        if mine is not None:
            return AlreadyCounted(f"an upload of {upload.who} is in round {number} already, with other contents")
        if upload.digest in record.digests:
            return AlreadyCounted("these very bytes were uploaded to this task before: encrypt the update afresh")
        record.uploads[number][upload.who] = upload
        record.digests.add(upload.digest)
        return True

    def upload(self, task: str, number: int, who: str) -> Upload | None:
        return self._tasks[task].uploads[number].get(who)

    def uploads(self, task: str, number: int) -> list[Upload]:
        return list(self._tasks[task].uploads[number].values())

    def upload_context(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
        with self._lock:
            state, record = self.task(task).state, self._tasks[task]
            enrolled = frozenset(people) & frozenset(record.people)
            left = frozenset(who for who in enrolled if record.people[who].left)
            uploads = {who: one for who, one in record.uploads[number].items() if who in enrolled}
            return UploadContext(state, record.rounds.get(number), enrolled, left, uploads)

    def put_seed(self, task: str, number: int, purpose: str, state: bytes) -> None:
        if self._tasks[task].seeds[number].setdefault(purpose, state) != state:
            raise Conflict(f"a mask seed for {purpose} of round {number} is kept already")

    def seeds(self, task: str, number: int) -> dict[str, bytes]:
        return dict(self._tasks[task].seeds[number])

    def post(self, task: str, movement: Movement) -> bool:
        with self._lock:
            ledger = Ledger(self._tasks[task].movements)
            new = ledger.post(movement)
            self._tasks[task].movements = ledger.movements
            return new

    def movements(self, task: str) -> list[Movement]:
        return list(self._tasks[task].movements)

    def memory(self, task: str) -> MutableMapping[str, bytes]:
        return self._tasks[task].memory

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        with self._lock:
            held = self._tasks[task].lease
            if held is not None and held[0] != owner and held[1] > now:
                return False
            self._tasks[task].lease = owner, now + seconds
            return True

    def release(self, task: str, owner: str) -> None:
        with self._lock:
            held = self._tasks[task].lease
            if held is not None and held[0] == owner:
                self._tasks[task].lease = None

    def use_invitation(self, task: str, number: str, who: str) -> None:
        if self._tasks[task].invitations.setdefault(number, who) != who:
            raise InvitationRefused("this invitation was used by someone else; ask the requester for another")

    def answered(self, task: str, request: str) -> str | None:
        return self._tasks[task].answers.get(request)

    def put_answer(self, task: str, request: str, blob: str) -> None:
        if self._tasks[task].answers.setdefault(request, blob) != blob:
            raise Conflict("this request was answered by another process")
