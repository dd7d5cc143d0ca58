"""The roles' stores in SQL: SQLite (WAL) by default, PostgreSQL by URL. One class serves every role.

Every method is one transaction; inside `transaction` several are. Writers take the writers' lock at once, so that what a
transaction read is still true when it writes; a read outside `transaction` waits for nobody.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    union_all,
    update,
)
from sqlalchemy.engine import Engine

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
from crowdfl.protocols.profile import Identity
from crowdfl.roles.ports import StoredParticipant, StoredTask, Upload, UploadContext
from crowdfl.roles.sp.ledger import Ledger, Movement
from crowdfl.roles.sp.rounds import Round, RoundState
from crowdfl.storage import tables as t
from crowdfl.storage.database import open_engine, reading, writing

__all__ = ["SqlStore"]


def _standing() -> Select[*tuple[Any, ...]]:
    """A row for each participant, or one that names nobody; each with the task and the round."""
    task, p, r, u = t.tasks.c.task, t.participants.c, t.rounds.c, t.uploads.c
    number = bindparam("of_number", type_=r.number.type)
    joined = (
        t.tasks.outerjoin(t.participants, (p.task == task) & p.who.in_(bindparam("of_people", expanding=True)))
        .outerjoin(t.rounds, (r.task == task) & (r.number == number))
        .outerjoin(t.uploads, (u.task == task) & (u.number == number) & (u.who == p.who))
    )
    columns = (t.tasks.c.state, r.opened_at, r.state, r.extended, p.left, p.who, u.digest, u.late)
    return select(*columns).select_from(joined).where(task == bindparam("of_task"))


def _alike() -> CompoundSelect[*tuple[Any, ...]]:
    """What uploads could be confused with: their participants' in the round, or their bytes anywhere in the task."""
    u = t.uploads.c
    found = select(u.number, u.who, u.digest).where(u.task == bindparam("of_task", type_=u.task.type))
    own = found.where(u.number == bindparam("of_number", type_=u.number.type))
    # Two queries in one: joined by an "or", SQLite would look through all uploads of the task.
    return union_all(
        own.where(u.who.in_(bindparam("of_people", expanding=True))),
        found.where(u.digest.in_(bindparam("of_digests", expanding=True))),
    )


def _round_state() -> Select[*tuple[Any, ...]]:
    r = t.rounds.c
    return select(r.state).where(r.task == bindparam("of_task"), r.number == bindparam("of_number"))


_STANDING, _ALIKE, _ROUND_STATE, _ADD_UPLOAD = _standing(), _alike(), _round_state(), insert(t.uploads)


class _Known:
    """The uploads of a task that some new ones of a round could repeat, and the new ones as they are judged."""

    def __init__(self, c: Connection, task: str, number: int, uploads: Sequence[Upload]) -> None:
        self._number = number
        self._by_place: dict[tuple[int, str], str] = {}
        self._digests: set[str] = set()
        wanted = {
            "of_task": task,
            "of_number": number,
            "of_people": [upload.who for upload in uploads],
            "of_digests": [upload.digest for upload in uploads],
        }
        for place, who, digest in c.execute(_ALIKE, wanted):
            self._note(place, who, digest)

    def judge(self, upload: Upload) -> bool | AlreadyCounted:
        """True: new, and known from now on. False: this very upload is in. Or why it is refused."""
        mine = self._by_place.get((self._number, upload.who))
        if mine is not None and mine != upload.digest:
            return AlreadyCounted(f"{upload.who} has an upload in round {self._number} already, with other contents")
        if mine is not None:
            return False
        if upload.digest in self._digests:
            return AlreadyCounted("the same bytes were uploaded to this task before: encrypt the update again")
        self._note(self._number, upload.who, upload.digest)
        return True

    def _note(self, number: int, who: str, digest: str) -> None:
        self._by_place[number, who] = digest
        self._digests.add(digest)


def _let_go(engine: Engine, process: int) -> None:
    """A forked child closes none of its parent's connections: that would drop the parent's locks."""
    engine.dispose(close=os.getpid() == process)


