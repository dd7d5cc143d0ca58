"""Statements of the store, each made once: making one costs more than SQLite needs to execute it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Table, bindparam, func, select

from crowdfl.roles.records import Round, StoredTask, Tombstone, Upload
from crowdfl.storage import tables as t


def find(c: sa.Connection, columns: Sequence[sa.Column[Any]], **key: object) -> sa.CursorResult[*tuple[Any, ...]]:
    """These columns of the rows with this key, in the order they were added where the table knows it."""
    return c.execute(_finding(tuple(columns), tuple(key)), {f"key_{name}": value for name, value in key.items()})


def add(c: sa.Connection, table: Table, **row: object) -> None:
    c.execute(_adding(table), row)


def add_new(c: sa.Connection, table: Table, **row: object) -> bool:
    """False if its key is taken."""
    return bool(c.execute(_adding_new(table, c.dialect.name), row).rowcount == 1)


def put_once(c: sa.Connection, table: Table, column: str, value: object, **key: object) -> Any:  # noqa: ANN401
    """What stands under this key from now on: this value, unless another was there before."""
    return value if add_new(c, table, **{column: value}, **key) else find(c, [table.c[column]], **key).scalar()


def change(c: sa.Connection, table: Table, values: Mapping[str, object], **key: object) -> int:
    """How many rows there were."""
    named = {f"key_{name}": value for name, value in key.items()}
    return int(c.execute(_changing(table, tuple(key)), {**values, **named}).rowcount)


def remove(c: sa.Connection, table: Table, **key: object) -> int:
    """How many rows there were."""
    named = {f"key_{name}": value for name, value in key.items()}
    return int(c.execute(_removing(table, tuple(key)), named).rowcount)


def put(c: sa.Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Add them all, each in place of the one with its key."""
    c.execute(_putting(table, c.dialect.name), rows)


def upsert(table: Table, dialect: str) -> Any:  # noqa: ANN401 -- both databases offer the same
    """An insertion that says what is done where the key is taken, and how many rows that were."""
    new = _insert_of(dialect)(table)
    return new.execution_options(preserve_rowcount=True)


def _insert_of(dialect: str) -> Callable[[Table], Any]:
    """A database's own; the other one's programs are not loaded."""
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert
    from sqlalchemy.dialects import postgresql

    return postgresql.insert


@cache
def _finding(columns: tuple[sa.Column[Any], ...], key: tuple[str, ...]) -> sa.Select[*tuple[Any, ...]]:
    table = columns[0].table
    found = sa.select(*columns).where(*_at(table, key))
    return found.order_by(table.c.position) if "position" in table.c else found


@cache
def _adding(table: Table) -> sa.Insert:
    return sa.insert(table)


@cache
def _adding_new(table: Table, dialect: str) -> Any:  # noqa: ANN401
    return upsert(table, dialect).on_conflict_do_nothing()


@cache
def _changing(table: Table, key: tuple[str, ...]) -> sa.Update:
    return sa.update(table).where(*_at(table, key))


@cache
def _removing(table: Table, key: tuple[str, ...]) -> sa.Delete:
    return sa.delete(table).where(*_at(table, key))


@cache
def _putting(table: Table, dialect: str) -> Any:  # noqa: ANN401
    new = upsert(table, dialect)
    key = [column.name for column in table.primary_key]
    rest = {column.name: new.excluded[column.name] for column in table.c if not column.primary_key}
    return new.on_conflict_do_update(index_elements=key, set_=rest)


def of_round(row: sa.Row[*tuple[Any, ...]]) -> dict[str, Any] | None:
    """The round in a row of something else, if there is one."""
    found = {column.name: getattr(row, f"round_{column.name}") for column in ROUND}
    return None if found["number"] is None else found


def _at(table: sa.FromClause, key: tuple[str, ...]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == sa.bindparam(f"key_{name}", type_=table.c[name].type) for name in key]


