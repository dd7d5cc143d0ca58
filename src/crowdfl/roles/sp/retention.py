"""What SP holds of a task, on disk and in its database, erased once the task is settled.

Not needed after a task's end: the key share, what was dealt for rounds, what a round left to the next, mask seeds, uploads,
CSP's replies, parts of uploads. What a round made for its readers (averages and rewards, sealed to them) and the initial
weights are results: they stay until the operator purges them, as does, sealed, where people not paid yet are to be paid. Names,
books and payments always stay.

Settling (`settlement`) makes a task's end durable. From then on `tick` erases, and has the others told (`end_notices`), across
restarts; `sweep` finds what a crash left.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from crowdfl.errors import NotReady, TaskUnreadable, UnknownTask
from crowdfl.roles.dealt import DealtFiles, is_dealt_file, round_of
from crowdfl.roles.guard import Guard
from crowdfl.roles.ports import Blobs, SpStore
from crowdfl.roles.records import EndedBy, StoredTask, TaskState, Tombstone
from crowdfl.roles.retention import RESULTS, Held, Retention, key_shares
from crowdfl.roles.sp.core import LedgerPorts
from crowdfl.roles.sp.csp_link import forget_replies
from crowdfl.roles.sp.end_notices import EndNotices
from crowdfl.roles.sp.people import erase_gone
from crowdfl.roles.sp.results import KINDS, is_surplus
from crowdfl.roles.sp.tasks import cancel_task

_KINDS = {"uploads": "uploads", "replies": "replies", "left_over": "left-overs"}  # by the folder of a round


class Parts(Protocol):
    """Uploads that have not arrived whole, as the service keeps them."""

    def places(self) -> list[tuple[str, int]]: ...  # whose, as `key` says, and of which round
    def key(self, task: str, who: str) -> str: ...
    def remove(self, key: str, number: int) -> None: ...
    def sweep(self) -> int: ...  # what nobody has continued for long


class NoParts:
    """Of an SP that takes whole uploads alone."""

    def places(self) -> list[tuple[str, int]]:
        return []

    def key(self, task: str, who: str) -> str:
        return f"{task} {who}"

    def remove(self, key: str, number: int) -> None: ...

    def sweep(self) -> int:
        return 0


@dataclass
class SpRetention(Retention[SpStore]):
    """Without `notices`, as of a command beside the service, nobody is told."""

    blobs: Blobs
    guard: Guard
    parts: Parts
    notices: EndNotices | None = field(default=None, kw_only=True)
    is_sure: Callable[[], bool] = field(default=lambda: True, kw_only=True)  # of the clock
    _erased: set[str] = field(default_factory=set, init=False, repr=False)  # by this process

    over = TaskState.SETTLED

    def held(self) -> Held:
        found = key_shares(self.bundles)
        for name in self.blobs.listing():
            found[name.partition("/")[0]][_kind(name)] += 1
        for task, count in self.store.seed_counts().items():
            found[task]["seeds"] = count
        for task, _key, _number in self._parts():
            found[task]["parts"] += 1
        return dict(found)

    def erase(self, task: str) -> None:
        """All but results."""
        self.forget(task)
        self.guard.finish(task)
        self.bundles.delete(f"{task}.sp")
        DealtFiles(self.bundles, "sp").erase(task)
        for round_ in self.store.rounds(task):
            forget_replies(self.store, self.blobs, task, round_.number)
            for folder in ("uploads", "left_over"):
                self.blobs.clear(f"{task}/rounds/{round_.number}/{folder}")
        self.store.erase_seeds(task)
        for owner, key, number in self._parts():
            if owner == task:
                self.parts.remove(key, number)

    def purge(self, task: str) -> None:
        """Results too."""
        self.erase(task)
        self.blobs.clear(task)
        for known in self.store.payees(task).values():  # their owners may say so again
            self.store.change_payee(known, replace(known, offered=b"", destination=b""))

    def forget_unknown(self, task: str) -> None:
        self.bundles.delete(f"{task}.sp")
        DealtFiles(self.bundles, "sp").erase(task)
        self.blobs.clear(task)

    def remove_unfinished(self, before: float) -> None:
        """Of rounds that are over too: parts, for no such upload will ever be taken, and what was dealt for them; results that
        no record names, of a process that was overtaken or stopped before its record was set."""
        super().remove_unfinished(before)
        self.blobs.remove_unfinished(before)
        for stored in self.store.tasks():
            erase_gone(self.store, self.blobs, stored.task)
        self.parts.sweep()
        for task, key, number in self._parts():
            if self._is_over(task, number):
                self.parts.remove(key, number)
        for name in filter(is_dealt_file, self.bundles.listing()):
            task, _, file = name.partition(".dealt.")
            with contextlib.suppress(UnknownTask, TaskUnreadable):
                if self._is_over(task, round_of(self.store.task(task).opened, int(file))):
                    self.bundles.delete(name)
        for name in self.blobs.listing():
            task, *place = name.split("/")
            if len(place) == 4 and place[2] in KINDS:
                with contextlib.suppress(NotReady, TaskUnreadable):
                    if is_surplus(self.store.round(task, int(place[1])), *place[2:]):
                        self.blobs.delete(name)

    def tick(self) -> bool:
        """Erase and tell for every task that has been settled since; True is never returned: nothing is urgent."""
        settled = [stored for stored in self.store.tasks() if stored.state == self.over]
        fresh = [stored.task for stored in settled if stored.task not in self._erased]
        held = self.held() if fresh else {}
        for task in fresh:
            self.erase_if_held(task, held)
            self._erased.add(task)
        if self.notices is not None:
            self.notices.tell(settled)
        return False

    def _expire(self, stored: StoredTask) -> None:
        """A pause too. What people have earned they can claim."""
        ending = Tombstone("expired", EndedBy.LIFETIME, "the last day of its rounds is over")
        cancel_task(LedgerPorts(self.store, self.clock), stored.task, ending)

    def _is_under_way(self, stored: StoredTask) -> bool:
        return stored.state in (TaskState.RUNNING, TaskState.PAUSED)

    def _knows_the_time(self) -> bool:
        return self.is_sure()

    def _blobs_written(self) -> Mapping[str, float]:
        return self.blobs.listing()

    def _parts(self) -> Iterator[tuple[str, str, int]]:
        """Task, key and round of each; those of nobody who is enrolled wait for `Parts.sweep`."""
        places = self.parts.places()
        if not places:
            return
        tasks = [stored.task for stored in self.store.tasks()]
        owners = {
            self.parts.key(task, one.identity.who): task for task in tasks for one in self.store.participants(task)
        }
        yield from ((owners[key], key, number) for key, number in places if key in owners)

    def _is_over(self, task: str, number: int) -> bool:
        try:
            return self.store.round(task, number).is_over
        except (NotReady, TaskUnreadable):
            return False


def _kind(name: str) -> str:
    """Of `TASK/rounds/NUMBER/FOLDER/...`; everything else of a task is a result."""
    parts = name.split("/")
    return _KINDS.get(parts[3], RESULTS) if len(parts) > 4 else RESULTS