class SqlStore:
    """A role's durable state; `roles.ports` says what each method promises.

    Threads and processes may share one database, each process with a store of its own.
    """

    def __init__(self, url: str) -> None:
        self.engine: Engine = open_engine(url)
        self._local = threading.local()
        self._process = os.getpid()
        # One that nobody closed lets go when it is collected; at the very end the system does that anyway.
        weakref.finalize(self, _let_go, self.engine, self._process).atexit = False

    def create_tables(self) -> None:
        """For tests and temporary stores; `migrations.upgrade` makes the others."""
        with self._write() as c:
            t.metadata.create_all(c)

    def close(self) -> None:
        self.engine.dispose()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Several calls of this thread as one transaction. A nested one is a savepoint of the outer one."""
        open_one = self._open_one()
        if open_one is not None:
            with open_one.begin_nested():
                yield
            return
        with self._write() as connection:
            self._local.connection = connection
            try:
                yield
            finally:
                self._local.connection = None

    @contextlib.contextmanager
    def _write(self) -> Iterator[Connection]:
        open_one = self._open_one()
        if open_one is not None:
            yield open_one
            return
        with writing(self.engine) as connection:
            yield connection

    @contextlib.contextmanager
    def _read(self) -> Iterator[Connection]:
        open_one = self._open_one()
        if open_one is not None:
            yield open_one
            return
        with reading(self.engine) as connection:
            yield connection

    def _open_one(self) -> Connection | None:
        if self._process != os.getpid():  # forked: the parent's connections are not ours to use, nor to close
            self.engine.dispose(close=False)
            self._local, self._process = threading.local(), os.getpid()
        connection: Connection | None = getattr(self._local, "connection", None)
        return connection

    # Tasks.

    def add_task(self, task: StoredTask) -> None:
        """Idempotent for the same definition and appointment, whatever the task's state is by now."""
        with self._write() as c:
            documents = select(t.tasks.c.definition, t.tasks.c.appointment).where(t.tasks.c.task == task.task)
            known = c.execute(documents).first()
            if known is None:
                c.execute(insert(t.tasks).values(**vars(task)))
            elif tuple(known) != (task.definition, task.appointment):
                raise Conflict(f"task {task.task} exists already, with another definition or appointment")

    def task(self, task: str) -> StoredTask:
        with self._read() as c:
            row = c.execute(select(t.tasks).where(t.tasks.c.task == task)).mappings().first()
        if row is None:
            raise UnknownTask(f"there is no task {task} here")
        return StoredTask(**row)

    def tasks(self) -> list[StoredTask]:
        with self._read() as c:
            return [StoredTask(**row) for row in c.execute(select(t.tasks).order_by(t.tasks.c.task)).mappings()]

    def set_state(self, task: str, state: str, ended_at: float | None = None) -> None:
        """Without `ended_at` the time that was set before stays."""
        values: dict[str, Any] = {"state": state} | ({"ended_at": ended_at} if ended_at is not None else {})
        with self._write() as c:
            if c.execute(update(t.tasks).where(t.tasks.c.task == task).values(**values)).rowcount == 0:
                raise UnknownTask(f"there is no task {task} here")

    # Participants.

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None:
        """Idempotent; who has left may come back. `Conflict` if the name is enrolled with other keys."""
        who = participant.identity
        with self._write() as c:
            for known in self._participants(c, task, t.participants.c.who == who.who):
                if known.identity != who:
                    raise Conflict(f"{who.who} is enrolled with other keys")
                if known.left and not participant.left:
                    p = t.participants.c
                    c.execute(update(t.participants).where(p.task == task, p.who == who.who).values(left=False))
                return
            count = c.execute(select(func.count()).where(t.participants.c.task == task)).scalar() or 0
            if count >= limit:
                raise TaskFull(f"all {limit} places of this task are taken")
            c.execute(
                insert(t.participants).values(
                    task=task,
                    who=who.who,
                    signing=who.signing,
                    reading=who.reading,
                    certificate=participant.certificate,
                    left=participant.left,
                )
            )

    def participants(self, task: str, since: int = 0) -> list[StoredParticipant]:
        with self._read() as c:
            return self._participants(c, task, since=since)

    def participant(self, task: str, who: str) -> StoredParticipant:
        with self._read() as c:
            found = self._participants(c, task, t.participants.c.who == who)
        if not found:
            raise UnknownParticipant(f"nobody called {who} is enrolled in this task")
        return found[0]

    def signing_keys(self, task: str, since: int) -> dict[str, bytes]:
        p = t.participants.c
        wanted = select(p.who, p.signing).where(p.task == task).order_by(p.position).offset(since)
        with self._read() as c:
            return {who: bytes(signing) for who, signing in c.execute(wanted)}

    def turnout(self, task: str, number: int) -> tuple[int, int]:
        p, u = t.participants.c, t.uploads.c
        theirs = select(u.who).where(u.task == task, u.number == number)
        with self._read() as c:
            uploaded = c.execute(select(func.count()).select_from(theirs.subquery())).scalar() or 0
            active = (p.task == task, p.left.is_(False), p.who.not_in(theirs))
            missing = c.execute(select(func.count()).select_from(t.participants).where(*active)).scalar() or 0
        return uploaded, missing

    def leave(self, task: str, who: str) -> None:
        p = t.participants.c
        with self._write() as c:
            done = c.execute(update(t.participants).where(p.task == task, p.who == who).values(left=True))
            if done.rowcount == 0:
                raise UnknownParticipant(f"nobody called {who} is enrolled in this task")

    def _participants(
        self, c: Connection, task: str, *which: ColumnElement[bool], since: int = 0
    ) -> list[StoredParticipant]:
        p = t.participants.c
        rows = c.execute(
            select(t.participants).where(p.task == task, *which).order_by(p.position).offset(since)
        ).mappings()
        return [
            StoredParticipant(
                Identity(row["who"], bytes(row["signing"]), bytes(row["reading"])), row["certificate"], row["left"]
            )
            for row in rows
        ]

    # Rounds, uploads, seeds.

    def put_round(self, task: str, round_: Round) -> None:
        r = t.rounds.c
        values = {"opened_at": round_.opened_at, "state": str(round_.state), "extended": round_.extended}
        with self._write() as c:
            done = c.execute(update(t.rounds).where(r.task == task, r.number == round_.number).values(**values))
            if done.rowcount == 0:
                c.execute(insert(t.rounds).values(task=task, number=round_.number, **values))

    def rounds(self, task: str) -> list[Round]:
        with self._read() as c:
            return self._rounds(c, task)

    def round(self, task: str, number: int) -> Round:
        with self._read() as c:
            found = self._rounds(c, task, t.rounds.c.number == number)
        if not found:
            raise NotReady(f"round {number} has not opened yet")
        return found[0]

    def _rounds(self, c: Connection, task: str, *which: ColumnElement[bool]) -> list[Round]:
        rows = c.execute(select(t.rounds).where(t.rounds.c.task == task, *which).order_by(t.rounds.c.number)).mappings()
        return [Round(r["number"], r["opened_at"], RoundState(r["state"]), r["extended"]) for r in rows]

    def uploads(self, task: str, number: int) -> list[Upload]:
        return self._uploads(task, number)

    def acknowledge(self, task: str, number: int, uploads: Sequence[Upload]) -> list[bool | CrowdFLError]:
        with self._write() as c:
            state = c.execute(_ROUND_STATE, {"of_task": task, "of_number": number}).scalar()
            if state != RoundState.OPEN:
                return [RoundNotOpen(f"round {number} has closed: come back for the next round") for _ in uploads]
            known = _Known(c, task, number, uploads)
            outcomes: list[bool | CrowdFLError] = [known.judge(upload) for upload in uploads]
            pairs = zip(uploads, outcomes, strict=True)
            new = [{"task": task, "number": number, **vars(upload)} for upload, outcome in pairs if outcome is True]
            if new:
                c.execute(_ADD_UPLOAD, new)
            return outcomes

    def upload(self, task: str, number: int, who: str) -> Upload | None:
        return next(iter(self._uploads(task, number, t.uploads.c.who == who)), None)

    def upload_context(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
        """One statement, compiled once: every group of uploads needs it."""
        with self._read() as c:
            rows = c.execute(_STANDING, {"of_task": task, "of_number": number, "of_people": people}).all()
        if not rows:
            raise UnknownTask(f"there is no task {task} here")
        state, opened_at, round_state, extended = rows[0][:4]
        round_ = None if round_state is None else Round(number, opened_at, RoundState(round_state), extended)
        enrolled = frozenset(row[5] for row in rows if row[5] is not None)
        left = frozenset(row[5] for row in rows if row[4])
        uploads = {who: Upload(who, digest, late) for *_, who, digest, late in rows if digest is not None}
        return UploadContext(state, round_, enrolled, left, uploads)

    def _uploads(self, task: str, number: int, *which: ColumnElement[bool]) -> list[Upload]:
        u = t.uploads.c
        wanted = (u.task == task, u.number == number, *which)
        with self._read() as c:
            return [
                Upload(*row) for row in c.execute(select(u.who, u.digest, u.late).where(*wanted).order_by(u.position))
            ]

    def put_seed(self, task: str, number: int, purpose: str, state: bytes) -> None:
        """A second process with a seed of its own is refused before it masks anything."""
        s = t.seeds.c
        with self._write() as c:
            same = (s.task == task, s.number == number, s.purpose == purpose)
            known = c.execute(select(s.state).where(*same)).scalar()
            if known is None:
                c.execute(insert(t.seeds).values(task=task, number=number, purpose=purpose, state=state))
            elif bytes(known) != state:
                raise Conflict(f"a mask seed for {purpose} of round {number} is stored already")

    def seeds(self, task: str, number: int) -> dict[str, bytes]:
        s = t.seeds.c
        with self._read() as c:
            rows = c.execute(select(s.purpose, s.state).where(s.task == task, s.number == number))
            return {purpose: bytes(state) for purpose, state in rows}

    # Money.

    def post(self, task: str, movement: Movement) -> bool:
        """Checked against the whole ledger in the same transaction."""
        with self._write() as c:
            ledger = Ledger(self._movements(c, task))
            if not ledger.post(movement):
                return False
            c.execute(insert(t.movements).values(task=task, **vars(movement)))
            return True

    def movements(self, task: str) -> list[Movement]:
        with self._read() as c:
            return self._movements(c, task)

    def _movements(self, c: Connection, task: str) -> list[Movement]:
        m = t.movements.c
        rows = c.execute(select(m.name, m.source, m.target, m.amount).where(m.task == task).order_by(m.position))
        return [Movement(*row) for row in rows]

    # Leases.

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        with self._write() as c:
            row = c.execute(select(t.leases.c.owner, t.leases.c.until).where(t.leases.c.task == task)).first()
            if row is not None and row[0] != owner and row[1] > now:
                return False
            values = {"owner": owner, "until": now + seconds}
            if row is None:
                c.execute(insert(t.leases).values(task=task, **values))
            else:
                c.execute(update(t.leases).where(t.leases.c.task == task).values(**values))
            return True

    def release(self, task: str, owner: str) -> None:
        with self._write() as c:
            c.execute(delete(t.leases).where(t.leases.c.task == task, t.leases.c.owner == owner))

    # KGC's.

    def use_invitation(self, task: str, number: str, who: str) -> None:
        i = t.invitations.c
        with self._write() as c:
            known = c.execute(select(i.who).where(i.task == task, i.number == number)).scalar()
            if known is None:
                c.execute(insert(t.invitations).values(task=task, number=number, who=who))
            elif known != who:
                raise InvitationRefused("this invitation was used by someone else; ask the requester for another")

    # CSP's.

    def answered(self, task: str, request: str) -> str | None:
        a = t.answers.c
        with self._read() as c:
            found: str | None = c.execute(select(a.blob).where(a.task == task, a.request == request)).scalar()
            return found

    def put_answer(self, task: str, request: str, blob: str) -> None:
        a = t.answers.c
        with self._write() as c:
            known = c.execute(select(a.blob).where(a.task == task, a.request == request)).scalar()
            if known is None:
                c.execute(insert(t.answers).values(task=task, request=request, blob=blob))
            elif known != blob:
                raise Conflict("this request was answered by another process")

    def memory(self, task: str) -> MutableMapping[str, bytes]:
        return _Memory(self, task)


class _Memory(MutableMapping[str, bytes]):
    """What a protocol side remembers, one row each."""

    def __init__(self, store: SqlStore, task: str) -> None:
        self._store, self._task = store, task

    def __getitem__(self, name: str) -> bytes:
        m = t.memory.c
        with self._store._read() as c:
            value = c.execute(select(m.value).where(m.task == self._task, m.name == name)).scalar()
        if value is None:
            raise KeyError(name)
        return bytes(value)

    def __setitem__(self, name: str, value: bytes) -> None:
        m = t.memory.c
        with self._store._write() as c:
            done = c.execute(update(t.memory).where(m.task == self._task, m.name == name).values(value=value))
            if done.rowcount == 0:
                c.execute(insert(t.memory).values(task=self._task, name=name, value=value))

    def __delitem__(self, name: str) -> None:
        m = t.memory.c
        with self._store._write() as c:
            if c.execute(delete(t.memory).where(m.task == self._task, m.name == name)).rowcount == 0:
                raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        with self._store._read() as c:
            names = list(c.execute(select(t.memory.c.name).where(t.memory.c.task == self._task)).scalars())
        return iter(names)

    def __len__(self) -> int:
        return sum(1 for _ in self)
