"""The end of a task: who says so, what stays of it, and the sweep that erases the rest.

A role marks a task as ended, durably, before it erases anything: from then on nothing of it is computed, and the task can never
be made again. Erasing can be repeated, and the sweep does so for as long as it finds something. SP knows by its own books that
a task is over (`roles.sp.ends`); KGC and CSP by a document that SP signs, or, when SP is silent, by the task's longest life.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol, Self

from crowdfl.documents.signed import Definition, EndReason, TaskEnd
from crowdfl.errors import CrowdFLError, DocumentError, Forbidden, TaskEnded, UnknownTask
from crowdfl.roles.ports import Clock, StoredTask, TaskStore
from crowdfl.settings import TaskSettings
from crowdfl.text import printable

Held = dict[str, Counter[str]]
"""By task: how many things of each kind a role holds."""

OVER = "ended"  # the state of an ended task on KGC and CSP
END, FIRST_SEEN, SIGHTINGS = "end", "first seen", "past lifetime"  # what is remembered of a task
SOLE = "sole holder"  # of CSP's share: KGC has destroyed its copy
REMEMBERED = (END, FIRST_SEEN, SIGHTINGS, SOLE)  # stays when a task is erased
KEY_SHARES = "key shares"
LONGEST_REASON = 500  # characters that everyone who knows the task can read
DAY = 86400.0
MARGIN = 90 * DAY
_WEEK = 7 * DAY
_CONFIRMED = 24  # sightings, an hour apart: a clock that is wrong for a while erases nothing
_APART = 3000.0  # seconds at least between two that count, whichever process saw them
_PATIENCE = DAY  # that SP has with an absent CSP in each round


@dataclass(frozen=True)
class Tombstone:
    """What stays of how a task ended: a tombstone."""

    why: EndReason
    by: str  # SP, the requester, the operator, the task's lifetime
    reason: str = ""  # in words, for everyone
    document: str = ""  # SP's, where it was SP who said so

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, store: TaskStore, task: str) -> "Tombstone | None":
        found = store.memory(task).get(END)
        return None if found is None else cls(**json.loads(found))

    def words(self) -> str:
        said = f": {printable(self.reason, LONGEST_REASON)}" if self.reason else ""
        return f"{self.why} by {self.by}{said}"


def longest_course(settings: TaskSettings) -> float:
    """Seconds that the rounds of a task can take: each extended once, with its grace, and with a CSP that is away."""
    return settings.rounds * (2 * settings.window + settings.grace + _PATIENCE)


def require_not_ended(store: TaskStore, task: str) -> None:
    """Of a task that is not known here, nothing is required."""
    try:
        stored = store.task(task)
    except UnknownTask:
        return
    if stored.state == OVER:
        raise ended(store, task)


def ended(store: TaskStore, task: str) -> TaskEnded:
    how = Tombstone.of(store, task)
    words = f" ({how.words()})" if how is not None else ""
    return TaskEnded(f"task {task} has ended{words}: its keys were erased; define another task to go on")


@dataclass
class Lifetimes:
    """When a task is past its life: counted from when this role first saw it, and confirmed by sightings an hour apart."""

    store: TaskStore
    clock: Clock
    margin: float = MARGIN

    def until(self, stored: StoredTask, *, claims: bool) -> float:
        """With `claims`, until nobody can claim any more and SP has had a week to say so."""
        definition = Definition.open(stored.definition)
        life = longest_course(definition.settings) + self.margin
        return float(self._first_seen(stored.task)) + life + (definition.claim_window + _WEEK if claims else 0.0)

    def is_past(self, stored: StoredTask, *, claims: bool) -> bool:
        return self.clock.now() > self.until(stored, claims=claims)

    def confirm(self, stored: StoredTask, *, claims: bool) -> bool:
        """Count one sighting; whether there were enough of them."""
        memory = self.store.memory(stored.task)
        memory.setdefault(FIRST_SEEN, self._first_seen(stored.task))
        if not self.is_past(stored, claims=claims):
            memory.pop(SIGHTINGS, None)
            return False
        before, last = map(float, memory.get(SIGHTINGS, b"0 -inf").split())
        if abs(self.clock.now() - last) < _APART:
            return False
        memory[SIGHTINGS] = f"{before + 1} {self.clock.now()!r}".encode()
        return before + 1 >= _CONFIRMED

    def _first_seen(self, task: str) -> bytes:
        return self.store.memory(task).get(FIRST_SEEN) or repr(self.clock.now()).encode()


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
            if self.store.task(task).state != OVER:
                known = Tombstone.of(self.store, task)  # CSP's operator may have said why
                reason = ending.reason or (known.reason if known is not None else "")
                self.store.memory(task)[END] = replace(ending, reason=reason).encode()
                self.store.set_state(task, OVER, self.clock.now())
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
