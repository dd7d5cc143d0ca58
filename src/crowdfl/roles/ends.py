"""The end of a task: who says so, what stays of it, and the sweep that erases the rest.

A role marks a task as ended, durably, before it erases anything: from then on nothing of it is computed, and the task can never
be made again. Erasing can be repeated, and the sweep does so for as long as it finds something. SP knows by its own books that
a task is over (`roles.sp.ends`); KGC and CSP by a document that SP signs, or, when SP is silent, by the task's longest life.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import CrowdFLError, DocumentError, Forbidden, TaskEnded, UnknownTask
from crowdfl.roles.ports import Clock, TaskStore
from crowdfl.roles.records import StoredTask, Tombstone
from crowdfl.settings import TaskSettings

Held = dict[str, Counter[str]]
"""By task: how many things of each kind a role holds."""

OVER = "ended"  # the state of an ended task on KGC and CSP
KEY_SHARES = "key shares"
DAY = 86400.0
MARGIN = 90 * DAY
_WEEK = 7 * DAY
_CONFIRMED = 24  # sightings, an hour apart: a clock that is wrong for a while erases nothing
_APART = 3000.0  # seconds at least between two that count, whichever process saw them
_PATIENCE = DAY  # that SP has with an absent CSP in each round


def longest_course(settings: TaskSettings) -> float:
    """Seconds that the rounds of a task can take: each extended once, with its grace, and with a CSP that is away."""
    return settings.rounds * (2 * settings.window + settings.grace + _PATIENCE)


def require_not_ended(stored: StoredTask) -> None:
    if stored.state == OVER:
        raise ended(stored)


def ended(stored: StoredTask) -> TaskEnded:
    words = f" ({stored.end.words()})" if stored.end is not None else ""
    return TaskEnded(f"task {stored.task} has ended{words}: its keys were erased; define another task to go on")


@dataclass
class Lifetimes:
    """When a task is past its life: counted from when this role first saw it, and confirmed by sightings an hour apart."""

    store: TaskStore
    clock: Clock
    margin: float = MARGIN

    def until(self, stored: StoredTask, *, claims: bool) -> float:
        """With `claims`, until nobody can claim any more and SP has had a week to say so."""
        definition = stored.opened
        life = longest_course(definition.settings) + self.margin
        return self._first_seen(stored) + life + (definition.claim_window + _WEEK if claims else 0.0)

    def is_past(self, stored: StoredTask, *, claims: bool) -> bool:
        return self.clock.now() > self.until(stored, claims=claims)

    def confirm(self, stored: StoredTask, *, claims: bool) -> bool:
        """Count one sighting; whether there were enough of them."""
        now = self.clock.now()
        if stored.first_seen is None:
            self.store.change_task(stored.task, first_seen=now)
        if not self.is_past(stored, claims=claims):
            if stored.sightings:
                self.store.change_task(stored.task, sightings=0, sighted_at=None)
            return False
        if stored.sighted_at is not None and abs(now - stored.sighted_at) < _APART:
            return False
        self.store.change_task(stored.task, sightings=stored.sightings + 1, sighted_at=now)
        return stored.sightings + 1 >= _CONFIRMED

    def _first_seen(self, stored: StoredTask) -> float:
        return self.clock.now() if stored.first_seen is None else stored.first_seen


class Troubles:
    """What fails for one task keeps no other waiting: the first failure is raised at the end."""

    def __init__(self) -> None:
        self._first: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._first is not None:
            raise self._first

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        try:
            yield
        except (CrowdFLError, OSError) as failure:
            self._first = self._first or failure


class Holder(Protocol):
    """KGC or CSP, as far as it holds secrets of tasks."""

    @property
    def store(self) -> TaskStore: ...
    def held(self) -> Held: ...  # of every task, known or not
    def written(self) -> dict[str, float]: ...  # by task: when the last of its files was, by the machine's clock
    def erase(self, task: str) -> None: ...  # all that is held of it; idempotent
    def forget_unknown(self, task: str) -> None: ...  # the same of a task that the store does not know
    def drop(self, task: str) -> None: ...  # what this process has of it in memory
    def remove_unfinished(self, before: float) -> None: ...  # what a crash left of writes


@dataclass
class TaskEnds:
    """How KGC and CSP hear that a task is over, and what they do if nobody tells them."""

    holder: Holder
    clock: Clock
    sp_key: bytes | None = None  # whose word counts; None: nobody's
    margin: float = MARGIN
    _orphans: "Orphans" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._orphans = Orphans(self.holder)

    @property
    def store(self) -> TaskStore:
        return self.holder.store

    @property
    def lifetimes(self) -> Lifetimes:
        return Lifetimes(self.store, self.clock, self.margin)

    def end(self, task: str, document: str) -> None:
        """SP says that the task is over. Final, and idempotent: what it needed is erased when this returns."""
        if self.sp_key is None:
            raise Forbidden("this service does not know SP's key: its operator sets `sp_key` in the settings")
        opened = TaskEnd.open(document, self.sp_key)
        if opened.task != task:
            raise DocumentError("this says the end of another task")
        self.close(task, Tombstone(opened.why, "SP", document=document))

    def close(self, task: str, ending: Tombstone) -> None:
        with self.store.transaction():
            stored = self.store.task(task)
            if stored.state != OVER:
                reason = ending.reason or (stored.end.reason if stored.end is not None else "")  # CSP's operator's
                end = replace(ending, reason=reason)
                self.store.change_task(task, state=OVER, ended_at=self.clock.now(), end=end)
        self.holder.erase(task)

    def sweep(self, machine_time: float, *, counting: bool) -> None:
        """Erase what ended tasks still hold, and tasks past their life. `counting`: an hour has passed since the last one."""
        held = self.holder.held()
        with Troubles() as troubles:
            for stored in self.store.tasks():
                with troubles.kept():
                    self._sweep(stored, held, counting=counting)
            with troubles.kept():
                self.holder.remove_unfinished(machine_time - DAY)
            if counting:
                self._orphans.sweep(held, machine_time)

    def _sweep(self, stored: StoredTask, held: Held, *, counting: bool) -> None:
        if stored.state == OVER:
            self.holder.drop(stored.task)  # another process may have been told
            if held.get(stored.task):
                self.holder.erase(stored.task)
        elif counting and self.lifetimes.confirm(stored, claims=True):
            self.close(stored.task, Tombstone("expired", "the task's lifetime", "SP did not say that it is over"))

    def why_held(self, task: str, counts: Counter[str]) -> str:
        """Why these things of a task are still here, in words."""
        del counts
        try:
            stored = self.store.task(task)
        except UnknownTask:
            return "unknown here"
        if stored.state == OVER:
            return "ended, to be erased"
        return "past its lifetime" if self.lifetimes.is_past(stored, claims=True) else "running"


@dataclass
class Orphans:
    """Files of tasks that the store does not know: left by a creation that never ended, a week ago or longer.

    A store that knows no task at all may be the wrong one, or new: then nothing is an orphan.
    """

    holder: Holder
    _sightings: Counter[str] = field(default_factory=Counter)

    def sweep(self, held: Held, machine_time: float) -> None:
        known, written = {stored.task for stored in self.holder.store.tasks()}, self.holder.written()
        found = [task for task in held if task not in known and written.get(task, machine_time) < machine_time - _WEEK]
        self._sightings = Counter({task: self._sightings[task] + 1 for task in found if known})
        for task, count in self._sightings.items():
            if count >= _CONFIRMED:
                self.holder.forget_unknown(task)
