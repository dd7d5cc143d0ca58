"""The roles' stores in SQL: SQLite (WAL) by default, PostgreSQL by URL. One class serves every role.

Every method is one transaction; inside `transaction` several are. Writers take the writers' lock at once, so that what a
transaction read is still true when it writes; a read outside `transaction` waits for nobody.
"""

import contextlib
import os
import threading
import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, delete, func, insert, select, update

from crowdfl.errors import Conflict, CrowdFLError, InvitationRefused, NotReady, UnknownParticipant, UnknownTask
from crowdfl.protocols.profile import Identity
from crowdfl.roles.ports import StoredDeposit, StoredParticipant, StoredPayment, StoredTask, Upload, UploadContext
from crowdfl.roles.sp.ledger import Movement
from crowdfl.roles.sp.rounds import Round, RoundState
from crowdfl.storage import sql_ends as ends
from crowdfl.storage import sql_money as money
from crowdfl.storage import tables as t
from crowdfl.storage.database import open_engine, reading, truncate_log, writing
from crowdfl.storage.rules import admit, is_leased_to_another, judge_uploads


def _standing() -> sa.Select[*tuple[Any, ...]]:
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


def _alike() -> sa.CompoundSelect[*tuple[Any, ...]]:
    """What uploads could be confused with: their participants' in the round, or their bytes anywhere in the task."""
    u = t.uploads.c
    found = select(u.number, u.who, u.digest).where(u.task == bindparam("of_task", type_=u.task.type))
    own = found.where(u.number == bindparam("of_number", type_=u.number.type))
    # Two queries in one: joined by an "or", SQLite would look through all uploads of the task.
    return sa.union_all(
        own.where(u.who.in_(bindparam("of_people", expanding=True))),
        found.where(u.digest.in_(bindparam("of_digests", expanding=True))),
    )


def _round_state() -> sa.Select[*tuple[Any, ...]]:
    r = t.rounds.c
    return select(r.state).where(r.task == bindparam("of_task"), r.number == bindparam("of_number"))


# Compiled once: every group of uploads needs them.
_STANDING, _ALIKE, _ROUND_STATE, _ADD_UPLOAD = _standing(), _alike(), _round_state(), insert(t.uploads)


def _let_go(engine: sa.Engine, process: int) -> None:
    """A forked child closes none of its parent's connections: that would drop the parent's locks."""
    engine.dispose(close=os.getpid() == process)