END = [t.tasks.c[f"end_{field.name}"] for field in fields(Tombstone)]
TASK = [*(t.tasks.c[field.name] for field in fields(StoredTask) if field.name != "end"), *END]
ROUND = [t.rounds.c[field.name] for field in fields(Round)]
_BESIDE = [column.label(f"round_{column.name}") for column in ROUND]  # in a row of something else
_THIS_TASK, _THIS_ROUND = (
    bindparam("this_task", type_=t.tasks.c.task.type),
    bindparam("this_round", type_=t.rounds.c.number.type),
)


@cache  # by how many: a list of any length would be written into the statement each time
def standing(count: int) -> sa.Select[*tuple[Any, ...]]:
    """A row for each participant, or one that names nobody; each with the task and the round."""
    task = t.tasks.c.task
    p = t.participants.c
    r = t.rounds.c
    u = t.uploads.c
    d = t.drawn.c
    joined = (
        t.tasks.outerjoin(t.participants, (p.task == task) & p.who.in_(_several("who", count)))
        .outerjoin(t.rounds, (r.task == task) & (r.number == _THIS_ROUND))
        .outerjoin(t.uploads, (u.task == task) & (u.number == _THIS_ROUND) & (u.who == p.who))
        .outerjoin(t.drawn, (d.task == task) & (d.number == _THIS_ROUND) & (d.who == p.who))
    )
    columns = (t.tasks.c.state, p.who, p.left, u.digest, u.late, d.who.is_not(None).label("drawn"), *_BESIDE)
    return select(*columns).select_from(joined).where(task == _THIS_TASK)


