"""What a role holds of a task, erased once the task has ended.

A role marks a task as ended, durably, before it erases anything: from then on nothing of it is computed, and the task can never
be made again. Erasing can be repeated, and the sweep does so for as long as it finds something. SP knows by its own books that
a task is over (`roles.sp.retention`); KGC (`roles.kgc_retention`) and CSP (`roles.csp_retention`) by a document that SP signs,
or, when SP is silent, by the last days that its definition names.
"""

import contextlib
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

from crowdfl.codes import Code
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import CrowdFLError, DocumentError, Forbidden, TaskEnded, TaskUnreadable, UnknownTask
from crowdfl.roles.dealt import DEALT_FILES, is_dealt_file
from crowdfl.roles.ports import Blobs, Clock, TaskStore
from crowdfl.roles.records import EndedBy, StoredTask, Tombstone
from crowdfl.settings import DAY

Held = dict[str, Counter[str]]
"""By task: how many things of each kind a role holds."""

OVER = "ended"  # the state of an ended task on KGC and CSP
KEY_SHARES = "key shares"
RESULTS = "results"  # what a round made for its readers: they may stay after a task's end
BUNDLES = ("sp", "csp", "requester", "participant")  # that KGC deals, by whom they are for
SOURCE = "source"  # what KGC makes the files of rounds from, until both servers have theirs
_WEEK = 7 * DAY
_CONFIRMED = 24  # sightings, an hour apart: a clock that is wrong for a while erases nothing
_APART = 3000.0  # seconds at least between two that count, whichever process saw them
_Store = TypeVar("_Store", bound=TaskStore)


class WhyHeld(Code):
    """Why something of a task is still here."""

    UNKNOWN = "unknown", "unknown here"
    UNREADABLE = "unreadable", "cannot be read by this version"
    RUNNING = "running", "running"
    PAST = "past_lifetime", "past its lifetime"
    CLAIMS = "claims_open", "claims open"
    ENDED = "to_be_erased", "ended, to be erased"
    RESULTS = "results", "results, until they are purged"


def require_not_ended(stored: StoredTask) -> None:
    if stored.state == OVER:
        raise ended(stored)


def ended(stored: StoredTask) -> TaskEnded:
    words = f" ({stored.end.words()})" if stored.end is not None else ""
    return TaskEnded(f"task {stored.task} has ended{words}: its keys were erased; define another task to go on")


def secrets_of(counts: Counter[str]) -> Counter[str]:
    """What must not stay after a task's end."""
    return Counter({kind: count for kind, count in counts.items() if count and kind != RESULTS})


