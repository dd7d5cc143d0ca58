"""The roles' stores in SQL. One class serves every role; `roles.ports` says what each method promises."""

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy import delete, func, select

from crowdfl.errors import (
    AlreadyCounted,
    Conflict,
    CrowdFLError,
    Forbidden,
    InvitationRefused,
    NotReady,
    Overtaken,
    RoundNotOpen,
    TaskFull,
    UnknownParticipant,
    UnknownTask,
)
from crowdfl.protocols.profile import Identity, SpRecord
from crowdfl.protocols.records import Look, Place, Standing, require_as_read, revised
from crowdfl.roles.csp_records import STEPS
from crowdfl.roles.records import (
    ClockNotes,
    Round,
    RoundState,
    StoredParticipant,
    StoredTask,
    TaskStatus,
    Upload,
    UploadContext,
    UsedInvitation,
    replaced,
)
from crowdfl.storage import tables as t
from crowdfl.storage.sql_money import MoneyTables
from crowdfl.storage.sql_reminders import ReminderTables
from crowdfl.storage.sql_tasks import Row, tombstone_of
from crowdfl.storage.statements import (
    ADD_UPLOADS,
    ANSWER_CONTEXT,
    GONE_UPLOADS,
    NEWCOMERS,
    PARTS,
    PEOPLE,
    ROUND,
    SP_RECORD,
    STATUS,
    TURNOUT,
    UPLOAD,
    UPLOADS_BY_ROUND,
    add,
    add_new,
    alike,
    change,
    counting,
    find,
    joining,
    leasing,
    named,
    of_round,
    put,
    put_once,
    remove,
    standing,
)

_LONGEST_LEASE = 3600.0  # seconds
_ALL = 2**31 - 1
_BLOBS, _GUARD = 1, 2  # whose identity


