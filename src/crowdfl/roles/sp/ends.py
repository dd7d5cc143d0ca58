"""The end of a task on SP: it is cancelled, or expires; KGC and CSP are told; what it needed is erased.

Settling (`settlement`) makes a task's end durable. From then on `tick` erases, and tells until both peers have acknowledged,
across restarts; `sweep` finds what a crash left.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import CrowdFLError, ServiceError, UnknownTask
from crowdfl.retry import Attempts, Backoff
from crowdfl.roles.ends import DAY, MARGIN, Held, Lifetimes, Orphans, Troubles
from crowdfl.roles.ports import Clock, EndPeer, SpStore
from crowdfl.roles.records import StoredTask, TaskState, Tombstone
from crowdfl.roles.sp.cancel import cancel_task
from crowdfl.roles.sp.holdings import SpHoldings, secrets_of

_RESTS = Backoff(first=10.0, longest=3600.0)  # an older peer does not know the message, and is asked seldom


def claims_until(stored: StoredTask) -> float:
    """When the books of a task that has ended can be closed."""
    return (stored.ended_at or 0.0) + stored.opened.claim_window


def tell_again(store: SpStore, task: str) -> None:
    """For a peer that was restored from a backup, and holds again what it had erased; within the hour, or at a restart."""
    store.change_task(task, kgc_told_end=None, csp_told_end=None)


@dataclass
class SpEnds:
    """`peers` are KGC and CSP, by name."""

    holdings: SpHoldings
    clock: Clock
    signing: SigningKey = field(repr=False)
    peers: Mapping[str, EndPeer]
    margin: float = MARGIN
    rests: Backoff = _RESTS
    on_failure: Callable[[str, str, Exception], None] = lambda _task, _peer, _failure: None
    is_sure: Callable[[], bool] = lambda: True  # of the clock
    _resting: dict[tuple[str, str], Attempts] = field(default_factory=dict, init=False, repr=False)
    _erased: set[str] = field(default_factory=set, init=False, repr=False)  # by this process
    _unnotified: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False)  # peers, by task
    _orphans: Orphans = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._orphans = Orphans(self.holdings)

    @property
    def store(self) -> SpStore:
        return self.holdings.store

    @property
    def lifetimes(self) -> Lifetimes:
        return Lifetimes(self.store, self.clock, self.margin)

    def tick(self) -> bool:
        """Erase and tell for every task that has been settled since; True is never returned: nothing is urgent."""
        settled = [stored for stored in self.store.tasks() if stored.state == TaskState.SETTLED]
        fresh = [stored.task for stored in settled if stored.task not in self._erased]
        held = self.holdings.held() if fresh else {}
        for task in fresh:
            self._erase_if_held(task, held)
            self._erased.add(task)
        for stored in settled:
            self._tell_everyone(stored)
        return False

    def sweep(self, machine_time: float, *, counting: bool) -> None:
        """Erase what ended tasks still hold; end tasks past their life. `counting`: an hour has passed since the last.

        While the clock is in doubt, nothing is old.
        """
        held, sure = self.holdings.held(), self.is_sure()
        self._unnotified.clear()  # the operator may want somebody to be told again
        with Troubles() as troubles:
            for stored in self.store.tasks():
                with troubles.kept():
                    self._sweep(stored, held, counting=counting and sure)
            if sure:
                with troubles.kept():
                    self.holdings.remove_unfinished(machine_time - DAY)
            if counting and sure:
                self._orphans.sweep(held, machine_time)

    def _sweep(self, stored: StoredTask, held: Held, *, counting: bool) -> None:
        if stored.state == TaskState.SETTLED:
            self._erase_if_held(stored.task, held)
        elif counting and self._is_under_way(stored) and self.lifetimes.confirm(stored, claims=False):
            cancel_task(self, stored.task, Tombstone("expired", "the task's lifetime", "it took too long"))

    def why_held(self, task: str, counts: Counter[str]) -> str:
        """Why these things of a task are still here, in words."""
        try:
            stored = self.store.task(task)
        except UnknownTask:
            return "unknown here"
        if self._is_under_way(stored):
            return "past its lifetime" if self.lifetimes.is_past(stored, claims=False) else "running"
        if stored.state != TaskState.SETTLED:
            return "claims open"
        return "ended, to be erased" if secrets_of(counts) else "results, until they are purged"

    def _is_under_way(self, stored: StoredTask) -> bool:
        return stored.state in (TaskState.RUNNING, TaskState.PAUSED)

    def _erase_if_held(self, task: str, held: Held) -> None:
        self.holdings.drop(task)
        if secrets_of(held.get(task, Counter())):
            self.holdings.erase(task)

    def _tell_everyone(self, stored: StoredTask) -> None:
        if stored.task not in self._unnotified:
            self._unnotified[stored.task] = stored.unnotified(self.peers)
        missing = self._unnotified[stored.task]
        missing[:] = [name for name in missing if not self._tell(stored, name)]

    def _tell(self, stored: StoredTask, name: str) -> bool:
        """A peer that is away rests for all tasks; one that refuses this message, for this task."""
        if any(key in self._resting and self._resting[key].is_resting for key in (("", name), (stored.task, name))):
            return False
        try:
            self.peers[name].end(stored.task, self.document(stored))
        except UnknownTask:  # restored from a backup of before, or never told: it has nothing to erase
            pass
        except (CrowdFLError, OSError) as failure:
            key = ("" if isinstance(failure, ServiceError | OSError) else stored.task, name)
            self._resting.setdefault(key, self.rests.start()).fail()
            self.on_failure(stored.task, name, failure)
            return False
        self._resting.pop(("", name), None)
        now = self.clock.now()
        if name == "kgc":
            self.store.change_task(stored.task, kgc_told_end=now)
        else:
            self.store.change_task(stored.task, csp_told_end=now)
        return True

    def document(self, stored: StoredTask) -> str:
        """The same words whenever it is sent."""
        why = stored.end.why if stored.end is not None else "settled"
        return TaskEnd(stored.task, why, stored.ended_at or 0.0).sign(self.signing)