def key_shares(bundles: Blobs) -> defaultdict[str, Counter[str]]:
    """How many of each task are in a folder of keys, what was dealt for rounds apart; KGC's has other files beside them."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name in bundles.listing():
        task = _task_of_key(name)
        if task is not None and is_dealt_file(name):
            found[task][DEALT_FILES] += 1
        elif task is not None and name.endswith((*BUNDLES, SOURCE)):
            found[task][KEY_SHARES] += 1
    return found


def _task_of_key(name: str) -> str | None:
    """Of a file in a folder of keys: `TASK.ROLE`."""
    task, dot, _ = name.partition(".")
    return task if dot else None


@dataclass
class Retention(ABC, Generic[_Store]):
    """One role's. A command beside the service uses it too; it has nothing in memory."""

    store: _Store
    bundles: Blobs
    clock: Clock
    forget: Callable[[str], None] = field(default=lambda _task: None, kw_only=True)  # what this process has in memory
    _orphans: Counter[str] = field(default_factory=Counter, init=False, repr=False)  # sightings, by task

    over: ClassVar[str] = OVER  # the state of a task of which nothing secret must stay

    @abstractmethod
    def held(self) -> Held:
        """Of every task, known or not."""

    @abstractmethod
    def erase(self, task: str) -> None:
        """All that must not stay. Idempotent."""

    @abstractmethod
    def forget_unknown(self, task: str) -> None:
        """The same of a task that the store does not know."""

    @abstractmethod
    def _expire(self, stored: StoredTask) -> None:
        """End a task whose last day here is over."""

    def remove_unfinished(self, before: float) -> None:
        """What a crash left of writes."""
        self.bundles.remove_unfinished(before)

    def _blobs_written(self) -> Mapping[str, float]:
        return {}

    def _is_under_way(self, stored: StoredTask) -> bool:
        return stored.state != self.over

    def _tend(self, stored: StoredTask, *, counting: bool) -> None:
        """What else is due for a task that is not over."""

    def _knows_the_time(self) -> bool:
        return True

    def sweep(self, machine_time: float, *, counting: bool) -> None:
        """Erase what ended tasks still hold; end those past their last day. `counting`: an hour has passed since the last one.

        While the clock is in doubt, nothing is old.
        """
        held, sure = self.held(), self._knows_the_time()
        failures: list[Exception] = []  # what fails for one task keeps no other waiting
        for stored in self.store.tasks():
            with _kept(failures):
                if stored.state == self.over:
                    self.erase_if_held(stored.task, held)
                    continue
                self._tend(stored, counting=counting and sure)
                if counting and sure and self._is_under_way(stored) and self._confirm_past(stored):
                    self._expire(stored)
        if sure:
            with _kept(failures):
                self.remove_unfinished(machine_time - DAY)
        if counting and sure:
            self._sweep_orphans(held, machine_time)
        if failures:
            raise failures[0]

    def erase_if_held(self, task: str, held: Held) -> None:
        self.forget(task)  # another process may have been told
        if secrets_of(held.get(task, Counter())):
            self.erase(task)

    def _sweep_orphans(self, held: Held, machine_time: float) -> None:
        """Files of tasks that the store does not know: left by a creation that never ended, a week ago or longer.

        A store that knows no task at all may be the wrong one, or new: then nothing is an orphan.
        """
        known, written = {stored.task for stored in self.store.all_tasks()}, self._written()
        found = [task for task in held if task not in known and written.get(task, machine_time) < machine_time - _WEEK]
        self._orphans = Counter({task: self._orphans[task] + 1 for task in found if known})
        for task, count in self._orphans.items():
            if count >= _CONFIRMED:
                self.forget_unknown(task)

    def _written(self) -> dict[str, float]:
        """By task: when the last of its files was, by the machine's clock."""
        found: dict[str, float] = {}
        named = [(_task_of_key(name), when) for name, when in self.bundles.listing().items()]
        for task, when in [*named, *((name.partition("/")[0], when) for name, when in self._blobs_written().items())]:
            if task is not None:
                found[task] = max(when, found.get(task, when))
        return found

    def lives_until(self, stored: StoredTask) -> float:
        """By the definition: until the last day of its rounds."""
        return stored.opened.rounds_until

    def _is_past(self, stored: StoredTask) -> bool:
        return self.clock.now() > self.lives_until(stored)

    def _confirm_past(self, stored: StoredTask) -> bool:
        """Count one sighting, an hour after the last; whether its last day is over, and was seen often enough.

        They are counted from a day before: a task ends on time, and by a clock that has jumped no sooner than a day later.
        """
        now = self.clock.now()
        if now <= self.lives_until(stored) - DAY:
            if stored.sightings:
                self.store.change_task(stored.task, sightings=0, sighted_at=None)
            return False
        seen = stored.sightings
        if stored.sighted_at is None or abs(now - stored.sighted_at) >= _APART:
            seen += 1
            self.store.change_task(stored.task, sightings=seen, sighted_at=now)
        return seen >= _CONFIRMED and self._is_past(stored)

    def why_held(self, task: str, counts: Counter[str]) -> WhyHeld:
        """Why these things of a task are still here."""
        try:
            stored = self.store.task(task)
            if self._is_under_way(stored):
                return WhyHeld.PAST if self._is_past(stored) else WhyHeld.RUNNING
        except UnknownTask:
            return WhyHeld.UNKNOWN
        except TaskUnreadable:
            return WhyHeld.UNREADABLE
        if stored.state != self.over:
            return WhyHeld.CLAIMS
        return WhyHeld.ENDED if secrets_of(counts) else WhyHeld.RESULTS


@contextlib.contextmanager
def _kept(failures: list[Exception]) -> Iterator[None]:
    try:
        yield
    except (CrowdFLError, OSError) as failure:
        failures.append(failure)


@dataclass
class PeerRetention(Retention[_Store]):
    """KGC's or CSP's: how it hears that a task is over, and what it does if nobody says so."""

    sp_key: bytes | None = field(default=None, kw_only=True)  # whose word counts; None: nobody's

    past: ClassVar[str]  # why a task ends by itself

    def end(self, task: str, document: str) -> None:
        """SP says that the task is over. Final, and idempotent: what it needed is erased when this returns."""
        if self.sp_key is None:
            raise Forbidden("this service does not know SP's key: its operator sets `sp_key` in the settings")
        opened = TaskEnd.open(document, self.sp_key)
        if opened.task != task:
            raise DocumentError("this says the end of another task")
        self.close(task, Tombstone(opened.why, EndedBy.SP, document=document))

    def close(self, task: str, ending: Tombstone) -> None:
        with self.store.transaction():
            stored = self.store.task(task)
            if stored.state != OVER:
                reason = ending.reason or (stored.end.reason if stored.end is not None else "")  # CSP's operator's
                end, now = replace(ending, reason=reason), self.clock.now()
                self.store.change_task(task, state=OVER, ended_at=now, end=end, **self._parting(stored))
        self.erase(task)

    def _parting(self, stored: StoredTask) -> Mapping[str, object]:
        """What stays of a task that ends now, and of all that is erased then. The caller holds a transaction."""
        return {}

    def _expire(self, stored: StoredTask) -> None:
        self.close(stored.task, Tombstone("expired", EndedBy.LIFETIME, self.past))