class SqlStore(MoneyTables, ReminderTables):
    """A role's durable state."""

    # Participants.

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None:
        identity = participant.identity
        row = {"task": task, **vars(participant), **vars(identity), "limit": limit}
        del row["identity"], row["position"]
        with self._write() as c:
            known = self._person(c, task, identity.who)
            if known is not None:
                self._come_back(c, task, known, participant)
                return
            for old in self._require_next(c, task, participant):
                with self._recounted(c, task, old):
                    change(c, t.participants, {"left": True, "replaced_by": identity.who}, task=task, who=old)
                self._tell("participant replaced", task=task, who=old)
            if c.execute(joining(c.dialect.name), row).rowcount != 1:
                raise TaskFull(f"all {limit} places of this task are taken")
            self._count(c, t.tasks, {"active": not participant.left, "taken": 1, "joined": 1}, task=task)
            self._tell("participant joined", task=task, who=identity.who)

    def _come_back(self, c: sa.Connection, task: str, known: StoredParticipant, again: StoredParticipant) -> None:
        who = known.identity.who
        if (known.identity, known.identity.place, known.device) != (again.identity, again.identity.place, again.device):
            raise Conflict(f"{who} is enrolled with other keys, or by another invitation")
        if known.replaced_by is not None:
            raise replaced(who)
        if known.left and not again.left:  # who has left may come back
            self._set_person(c, task, who, left=False)
            self._tell("participant joined", task=task, who=who)

    def _require_next(self, c: sa.Connection, task: str, newcomer: StoredParticipant) -> list[str]:
        """The first keys of an invitation stand, and so does the newest device of a place. Who has the place until now."""
        p = t.participants.c
        rows = find(c, [p.who, p.device, p.replaced_by], task=task, place=newcomer.identity.place).all()
        if any(row.device == newcomer.device for row in rows):
            raise Conflict("somebody has joined with this invitation before, and the first keys stand: ask for another")
        if any(row.device > newcomer.device for row in rows):
            raise replaced(newcomer.identity.who)
        return [row.who for row in rows if row.replaced_by is None]

    def devices(self, task: str, place: str) -> list[str]:
        with self._read() as c:
            return list(find(c, [t.participants.c.who], task=task, place=place).scalars())

    def participants(self, task: str, since: int = 0, most: int = _ALL) -> list[StoredParticipant]:
        with self._read() as c:
            asked = {"this_task": task, "since": since, "most": most}
            return [_participant(row) for row in c.execute(NEWCOMERS, asked)]

    def participant(self, task: str, who: str) -> StoredParticipant:
        with self._read() as c:
            found = self._person(c, task, who)
        if found is None:
            raise _unknown(who)
        return found

    def turnout(self, task: str, number: int) -> tuple[int, int]:
        with self._read() as c:
            found = c.execute(TURNOUT, {"this_task": task, "this_round": number}).first()
        return (0, 0) if found is None else (found.uploads, found.missing)

    def leave(self, task: str, who: str) -> None:
        with self._write() as c:
            self._set_person(c, task, who, left=True)
            self._tell("participant left", task=task, who=who)

    def withdraw(self, task: str, who: str, now: float) -> None:
        with self._write() as c:
            person = self._person(c, task, who)
            if person is not None and person.withdrawn_at is None:
                self._set_person(c, task, who, left=True, withdrawn_at=now)
                self._tell("participant withdrew", task=task, who=who)

    def _person(self, c: sa.Connection, task: str, who: str) -> StoredParticipant | None:
        row = find(c, PEOPLE, task=task, who=who).first()
        return None if row is None else _participant(row)

    def _set_person(self, c: sa.Connection, task: str, who: str, **values: bool | float) -> None:
        with self._recounted(c, task, who):
            if not change(c, t.participants, values, task=task, who=who):
                raise _unknown(who)

    @contextlib.contextmanager
    def _recounted(self, c: sa.Connection, task: str, who: str) -> Iterator[None]:
        """Whatever is changed about somebody, the counts of the task and its rounds follow."""
        before = self._counts_of(c, task, who)
        yield
        after = self._counts_of(c, task, who)
        for place, counts in after.items():
            more = {name: count - before[place][name] for name, count in counts.items()}
            if any(more.values()):
                of_round = {"number": place} if place else {}
                self._count(c, t.rounds if place else t.tasks, more, task=task, **of_round)

    def _counts_of(self, c: sa.Connection, task: str, who: str) -> dict[int, dict[str, int]]:
        """What somebody adds to the counts of the task (0) and of each round."""
        person = find(c, [t.participants.c.left, t.participants.c.replaced_by], task=task, who=who).first()
        here = person is not None and not person.left
        found = {0: {"active": int(here), "taken": int(person is not None and person.replaced_by is None)}}
        for number, sent, drawn in c.execute(PARTS, {"this_task": task, "who": who}):
            counts = {"uploads": sent, "present": sent and here, "drawn": drawn, "members": drawn and here}
            found[number] = {name: int(bool(one)) for name, one in counts.items()}
        return found

    def _count(self, c: sa.Connection, table: sa.Table, more: Mapping[str, int], **key: object) -> None:
        named = {f"more_{name}": int(count) for name, count in more.items()}
        c.execute(counting(table, tuple(more), tuple(key)), named | {f"key_{name}": one for name, one in key.items()})

    # Rounds, uploads, SP's protocol records, replies.

    def status(self, task: str) -> TaskStatus:
        with self._read() as c:
            rows = c.execute(STATUS, {"this_task": task}).all()
        if not rows:
            raise UnknownTask(f"there is no task {task} here")
        about = rows[0]
        rounds = [(of_round(row), row) for row in rows]
        return TaskStatus(
            state=about.state,
            ended_at=about.ended_at,
            end=tombstone_of(about),
            epoch=about.epoch,
            dropped=about.dropped,
            active=about.active,
            places_taken=about.taken,
            ready_at=about.ready_at,
            claims_extended=about.claims_extended,
            rounds=[(self._round(task, one), row.uploads, row.drawn) for one, row in rounds if one],
        )

    def set_round(self, task: str, known: Round | None, changed: Round) -> None:
        """The transaction holds the writers' lock: what is read here is still true when it is written."""
        number = changed.number
        with self._write() as c:
            row = find(c, ROUND, task=task, number=number).first()
            if (None if row is None else self._round(task, row._asdict())) != known:
                raise Conflict(f"round {number} is not as it was read: another process has gone on with it")
            if known is None:
                add(c, t.rounds, task=task, **vars(changed))
            else:
                change(c, t.rounds, vars(changed), task=task, number=number)
            if known is None or known.state is not changed.state:
                self._tell(f"round {changed.state}", task=task, number=number)
            elif changed.extended and not known.extended:
                self._tell("round extended", task=task, number=number)

    def rounds(self, task: str) -> list[Round]:
        with self._read() as c:
            found = [self._round(task, row._asdict()) for row in find(c, ROUND, task=task)]
        return sorted(found, key=lambda one: one.number)

    def round(self, task: str, number: int) -> Round:
        with self._read() as c:
            row = find(c, ROUND, task=task, number=number).first()
        if row is None:
            raise NotReady(f"round {number} has not opened yet")
        return self._round(task, row._asdict())

    def _round(self, task: str, values: Mapping[str, Any]) -> Round:
        with self.reading(task, f"round {values['number']}"):
            return Round(**{**values, "state": RoundState(values["state"])})

    def upload(self, task: str, number: int, who: str) -> Upload | None:
        with self._read() as c:
            row = find(c, UPLOAD, task=task, number=number, who=who).first()
            return None if row is None else Upload(*row)

    def uploads(self, task: str, number: int) -> list[Upload]:
        with self._read() as c:
            return [Upload(*row) for row in find(c, UPLOAD, task=task, number=number)]

    def uploads_after(self, task: str, number: int, position: int, most: int) -> list[tuple[int, Upload]]:
        u = t.uploads.c
        wanted = select(*UPLOAD, u.position).where(u.task == task, u.number == number, u.position > position)
        with self._read() as c:
            rows = c.execute(wanted.order_by(u.position).limit(most))
            return [(row.position, Upload(row.who, row.digest, row.late)) for row in rows]

    def last_uploads(self, task: str, number: int, most: int) -> list[Upload]:
        u = t.uploads.c
        wanted = select(*UPLOAD).where(u.task == task, u.number == number).order_by(u.position.desc())
        with self._read() as c:
            return [Upload(*row) for row in c.execute(wanted.limit(most))]

    def upload_counts(self, task: str) -> dict[int, int]:
        with self._read() as c:
            return {int(number): int(count) for number, count in c.execute(UPLOADS_BY_ROUND, {"this_task": task})}

    def acknowledge(
        self,
        task: str,
        number: int,
        uploads: Sequence[Upload],
        most: float = math.inf,
        states: Collection[RoundState] = (RoundState.OPEN,),
    ) -> list[bool | CrowdFLError]:
        asked = {"this_task": task, "this_round": number}
        asked |= named("who", [upload.who for upload in uploads])
        asked |= named("digest", [upload.digest for upload in uploads])
        with self._write() as c:
            round_ = find(c, [t.rounds.c.state, t.rounds.c.uploads], task=task, number=number).first()
            known = c.execute(alike(len(uploads)), asked).all()
            own = {who: digest for in_round, who, digest in known if in_round == number}
            left = {who for in_round, who, _ in known if in_round == 0}
            is_open, room = (False, 0.0) if round_ is None else (round_.state in states, most - round_.uploads)
            outcomes = _judged(number, is_open, room, uploads, own, {digest for *_, digest in known}, left)
            pairs = zip(uploads, outcomes, strict=True)
            new = [{"task": task, "number": number, **vars(upload)} for upload, outcome in pairs if outcome is True]
            if new:  # of people who have not left
                c.execute(ADD_UPLOADS, new)
                self._count(c, t.rounds, {"uploads": len(new), "present": len(new)}, task=task, number=number)
            return outcomes

    def upload_context(self, task: str, number: int, people: Sequence[str]) -> UploadContext:
        with self._read() as c:
            asked = {"this_task": task, "this_round": number, **named("who", people)}
            rows = c.execute(standing(len(people)), asked).all()
        if not rows:
            raise UnknownTask(f"there is no task {task} here")
        found = of_round(rows[0])
        enrolled = [row for row in rows if row.who is not None]
        return UploadContext(
            state=rows[0].state,
            round=None if found is None else self._round(task, found),
            enrolled=frozenset(row.who for row in enrolled),
            left=frozenset(row.who for row in enrolled if row.left),
            uploads={row.who: Upload(row.who, row.digest, row.late) for row in enrolled if row.digest is not None},
            drawn=frozenset(row.who for row in enrolled if row.drawn),
        )

    def draw(self, task: str, number: int, people: Sequence[str]) -> None:
        """Of people who have not left."""
        with self._write() as c:
            new = sum(add_new(c, t.drawn, task=task, number=number, who=who) for who in people)
            self._count(c, t.rounds, {"drawn": new, "members": new}, task=task, number=number)
            s = t.subscriptions.c
            told = {"opened": number - 1, "closing": number - 1}
            late = (s.task == task) & (s.opened == number) & s.who.in_(people)  # drawn after the others were told
            c.execute(sa.update(t.subscriptions).where(late).values(told))

    def places_drawn(self, task: str, number: int) -> int:
        with self._read() as c:
            return int(find(c, [t.rounds.c.drawn], task=task, number=number).scalar() or 0)

    def drawn(self, task: str, number: int) -> frozenset[str]:
        with self._read() as c:
            return frozenset(find(c, [t.drawn.c.who], task=task, number=number).scalars())

    def drop_uploads(self, task: str, number: int, uploads: Sequence[Upload]) -> None:
        with self._write() as c:
            for upload in uploads:
                with self._recounted(c, task, upload.who):
                    dropped = remove(c, t.uploads, task=task, number=number, who=upload.who, digest=upload.digest)
                if dropped:
                    add(c, t.dropped_uploads, task=task, number=number, who=upload.who, digest=upload.digest)
                    more = sa.update(t.tasks).where(t.tasks.c.task == task)
                    c.execute(more.values(dropped=t.tasks.c.dropped + 1))

    def dropped_uploads(self, task: str) -> dict[int, list[str]]:
        found = defaultdict[int, list[str]](list)
        with self._read() as c:
            for number, who in find(c, [t.dropped_uploads.c.number, t.dropped_uploads.c.who], task=task):
                found[number].append(who)
        return dict(found)

    def gone_uploads(self, task: str) -> list[tuple[int, str, str]]:
        with self._read() as c:
            return [(number, who, digest) for number, who, digest in c.execute(GONE_UPLOADS, {"this_task": task})]

    def sp_record(self, task: str, number: int) -> SpRecord:
        with self._read() as c:
            found = {
                at: bytes(record) for at, record in c.execute(SP_RECORD, {"this_task": task, "this_round": number})
            }
            return SpRecord(found.get(0, b""), found.get(number, b""))

    def set_sp_record(self, task: str, number: int, known: SpRecord, changed: SpRecord) -> None:
        with self._write() as c:
            if self.sp_record(task, number) != known:
                raise Conflict(
                    f"another process goes on with round {number}: what this one has drawn for it is not sent"
                )
            rows = {0: changed.task, number: changed.round}
            put(c, t.sp_records, [{"task": task, "number": at, "record": row} for at, row in rows.items() if row])

    def erase_seeds(self, task: str, number: int | None = None) -> None:
        of_round = {} if number is None else {"number": number}
        with self._write() as c:
            remove(c, t.sp_records, task=task, **of_round)
        self._overwrite_log()

    def seed_counts(self) -> dict[str, int]:
        with self._read() as c:
            return _counts(c, t.sp_records)

    def replies(self, task: str, number: int) -> dict[str, bytes]:
        with self._read() as c:
            rows = find(c, [t.replies.c.request, t.replies.c.digest], task=task, number=number)
            return {request: bytes(digest) for request, digest in rows}

    def use_reply(self, task: str, number: int, request: str, digest: bytes) -> bytes:
        with self._write() as c:
            return bytes(put_once(c, t.replies, "digest", digest, task=task, number=number, request=request))

    def forget_replies(self, task: str, number: int) -> None:
        with self._write() as c:
            remove(c, t.replies, task=task, number=number)

    # The store itself, leases and the clock.

    def identity(self, new: Callable[[], str]) -> str:
        """A name that no other store has; `new` makes one for a store that has none."""
        return self._known_name(_BLOBS, new)

    def guard_identity(self, new: Callable[[], str]) -> str:
        return self._known_name(_GUARD, new)

    def change_guard(self, name: str) -> None:
        with self._write() as c:
            put(c, t.identity, [{"position": _GUARD, "name": name}])

    def _known_name(self, position: int, new: Callable[[], str]) -> str:
        with self._read() as c:
            known = find(c, [t.identity.c.name], position=position).scalar()
        if known is not None:
            return str(known)
        with self._write() as c:
            return str(put_once(c, t.identity, "name", new(), position=position))

    def lease(self, task: str, owner: str, now: float, seconds: float) -> bool:
        """A lease that reaches much further than any was made before the clock was set back: it keeps nobody waiting."""
        wanted = {"task": task, "owner": owner, "until": now + seconds}
        times = {"now": now, "far": now + max(_LONGEST_LEASE, 2 * seconds)}
        with self._read() as c:  # whoever is not due waits for no writer, and keeps none waiting
            held = find(c, [t.leases.c.owner, t.leases.c.until], task=task).first()
        if held is not None and held.owner != owner and now < held.until <= times["far"]:
            return False
        with self._write() as c:
            return bool(c.execute(leasing(c.dialect.name), wanted | times).rowcount == 1)

    def release(self, task: str, owner: str, until: float | None = None) -> None:
        with self._write() as c:
            if until is None:
                remove(c, t.leases, task=task, owner=owner)
            else:
                change(c, t.leases, {"until": until}, task=task, owner=owner)

    def seize(self, task: str, owner: str, now: float, seconds: float) -> None:
        with self._write() as c:
            put(c, t.leases, [{"task": task, "owner": owner, "until": now + seconds}])

    def clock_notes(self) -> ClockNotes:
        with self._read() as c:
            row = find(c, [t.clock.c[field.name] for field in fields(ClockNotes)]).first()
        return ClockNotes() if row is None else ClockNotes(*row)

    def note_clock(
        self, *, seen: float | None = None, confirmed: float | None = None, in_doubt: bool | None = None
    ) -> None:
        given = {"seen": seen, "confirmed": confirmed, "in_doubt": in_doubt}
        values = {name: value for name, value in given.items() if value is not None}
        with self._write() as c:
            if not change(c, t.clock, values):
                add(c, t.clock, **{"position": 1, "in_doubt": False} | values)

    # The console's.

    def put_session(self, cookie: str, token: str, now: float, most: int) -> None:
        """One more; of more than `most`, those that were unused longest end."""
        with self._write() as c:
            add(c, t.sessions, cookie=cookie, token=token, began=now, used=now)
            found = c.execute(sa.select(t.sessions.c.cookie).order_by(t.sessions.c.used.desc()).offset(most))
            for old in found.scalars().all():
                remove(c, t.sessions, cookie=old)

    def session(self, cookie: str) -> tuple[str, float, float] | None:
        """Of whose token, since when, and when it was last used."""
        with self._read() as c:
            row = find(c, [t.sessions.c.token, t.sessions.c.began, t.sessions.c.used], cookie=cookie).first()
        return None if row is None else tuple(row)

    def use_session(self, cookie: str, now: float) -> None:
        with self._write() as c:
            change(c, t.sessions, {"used": now}, cookie=cookie)

    def end_session(self, cookie: str) -> None:
        with self._write() as c:
            remove(c, t.sessions, cookie=cookie)

    # KGC's.

    def use_invitation(self, task: str, used: UsedInvitation, certificate: str) -> None:
        with self._write() as c:
            rows = find(c, [t.invitations.c.device, t.invitations.c.who], task=task, number=used.number).all()
            if any(row.device > used.device for row in rows):
                raise InvitationRefused("another device has taken this one's place in the task")
            if any(row.device == used.device and row.who != used.who for row in rows):
                raise InvitationRefused("this invitation was used by someone else; ask the requester for another")
            if used.device > 1 and not rows:
                raise InvitationRefused(
                    "nobody has joined with the invitation that this one replaces: join with that one, or ask for another"
                )
            add_new(c, t.invitations, task=task, certificate=certificate, **vars(used))
            self._tell("participant certified", task=task, who=used.who)

    def used_invitations(self, task: str) -> list[UsedInvitation]:
        with self._read() as c:
            i = t.invitations.c
            return [UsedInvitation(*row) for row in find(c, [i.number, i.device, i.who], task=task)]

    def certified(self, task: str, name: str) -> str | None:
        i = t.invitations.c
        with self._read() as c:
            number = find(c, [i.number], task=task, who=name).scalar() or name
            rows = find(c, [i.device, i.certificate], task=task, number=number).all()
        return max(rows, key=lambda row: row.device).certificate if rows else None

    # CSP's.

    def answer_context(self, task: str, request: str) -> tuple[StoredTask | None, int, str | None]:
        with self._read() as c:
            row = c.execute(ANSWER_CONTEXT, {"this_task": task, "request": request}).first()
        return (None, 0, None) if row is None else (self._read_task(row), row.joined, row.blob)

    def answered(self, task: str, request: str) -> str | None:
        with self._read() as c:
            found: str | None = find(c, [t.answers.c.blob], task=task, request=request).scalar()
            return found

    def record(self, task: str, place: Place) -> Standing:
        with self._read() as c:
            row = find(c, [t.records.c.revision, t.records.c.body], task=task, **vars(place)).first()
        return Standing() if row is None else Standing(row.revision, None if row.body is None else bytes(row.body))

    def set_records(self, task: str, look: Look, request: str, blob: str | None) -> None:
        """Writers come one after the other: what is compared here is what is written over."""
        with self._write() as c:
            if find(c, [t.answers.c.blob], task=task, request=request).first() is not None:
                raise Overtaken("this request was answered meanwhile")
            require_as_read(look, lambda place: find(c, [t.records.c.revision], task=task, **vars(place)).scalar() or 0)
            new = [{"task": task, **vars(place), **vars(standing)} for place, standing in revised(look).items()]
            if new:
                put(c, t.records, new)
            if blob is not None:
                add(c, t.answers, task=task, request=request, blob=blob)
                self._tell("request answered", task=task, digest=request[:16])

    def recorded_rounds(self, task: str) -> list[int]:
        with self._read() as c:
            return sorted(set(find(c, [t.records.c.number], task=task).scalars()) - {0})

    def erase_answers(self, task: str) -> None:
        with self._write() as c:
            remove(c, t.answers, task=task)
            remove(c, t.records, task=task)
        self._overwrite_log()

    def erase_steps(self, task: str, look: Look, kinds: Collection[int]) -> None:
        with self._write() as c:
            require_as_read(look, lambda place: find(c, [t.records.c.revision], task=task, **vars(place)).scalar() or 0)
            c.execute(delete(t.records).where(t.records.c.task == task, t.records.c.kind.not_in(kinds)))
            new = [{"task": task, **vars(place), **vars(standing)} for place, standing in revised(look).items()]
            if new:
                put(c, t.records, new)
            steps = t.answers.c.blob.startswith(f"{task}/{STEPS}/")
            c.execute(delete(t.answers).where(t.answers.c.task == task, steps))
        self._overwrite_log()

    def answer_counts(self) -> dict[str, Counter[str]]:
        found = defaultdict[str, Counter[str]](Counter)
        with self._read() as c:
            for kind, table in (("answers", t.answers), ("records", t.records)):
                for task, count in _counts(c, table).items():
                    found[task][kind] = count
        return dict(found)