class SqlStore:
    """A role's durable state; `roles.ports` says what each method promises.

    Threads and processes may share one database, each process with a store of its own.
    """

    def __init__(self, url: str) -> None:
        self.engine: sa.Engine = open_engine(url)
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

    def _write(self) -> contextlib.AbstractContextManager[sa.Connection]:
        open_one = self._open_one()
        return writing(self.engine) if open_one is None else contextlib.nullcontext(open_one)

    def _read(self) -> contextlib.AbstractContextManager[sa.Connection]:
        open_one = self._open_one()
        return reading(self.engine) if open_one is None else contextlib.nullcontext(open_one)

    def _open_one(self) -> sa.Connection | None:
        if self._process != os.getpid():  # forked: the parent's connections are not ours to use, nor to close
            self.engine.dispose(close=False)
            self._local, self._process = threading.local(), os.getpid()
        connection: sa.Connection | None = getattr(self._local, "connection", None)
        return connection

    # Tasks.

    def add_task(self, task: StoredTask) -> None:
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
        p, identity = t.participants.c, participant.identity
        with self._write() as c:
            known = next(iter(self._participants(c, task, p.who == identity.who)), None)
            count = c.execute(select(func.count()).where(p.task == task)).scalar() or 0
            kept = admit(known, participant, count, limit)
            if known is None:
                row = {"task": task, **vars(identity), "certificate": kept.certificate, "left": kept.left}
                c.execute(insert(t.participants).values(**row))
            elif kept != known:
                mine = update(t.participants).where(p.task == task, p.who == identity.who)
                c.execute(mine.values(left=kept.left))

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
        self, c: sa.Connection, task: str, *which: sa.ColumnElement[bool], since: int = 0
    ) -> list[StoredParticipant]:
        p = t.participants.c
        people = select(p.who, p.signing, p.reading, p.certificate, p.left).where(p.task == task, *which)
        rows = c.execute(people.order_by(p.position).offset(since))
        return [StoredParticipant(Identity(*identity), certificate, left) for *identity, certificate, left in rows]

    # Rounds, uploads, seeds.

    def put_round(self, task: str, round_: Round) -> None:
        values = {"opened_at": round_.opened_at, "state": str(round_.state), "extended": round_.extended}
        with self._write() as c:
            _put(c, t.rounds, {"task": task, "number": round_.number}, values)

    def rounds(self, task: str) -> list[Round]:
        with self._read() as c:
            return self._rounds(c, task)

    def round(self, task: str, number: int) -> Round:
        with self._read() as c:
            found = self._rounds(c, task, t.rounds.c.number == number)
        if not found:
            raise NotReady(f"round {number} has not opened yet")
        return found[0]

    def _rounds(self, c: sa.Connection, task: str, *which: sa.ColumnElement[bool]) -> list[Round]:
        rows = c.execute(select(t.rounds).where(t.rounds.c.task == task, *which).order_by(t.rounds.c.number)).mappings()
        return [Round(r["number"], r["opened_at"], RoundState(r["state"]), r["extended"]) for r in rows]

    def uploads(self, task: str, number: int) -> list[Upload]:
        return self._uploads(task, number)

    def last_uploads(self, task: str, number: int, most: int) -> list[Upload]:
        u = t.uploads.c
        wanted = select(u.who, u.digest, u.late).where(u.task == task, u.number == number)
        with self._read() as c:
            return [Upload(*row) for row in c.execute(wanted.order_by(u.position.desc()).limit(most))]

    def upload_counts(self, task: str) -> dict[int, int]:
        u = t.uploads.c
        with self._read() as c:
            rows = c.execute(select(u.number, func.count()).where(u.task == task).group_by(u.number))
            return {int(number): int(count) for number, count in rows}

    def acknowledge(self, task: str, number: int, uploads: Sequence[Upload]) -> list[bool | CrowdFLError]:
        wanted = {
            "of_task": task,
            "of_number": number,
            "of_people": [upload.who for upload in uploads],
            "of_digests": [upload.digest for upload in uploads],
        }
        with self._write() as c:
            state = c.execute(_ROUND_STATE, {"of_task": task, "of_number": number}).scalar()
            known = c.execute(_ALIKE, wanted).all()
            own = {who: digest for place, who, digest in known if place == number}
            outcomes = judge_uploads(number, state, uploads, own, (digest for *_, digest in known))
            pairs = zip(uploads, outcomes, strict=True)
            new = [{"task": task, "number": number, **vars(upload)} for upload, outcome in pairs if outcome is True]
            if new:
                c.execute(_ADD_UPLOAD, new)
            return outcomes

    def upload(self, task: str, number: int, who: str) -> Upload | None:
        return next(iter(self._uploads(task, number, t.uploads.c.who == who)), None)

    def upload_context(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
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

    def _uploads(self, task: str, number: int, *which: sa.ColumnElement[bool]) -> list[Upload]:
        u = t.uploads.c
        wanted = (u.task == task, u.number == number, *which)
        with self._read() as c:
            rows = c.execute(select(u.who, u.digest, u.late).where(*wanted).order_by(u.position))
            return [Upload(*row) for row in rows]

    def drop_upload(self, task: str, number: int, who: str) -> None:
        u = t.uploads.c
        with self._write() as c:
            c.execute(delete(t.uploads).where(u.task == task, u.number == number, u.who == who))

    def put_seed(self, task: str, number: int, purpose: str, state: bytes) -> None:
        """A second process with a seed of its own is refused before it masks anything."""
        refusal = Conflict(f"a mask seed for {purpose} of round {number} is stored already")
        self._put_once(t.seeds, {"task": task, "number": number, "purpose": purpose}, {"state": state}, refusal)

    def seeds(self, task: str, number: int) -> dict[str, bytes]:
        s = t.seeds.c
        with self._read() as c:
            rows = c.execute(select(s.purpose, s.state).where(s.task == task, s.number == number))
            return {purpose: bytes(state) for purpose, state in rows}

    def erase_seeds(self, task: str, number: int | None = None) -> None:
        with self._write() as c:
            ends.erase_seeds(c, task, number)
        self._overwrite_log()

    def seed_counts(self) -> dict[str, int]:
        with self._read() as c:
            return ends.seed_counts(c)

    def _overwrite_log(self) -> None:
        """What was deleted leaves the log of writes too; inside a transaction, whoever commits next does that."""
        if self._open_one() is None:
            truncate_log(self.engine)

    # Money.

    def post(self, task: str, movement: Movement) -> bool:
        with self._write() as c:
            return money.post(c, task, movement)

    def movements(self, task: str) -> list[Movement]:
        with self._read() as c:
            return money.movements(c, task)

    def add_deposit(self, deposit: StoredDeposit) -> None:
        with self._write() as c:
            money.add_deposit(c, deposit)

    def deposit(self, task: str, name: str) -> StoredDeposit:
        with self._read() as c:
            return money.deposit(c, task, name)

    def deposits(self, task: str | None = None) -> list[StoredDeposit]:
        with self._read() as c:
            return money.deposits(c, task)

    def decide_deposit(self, deposit: StoredDeposit) -> None:
        with self._write() as c:
            money.decide_deposit(c, deposit)

    def add_payment(self, payment: StoredPayment) -> None:
        with self._write() as c:
            money.add_payment(c, payment)

    def payment(self, task: str, who: str) -> StoredPayment | None:
        with self._read() as c:
            return next(iter(money.payments(c, task, who=who)), None)

    def payments(self, task: str | None = None, states: Sequence[str] | None = None) -> list[StoredPayment]:
        with self._read() as c:
            return money.payments(c, task, states)

    def change_payment(self, known: StoredPayment, changed: StoredPayment) -> bool:
        with self._write() as c:
            return money.change_payment(c, known, changed)

    # Leases.

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        held = select(t.leases.c.owner, t.leases.c.until).where(t.leases.c.task == task)
        with self._write() as c:
            if is_leased_to_another(c.execute(held).first(), owner, now, seconds):
                return False
            _put(c, t.leases, {"task": task}, {"owner": owner, "until": now + seconds})
            return True

    def release(self, task: str, owner: str) -> None:
        with self._write() as c:
            c.execute(delete(t.leases).where(t.leases.c.task == task, t.leases.c.owner == owner))

    # KGC's.

    def use_invitation(self, task: str, number: str, who: str) -> None:
        refusal = InvitationRefused("this invitation was used by someone else; ask the requester for another")
        self._put_once(t.invitations, {"task": task, "number": number}, {"who": who}, refusal)

    # CSP's.

    def answered(self, task: str, request: str) -> str | None:
        a = t.answers.c
        with self._read() as c:
            found: str | None = c.execute(select(a.blob).where(a.task == task, a.request == request)).scalar()
            return found

    def put_answer(self, task: str, request: str, blob: str) -> None:
        refusal = Conflict("this request was answered by another process")
        self._put_once(t.answers, {"task": task, "request": request}, {"blob": blob}, refusal)

    def erase_answers(self, task: str, keep: Collection[str]) -> None:
        with self._write() as c:
            ends.erase_answers(c, task, keep)
        self._overwrite_log()

    def answer_counts(self, keep: Collection[str]) -> dict[str, Counter[str]]:
        with self._read() as c:
            return ends.answer_counts(c, keep)

    def memory(self, task: str) -> MutableMapping[str, bytes]:
        return _Memory(self, task)

    def _put_once(
        self, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any], refusal: CrowdFLError
    ) -> None:
        """Idempotent for the same values; others are refused."""
        with self._write() as c:
            known = c.execute(select(*(table.c[name] for name in values)).where(*_at(table, key))).first()
            if known is None:
                c.execute(insert(table).values(**key, **values))
            elif tuple(known) != tuple(values.values()):
                raise refusal


def _at(table: sa.Table, key: Mapping[str, Any]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == value for name, value in key.items()]


def _put(c: sa.Connection, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    if c.execute(update(table).where(*_at(table, key)).values(**values)).rowcount == 0:
        c.execute(insert(table).values(**key, **values))


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
        with self._store._write() as c:
            _put(c, t.memory, {"task": self._task, "name": name}, {"value": value})

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