@cache
def alike(count: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    """What uploads could be confused with: their participants' in the round, or their bytes anywhere in the task.

    Under round 0, which has no uploads: their participants who have left.
    """
    u, p = t.uploads.c, t.participants.c
    found = select(u.number, u.who, u.digest).where(u.task == _THIS_TASK)
    own = found.where(u.number == _THIS_ROUND)
    # Two queries in one: joined by an "or", SQLite would look through all uploads of the task.
    left = select(sa.literal(0), p.who, sa.literal("")).where(p.task == _THIS_TASK, p.left.is_(True))
    return sa.union_all(
        own.where(u.who.in_(_several("who", count))),
        found.where(u.digest.in_(_several("digest", count))),
        left.where(p.who.in_(_several("who", count))),
    )


def _several(name: str, count: int) -> list[sa.BindParameter[str]]:
    column = t.uploads.c[name]
    return [bindparam(f"{name}_{place}", type_=column.type) for place in range(count)]


def named(name: str, values: Sequence[str]) -> dict[str, Any]:
    return {f"{name}_{place}": value for place, value in enumerate(values)}


def _turnout() -> sa.Select[*tuple[Any, ...]]:
    task, r = t.tasks.c, t.rounds.c
    joined = t.tasks.outerjoin(t.rounds, (r.task == task.task) & (r.number == _THIS_ROUND))
    members = sa.case((r.drawn > 0, r.members), else_=task.active)
    missing = members - func.coalesce(r.present, 0)
    return (
        select(func.coalesce(r.uploads, 0).label("uploads"), missing.label("missing"))
        .select_from(joined)
        .where(task.task == _THIS_TASK)
    )


_WHO = bindparam("who", type_=t.uploads.c.who.type)


def _parts() -> sa.Select[*tuple[Any, ...]]:
    """In which rounds somebody has an upload, or was drawn."""
    r, u, d = t.rounds.c, t.uploads.c, t.drawn.c
    joined = t.rounds.outerjoin(t.uploads, (u.task == r.task) & (u.number == r.number) & (u.who == _WHO)).outerjoin(
        t.drawn, (d.task == r.task) & (d.number == r.number) & (d.who == _WHO)
    )
    return select(r.number, u.who.is_not(None), d.who.is_not(None)).select_from(joined).where(r.task == _THIS_TASK)


@cache
def counting(table: Table, names: tuple[str, ...], key: tuple[str, ...]) -> sa.Update:
    """These numbers of a row changed by so many."""
    more = {name: table.c[name] + bindparam(f"more_{name}", type_=sa.Integer) for name in names}
    return sa.update(table).where(*_at(table, key)).values(more)


def _status() -> sa.Select[*tuple[Any, ...]]:
    """A row for each round, or one without; each with the task."""
    r = t.rounds.c
    joined = t.tasks.outerjoin(t.rounds, t.rounds.c.task == t.tasks.c.task)
    names = "state", "ended_at", "epoch", "dropped", "ready_at", "claims_extended", "active", "listed", "taken"
    about = (t.tasks.c[name] for name in names)
    columns = (*about, *END, r.uploads, r.drawn, *_BESIDE)
    return select(*columns).select_from(joined).where(t.tasks.c.task == _THIS_TASK).order_by(r.number)


def _gone_uploads() -> sa.Select[*tuple[Any, ...]]:
    """Those dropped of whoever has withdrawn or was replaced: they never come again."""
    p, d = t.participants.c, t.dropped_uploads.c
    gone = select(p.who).where(p.task == _THIS_TASK, p.withdrawn_at.is_not(None) | p.replaced_by.is_not(None))
    return select(d.number, d.who, d.digest).where(d.task == _THIS_TASK, d.who.in_(gone)).order_by(d.number)


def _uploads_by_round() -> sa.Select[*tuple[Any, ...]]:
    u = t.uploads.c
    return select(u.number, func.count()).where(u.task == _THIS_TASK).group_by(u.number)


@cache
def joining(dialect: str) -> Any:  # noqa: ANN401
    """A place for somebody new, if there is one."""
    columns = [column for column in t.participants.c if column.name != "position"]
    limit, most = (bindparam(name, type_=sa.Integer) for name in ("limit", "most"))
    task = t.tasks.c
    free = (task.task == bindparam("task", type_=task.task.type), task.taken < limit, task.joined < most)
    row = select(*(bindparam(column.name, type_=column.type) for column in columns)).where(*free)
    new = upsert(t.participants, dialect).from_select([column.name for column in columns], row)
    return new.on_conflict_do_nothing()


@cache
def leasing(dialect: str) -> Any:  # noqa: ANN401
    new = upsert(t.leases, dialect)
    held = t.leases.c
    free = (held.until <= bindparam("now", type_=sa.Float(53)), held.until > bindparam("far", type_=sa.Float(53)))
    ours = sa.or_(held.owner == new.excluded.owner, *free)
    changes = {"owner": new.excluded.owner, "until": new.excluded.until}
    return new.on_conflict_do_update(index_elements=["task"], set_=changes, where=ours)


def _answer_context() -> sa.Select[*tuple[Any, ...]]:
    task = t.tasks.c.task
    a = t.answers.c
    request = bindparam("request", type_=t.answers.c.request.type)
    joined = t.tasks.outerjoin(t.answers, (a.task == task) & (a.request == request))
    return select(t.tasks.c.joined, a.blob, *TASK).select_from(joined).where(task == _THIS_TASK)


# Made once, as those of `tables` are.
ANSWER_CONTEXT, STATUS = _answer_context(), _status()
TURNOUT, PARTS, UPLOADS_BY_ROUND, GONE_UPLOADS = _turnout(), _parts(), _uploads_by_round(), _gone_uploads()
ADD_UPLOADS = sa.insert(t.uploads)
ALL_TASKS = select(*TASK).order_by(t.tasks.c.task)
PEOPLE = [column for column in t.participants.c if column.name not in ("position", "task")] + [
    t.participants.c.position
]
SP_RECORD = select(t.sp_records.c.number, t.sp_records.c.record).where(
    t.sp_records.c.task == _THIS_TASK, t.sp_records.c.number.in_([0, _THIS_ROUND])
)
NEWCOMERS = (
    select(*PEOPLE)
    .where(t.participants.c.task == _THIS_TASK, t.participants.c.position > bindparam("since", type_=sa.Integer))
    .order_by(t.participants.c.position)
    .limit(bindparam("most", type_=sa.Integer))
)
UPLOAD = [t.uploads.c[field.name] for field in fields(Upload)]