_OF_IDENTITY = [field.name for field in fields(Identity)]


def _participant(row: Row) -> StoredParticipant:
    values = row._asdict()
    identity = Identity(**{name: values.pop(name) for name in _OF_IDENTITY})
    return StoredParticipant(identity, **values)


def _unknown(who: str) -> UnknownParticipant:
    return UnknownParticipant(f"nobody called {who} is enrolled in this task")


def _judged(
    number: int,
    is_open: bool,
    room: float,
    uploads: Sequence[Upload],
    own: Mapping[str, str],
    digests: Iterable[str],
    left: Collection[str],
) -> list[bool | CrowdFLError]:
    """For each upload to a round: True if it is new, False if it is in already, or why it is refused.

    `own` has the digests in this round by participant, `digests` those of the whole task, as far as `uploads` names them;
    `left` who has left meanwhile, and `room` says how many new ones the round takes.
    """
    mine = dict(own)
    seen = set(digests)
    outcomes = list[bool | CrowdFLError]()
    for upload in uploads:
        known = mine.get(upload.who)
        outcome: bool | CrowdFLError = True
        if known == upload.digest:
            outcome = False
        elif not is_open and upload.digest not in seen:
            outcome = RoundNotOpen(f"round {number} has closed: come back for the next round")
        elif upload.who in left and upload.digest not in seen:
            outcome = Forbidden(f"{upload.who} has left this task")
        elif known is not None:
            outcome = AlreadyCounted(f"{upload.who} has an upload in round {number} already, with other contents")
        elif upload.digest in seen:
            outcome = AlreadyCounted("the same bytes were uploaded to this task before: encrypt the update again")
        elif len(mine) - len(own) >= room:
            outcome = RoundNotOpen(f"round {number} has all the uploads that it takes: come back for the next round")
        else:
            mine[upload.who] = upload.digest
            seen.add(upload.digest)
        outcomes.append(outcome)
    return outcomes


def _counts(c: sa.Connection, table: sa.Table) -> dict[str, int]:
    counted = select(table.c.task, func.count().label("rows")).group_by(table.c.task)
    return {row.task: row.rows for row in c.execute(counted)}
