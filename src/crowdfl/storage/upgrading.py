"""How a database that is in use comes to the present state: not before the version that will run on it has read all of it.

The migrations and the reading are one transaction. If anything cannot be read nothing of it stays.
"""

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import sqlalchemy as sa

from crowdfl.documents.envelope import Envelope, kind_of
from crowdfl.documents.forms import completed
from crowdfl.errors import CrowdFLError, StoreUnreadable, TaskUnreadable
from crowdfl.protocols.messages import Message
from crowdfl.protocols.registry import PROFILES, profile_named
from crowdfl.storage import migrations
from crowdfl.storage.sql import SqlStore
from crowdfl.storage.tables import MESSAGE, metadata
from crowdfl.version import __version__

_SHOWN = 5  # tasks that an error names


@dataclass(frozen=True)
class Reading:
    """What of a role's database this version can read."""

    revision: str | None  # before: None of an empty database
    tasks: int
    rows: int
    unreadable: Mapping[str, str]  # by task: what of it, and why

    @property
    def newest(self) -> str:
        return migrations.head()

    @property
    def is_outdated(self) -> bool:
        return self.revision not in (None, self.newest)

    def lines(self) -> list[str]:
        return [f"{task}: {why}" for task, why in self.unreadable.items()]


def upgrade(url: str, *, leave_unread: bool = False) -> None:
    """Idempotent. `StoreUnreadable`, and no change, if a task could not be read afterwards; unless such are to be left so."""

    def accept(connection: sa.Connection) -> None:
        unreadable = _read(SqlStore.on(connection))[2]
        if unreadable and not leave_unread:
            refuse(unreadable)

    migrations.upgrade(url, accept)


def refuse(unreadable: Mapping[str, str]) -> NoReturn:
    named = "; ".join(f"{task}: {why}" for task, why in list(unreadable.items())[:_SHOWN])
    raise StoreUnreadable(
        f"CrowdFL {__version__} cannot read {len(unreadable)} of the tasks here, and has changed nothing: {named}. Run the "
        "version that ran before; or let these tasks stand still, with their money: `crowdfl upgrade SETTINGS --leave-unread`"
    )


def look(url: str) -> Reading:
    """What `upgrade` would find; the database stays as it is."""
    found: list[Reading] = []
    revision = migrations.revision_of(url)
    migrations.require_known(revision)
    if revision is None:
        return Reading(None, 0, 0, {})

    def accept(connection: sa.Connection) -> None:
        found.append(Reading(revision, *_read(SqlStore.on(connection))))
        raise _Enough

    if revision == migrations.head():
        with closing(SqlStore(url)) as store:
            return Reading(revision, *_read(store))
    with suppress(_Enough):
        migrations.upgrade(url, accept)
    return found[0]


class _Enough(Exception):
    """It was read, and is to be undone."""


def _read(store: SqlStore) -> tuple[int, int, dict[str, str]]:
    """Tasks, rows, and what of which task cannot be read."""
    for name in PROFILES:
        profile_named(name)  # with the messages that servers keep of it
    known = store.all_tasks()
    unreadable = {one.task: one.why for one in store.unreadable()}
    for task in store.tasks():
        try:
            for look_at in (
                store.rounds,
                store.participants,
                store.deposits,
                store.movements,
                store.payments,
                store.disputes,
            ):
                look_at(task.task)
        except TaskUnreadable as wrong:
            unreadable[task.task] = wrong.why
    rows = 0
    for table in metadata.sorted_tables:
        for row in store.rows(table):
            rows += 1
            for name, value in row.items():
                is_read = isinstance(value, str) or MESSAGE.items() <= table.c[name].info.items()
                if is_read and (why := _why_unreadable(value)) is not None:
                    unreadable.setdefault(str(row.get("task", "of no task")), f"{table.name}.{name}: {why}")
    return len(known), rows, unreadable


def _why_unreadable(value: Any) -> str | None:  # noqa: ANN401 -- whatever a column holds
    """Of documents, whichever column has them, and of messages in columns that say so: what people send sealed is neither."""
    try:
        if isinstance(value, str) and (kind := kind_of(value)) is not None:
            completed(kind, Envelope.parse(value, kind).body())
        if isinstance(value, bytes):
            Message.require_known(value)
    except CrowdFLError as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return None


def plan(reading: Reading) -> str:
    """What an upgrade would do, in words."""
    if not reading.is_outdated:
        return "nothing has to change: start the service"
    does = f"an upgrade writes a backup and brings the database from {reading.revision} to {reading.newest}"
    return does + (". It refuses as long as a task cannot be read" if reading.unreadable else "")
