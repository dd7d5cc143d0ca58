"""The tasks' part of a store, and which of them this version cannot read.

A row that cannot be read, of a task or of anything that is kept of it, is its own task's trouble and no other's.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa

from crowdfl.errors import Conflict, CrowdFLError, TaskUnreadable, UnknownTask
from crowdfl.roles.records import EndedBy, StoredTask, Tombstone, Trouble, UnreadableTask
from crowdfl.storage import tables as t
from crowdfl.storage.database import Database
from crowdfl.storage.statements import ALL_TASKS, TASK, add_new, change, find, put, remove

Row = sa.Row[*tuple[Any, ...]]
_OF_TASK = [field.name for field in fields(StoredTask) if field.name != "end"]
_TROUBLE = [t.troubles.c[field.name] for field in fields(Trouble)]
_BELIEVED = 60.0  # seconds that a row is believed to be unreadable: somebody may mend it


class TaskTables(Database):
    """`tasks` are those that can be read, with their papers; `task` of one with a damaged row is `TaskUnreadable`."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 -- as the database takes them
        super().__init__(*given, **named)
        self._well: dict[str, int] = {}  # by task, what stands for the papers that were read before
        self._damaged: dict[str, tuple[str, float]] = {}  # by task: what of it cannot be read, and since when

    def add_task(self, task: StoredTask) -> None:
        row = {name: value for name, value in vars(task).items() if name != "end"} | _end_columns(task.end)
        with self._write() as c:
            if add_new(c, t.tasks, **row):
                self._tell("task added", task=task.task)
                return
            known = self.task(task.task)
            if (known.definition, known.appointment) != (task.definition, task.appointment):
                raise Conflict(f"task {task.task} exists already, with another definition or appointment")

    def task(self, task: str) -> StoredTask:
        with self._read() as c:
            row = find(c, TASK, task=task).first()
        if row is None:
            raise UnknownTask(f"there is no task {task} here")
        return self._read_task(row)

    def tasks(self) -> list[StoredTask]:
        return [one for one in self.all_tasks() if isinstance(one, StoredTask)]

    def unreadable(self) -> list[UnreadableTask]:
        return [one for one in self.all_tasks() if isinstance(one, UnreadableTask)]

    def change_task(self, task: str, **changes: Any) -> None:  # noqa: ANN401 -- as the columns are
        state = changes.get("state")
        if "end" in changes:
            changes |= _end_columns(changes.pop("end"))
        with self._write() as c:
            before = None if state is None else find(c, [t.tasks.c.state], task=task).scalar()
            if not change(c, t.tasks, changes, task=task):
                raise UnknownTask(f"there is no task {task} here")
            if before != state:
                self._tell(f"task {state}", task=task, before=before)

    def note_trouble(self, trouble: Trouble) -> None:
        """It goes on since it was first noted, whichever process has met it."""
        with self._write() as c:
            known = find(c, [t.troubles.c.since, t.troubles.c.times], task=trouble.task, work=trouble.work).first()
            if known is not None:
                trouble = replace(trouble, since=known.since, times=known.times + 1)
            put(c, t.troubles, [vars(trouble)])

    def forget_trouble(self, task: str, work: str) -> None:
        with self._write() as c:
            remove(c, t.troubles, task=task, work=work)

    def troubles(self, task: str | None = None) -> list[Trouble]:
        with self._read() as c:
            rows = find(c, _TROUBLE) if task is None else find(c, _TROUBLE, task=task)
            return [Trouble(*row) for row in rows]

    def all_tasks(self) -> list[StoredTask | UnreadableTask]:
        with self._read() as c:
            rows = c.execute(ALL_TASKS).all()
        found: list[StoredTask | UnreadableTask] = []
        for row in rows:
            try:
                one = self._read_task(row)
                self._require_papers(one)
                found.append(one)
            except TaskUnreadable:
                found.append(self._unreadable(row))
        return found

    def _read_task(self, row: Row) -> StoredTask:
        with self.reading(row.task, "its row"):
            found = task_of(row)
        if self._is_damaged(row.task):
            raise self._unreadable(row).refusal()
        return found

    def _require_papers(self, found: StoredTask) -> None:
        """They never change, so that they are read once."""
        papers = hash((found.definition, found.claims_extended))
        if self._well.get(found.task) != papers:
            with self.reading(found.task, "its definition"):
                _ = found.claims_until  # opens them
            self._well[found.task] = papers

    def _unreadable(self, row: Row) -> UnreadableTask:
        return UnreadableTask(row.task, row.state, self._damaged[row.task][0], row.steps, row.said)

    def _is_damaged(self, task: str) -> bool:
        known = self._damaged.get(task)
        if known is not None and time.monotonic() - known[1] > _BELIEVED:
            del self._damaged[task]
            return False
        return known is not None

    @contextlib.contextmanager
    def reading(self, task: str, what: str) -> Iterator[None]:
        """What is wrong with it is the task's: `TaskUnreadable`, and it is among the unreadable ones from then on."""
        try:
            yield
        except TaskUnreadable as wrong:
            self._damaged[task] = wrong.why, time.monotonic()
            raise
        except (CrowdFLError, ValueError, TypeError, KeyError) as wrong:
            why = f"{what} cannot be read ({type(wrong).__name__}: {str(wrong)[:200]})"
            self._damaged[task] = why, time.monotonic()
            raise UnreadableTask(task, "", why).refusal() from None


def task_of(row: Row) -> StoredTask:
    return StoredTask(**{name: getattr(row, name) for name in _OF_TASK}, end=tombstone_of(row))


def tombstone_of(row: Row) -> Tombstone | None:
    if row.end_why is None:
        return None
    return Tombstone(row.end_why, EndedBy(row.end_by), row.end_reason, row.end_document)


def _end_columns(end: Tombstone | None) -> dict[str, str | None]:
    return {f"end_{field.name}": None if end is None else getattr(end, field.name) for field in fields(Tombstone)}
