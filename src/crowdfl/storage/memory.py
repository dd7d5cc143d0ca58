"""The roles' ports in memory: for every party in one process, for tests, and for nothing that must survive."""

import io
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import BinaryIO

from crowdfl.errors import (
    Conflict,
    CrowdFLError,
    InvitationRefused,
    NotReady,
    UnknownDeposit,
    UnknownParticipant,
    UnknownTask,
)
from crowdfl.roles.ports import StoredDeposit, StoredParticipant, StoredPayment, StoredTask, Upload, UploadContext
from crowdfl.roles.sp.ledger import Ledger, Movement
from crowdfl.roles.sp.rounds import Round
from crowdfl.storage.blobs import require_blob_name
from crowdfl.storage.rules import admit, is_leased_to_another, judge_uploads, require_text, require_whole


@dataclass
class ManualClock:
    """Time as its owner says."""

    time: float = 0.0

    def now(self) -> float:
        return self.time


class MemoryBlobs:
    """Blobs in a dictionary, under the names that `FileBlobs` takes."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name in blobs:
            require_blob_name(name)
        with self._lock:
            for name, data in blobs.items():
                # As in a file system, a blob is not a folder.
                if self._below(name) or any(str(folder) in self._blobs for folder in PurePosixPath(name).parents):
                    raise Conflict(f"{name} cannot be stored: it is a part of a blob's name, or a part of it is a blob")
                if self._blobs.setdefault(name, data) != data:
                    raise Conflict(f"{name} exists already, with other contents")
                self._written.setdefault(name, time.time())

    def get(self, name: str) -> bytes:
        if not self.has(name):
            raise NotReady(f"{name} does not exist (yet)")
        return self._blobs[name]

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.get(name))

    def has(self, name: str) -> bool:
        return require_blob_name(name) in self._blobs

    def delete(self, name: str) -> None:
        self._blobs.pop(require_blob_name(name), None)
        self._written.pop(name, None)

    def clear(self, folder: str) -> None:
        with self._lock:
            for name in self._below(require_blob_name(folder)):
                del self._blobs[name], self._written[name]

    def names(self) -> Iterator[str]:
        return iter(sorted(self._blobs))

    def listing(self) -> dict[str, float]:
        return dict(self._written)

    def remove_unfinished(self, before: float) -> int:
        """A dictionary holds nothing that is half written."""
        del before
        return 0

    def _below(self, folder: str) -> list[str]:
        return [name for name in self._blobs if name.startswith(f"{folder}/")]


@dataclass
class _TaskRecord:
    """What a role knows of one task. A record that was committed is never altered: changes are made to a copy."""

    papers: StoredTask | None = None
    people: dict[str, StoredParticipant] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    uploads: dict[int, dict[str, Upload]] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)
    seeds: dict[tuple[int, str], bytes] = field(default_factory=dict)
    movements: list[Movement] = field(default_factory=list)
    deposits: dict[str, StoredDeposit] = field(default_factory=dict)
    payments: dict[str, StoredPayment] = field(default_factory=dict)
    memory: dict[str, bytes] = field(default_factory=dict)
    lease: tuple[str, float] | None = None
    invitations: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "_TaskRecord":
        return _TaskRecord(*map(copy, vars(self).values()))


class MemoryStore:
    """SP's, CSP's and KGC's store, as `SqlStore` keeps it in a database; `roles.ports` says what each method promises.

    Threads may share it: one writes at a time, and who reads outside `transaction` waits for nobody.
    """

    def __init__(self) -> None:
        self._committed: dict[str, _TaskRecord] = {}
        self._writers = threading.RLock()
        self._local = threading.local()  # the records as this thread's open transaction sees them

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._writers:
            outer: dict[str, _TaskRecord] | None = getattr(self._local, "records", None)
            self._local.records = dict(self._records)
            try:
                yield
            except BaseException:
                self._local.records = outer
                raise
            if outer is None:  # the records of an inner transaction are the outer one's from now on
                self._committed, self._local.records = self._records, None

    @property
    def _records(self) -> dict[str, _TaskRecord]:
        own: dict[str, _TaskRecord] | None = getattr(self._local, "records", None)
        return self._committed if own is None else own

    def _record(self, task: str) -> _TaskRecord:
        return self._records.get(require_text(task)) or _TaskRecord()

    def _records_of(self, task: str | None) -> list[_TaskRecord]:
        return list(self._records.values()) if task is None else [self._record(task)]

    @contextmanager
    def _changing(self, task: str) -> Iterator[_TaskRecord]:
        """A copy of the record, which takes its place unless something is raised."""
        with self._writers:
            changed = self._record(task).copy()
            yield changed
            self._records[task] = changed

    def add_task(self, task: StoredTask) -> None:
        with self._changing(task.task) as record:
            known = record.papers = record.papers or task
            if (known.definition, known.appointment) != (task.definition, task.appointment):
                raise Conflict(f"task {task.task} exists already, with another definition or appointment")

    def task(self, task: str) -> StoredTask:
        found = self._record(task).papers
        if found is None:
            raise UnknownTask(f"there is no task {task} here")
        return found

    def tasks(self) -> list[StoredTask]:
        return [record.papers for _, record in sorted(self._records.items()) if record.papers is not None]

    def set_state(self, task: str, state: str, ended_at: float | None = None) -> None:
        with self._changing(task) as record:
            known = self.task(task)
            record.papers = replace(known, state=state, ended_at=known.ended_at if ended_at is None else ended_at)

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None:
        with self._changing(task) as record:
            people, who = record.people, require_text(participant.identity.who)
            people[who] = admit(people.get(who), participant, len(people), limit)

    def participants(self, task: str, since: int = 0) -> list[StoredParticipant]:
        return list(self._record(task).people.values())[since:]

    def participant(self, task: str, who: str) -> StoredParticipant:
        found = self._record(task).people.get(require_text(who))
        if found is None:
            raise UnknownParticipant(f"nobody called {who} is enrolled in this task")
        return found

    def signing_keys(self, task: str, since: int) -> dict[str, bytes]:
        return {one.identity.who: one.identity.signing for one in self.participants(task, since)}

    def turnout(self, task: str, number: int) -> tuple[int, int]:
        record = self._record(task)
        uploads = record.uploads.get(number, {})
        missing = [who for who, one in record.people.items() if not one.left and who not in uploads]
        return len(uploads), len(missing)

    def leave(self, task: str, who: str) -> None:
        with self._changing(task) as record:
            record.people[who] = replace(self.participant(task, who), left=True)

    def put_round(self, task: str, round_: Round) -> None:
        with self._changing(task) as record:
            record.rounds[require_whole(round_.number)] = round_

    def rounds(self, task: str) -> list[Round]:
        return [round_ for _, round_ in sorted(self._record(task).rounds.items())]

    def round(self, task: str, number: int) -> Round:
        found = self._record(task).rounds.get(require_whole(number))
        if found is None:
            raise NotReady(f"round {number} has not opened yet")
        return found

    def acknowledge(self, task: str, number: int, uploads: Sequence[Upload]) -> list[bool | CrowdFLError]:
        with self._changing(task) as record:
            state = record.rounds[number].state if number in record.rounds else None
            known = record.uploads.get(number, {})
            own = {upload.who: known[upload.who].digest for upload in uploads if upload.who in known}
            outcomes = judge_uploads(
                number, state, uploads, own, record.digests.intersection(u.digest for u in uploads)
            )
            new = [upload for upload, outcome in zip(uploads, outcomes, strict=True) if outcome is True]
            record.uploads[number] = known | {upload.who: upload for upload in new}
            record.digests.update(upload.digest for upload in new)
            return outcomes

    def upload(self, task: str, number: int, who: str) -> Upload | None:
        return self._record(task).uploads.get(require_whole(number), {}).get(who)

    def uploads(self, task: str, number: int) -> list[Upload]:
        return list(self._record(task).uploads.get(require_whole(number), {}).values())

    def last_uploads(self, task: str, number: int, most: int) -> list[Upload]:
        return self.uploads(task, number)[::-1][:most]

    def upload_counts(self, task: str) -> dict[int, int]:
        return {number: len(found) for number, found in self._record(task).uploads.items() if found}

    def upload_context(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
        record, state = self._record(task), self.task(task).state
        enrolled = frozenset(people) & record.people.keys()
        left = frozenset(who for who in enrolled if record.people[who].left)
        uploads = {who: one for who, one in record.uploads.get(number, {}).items() if who in enrolled}
        return UploadContext(state, record.rounds.get(number), enrolled, left, uploads)

    def drop_upload(self, task: str, number: int, who: str) -> None:
        with self._changing(task) as record:
            known = dict(record.uploads.get(require_whole(number), {}))
            dropped = known.pop(who, None)
            if dropped is not None:
                record.uploads[number] = known
                record.digests.discard(dropped.digest)

    def put_seed(self, task: str, number: int, purpose: str, state: bytes) -> None:
        with self._changing(task) as record:
            if record.seeds.setdefault((number, purpose), state) != state:
                raise Conflict(f"a mask seed for {purpose} of round {number} is stored already")

    def seeds(self, task: str, number: int) -> dict[str, bytes]:
        return {purpose: state for (place, purpose), state in self._record(task).seeds.items() if place == number}

    def erase_seeds(self, task: str, number: int | None = None) -> None:
        with self._changing(task) as record:
            for place in [place for place in record.seeds if number in (None, place[0])]:
                del record.seeds[place]

    def seed_counts(self) -> dict[str, int]:
        return {task: len(record.seeds) for task, record in self._records.items() if record.seeds}

    def post(self, task: str, movement: Movement) -> bool:
        with self._changing(task) as record:
            ledger = Ledger(record.movements)
            new = ledger.post(movement)
            record.movements = ledger.movements
            return new

    def movements(self, task: str) -> list[Movement]:
        return list(self._record(task).movements)

    def add_deposit(self, deposit: StoredDeposit) -> None:
        with self._changing(deposit.task) as record:
            if require_text(deposit.name) in record.deposits:
                raise Conflict(f"deposit {deposit.name!r} is stored already")
            record.deposits[deposit.name] = deposit

    def deposit(self, task: str, name: str) -> StoredDeposit:
        found = self._record(task).deposits.get(name)
        if found is None:
            raise UnknownDeposit(f"task {task} has no deposit called {name!r}")
        return found

    def deposits(self, task: str | None = None) -> list[StoredDeposit]:
        return [deposit for record in self._records_of(task) for deposit in record.deposits.values()]

    def decide_deposit(self, deposit: StoredDeposit) -> None:
        with self._changing(deposit.task) as record:
            known = self.deposit(deposit.task, deposit.name)
            record.deposits[deposit.name] = replace(known, state=deposit.state, decided_at=deposit.decided_at)

    def add_payment(self, payment: StoredPayment) -> None:
        with self._changing(payment.task) as record:
            if require_text(payment.who) in record.payments:
                raise Conflict(f"a payment to {payment.who} is stored already")
            record.payments[payment.who] = payment

    def payment(self, task: str, who: str) -> StoredPayment | None:
        return self._record(task).payments.get(who)

    def payments(self, task: str | None = None, states: Sequence[str] | None = None) -> list[StoredPayment]:
        found = [payment for record in self._records_of(task) for payment in record.payments.values()]
        return [payment for payment in found if states is None or payment.state in states]

    def change_payment(self, known: StoredPayment, changed: StoredPayment) -> bool:
        with self._changing(known.task) as record:
            if record.payments.get(known.who) != known:
                return False
            record.payments[known.who] = changed
            return True

    def memory(self, task: str) -> MutableMapping[str, bytes]:
        return _TaskMemory(self, task)

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        with self._changing(task) as record:
            if is_leased_to_another(record.lease, owner, now, seconds):
                return False
            record.lease = owner, now + seconds
            return True

    def release(self, task: str, owner: str) -> None:
        with self._changing(task) as record:
            if record.lease is not None and record.lease[0] == owner:
                record.lease = None

    def use_invitation(self, task: str, number: str, who: str) -> None:
        with self._changing(task) as record:
            if record.invitations.setdefault(require_text(number), who) != who:
                raise InvitationRefused("this invitation was used by someone else; ask the requester for another")

    def answered(self, task: str, request: str) -> str | None:
        return self._record(task).answers.get(request)

    def put_answer(self, task: str, request: str, blob: str) -> None:
        with self._changing(task) as record:
            if record.answers.setdefault(require_text(request), blob) != blob:
                raise Conflict("this request was answered by another process")

    def erase_answers(self, task: str, keep: Collection[str]) -> None:
        with self._changing(task) as record:
            record.answers.clear()
            record.memory = {name: value for name, value in record.memory.items() if name in keep}

    def answer_counts(self, keep: Collection[str]) -> dict[str, Counter[str]]:
        found = {}
        for task, record in self._records.items():
            others = sum(name not in keep for name in record.memory)
            found[task] = +Counter({"answers": len(record.answers), "memory": others})
        return {task: counts for task, counts in found.items() if counts}


@dataclass(frozen=True, eq=False)
class _TaskMemory(MutableMapping[str, bytes]):
    """What a protocol side remembers."""

    store: MemoryStore
    task: str

    def __getitem__(self, name: str) -> bytes:
        return self.store._record(self.task).memory[name]

    def __setitem__(self, name: str, value: bytes) -> None:
        with self.store._changing(self.task) as record:
            record.memory[name] = value

    def __delitem__(self, name: str) -> None:
        with self.store._changing(self.task) as record:
            del record.memory[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.store._record(self.task).memory)

    def __len__(self) -> int:
        return len(self.store._record(self.task).memory)
