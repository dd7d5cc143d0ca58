"""How KGC and CSP are told that a task is over: in SP's signed words, again and again until both have acknowledged."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import CrowdFLError, ServiceError, UnknownTask
from crowdfl.retry import Attempts, Backoff
from crowdfl.roles.ports import Clock, EndPeer, SpStore
from crowdfl.roles.records import StoredTask

_RESTS = Backoff(first=10.0, longest=3600.0)


@dataclass
class EndNotices:
    """`peers` are KGC and CSP, by name."""

    store: SpStore
    clock: Clock
    signing: SigningKey = field(repr=False)
    peers: Mapping[str, EndPeer]
    rests: Backoff = _RESTS
    on_failure: Callable[[str, str, Exception], None] = lambda _task, _peer, _failure: None
    _resting: dict[tuple[str, str], Attempts] = field(default_factory=dict, init=False, repr=False)

    def tell(self, settled: Iterable[StoredTask]) -> None:
        """Everyone who has not acknowledged yet, of each of these tasks."""
        for stored in settled:
            for name in stored.unnotified(self.peers):
                self._tell(stored, name)

    def document(self, stored: StoredTask) -> str:
        """The end of a task, signed; the same words whenever it is sent."""
        why = stored.end.why if stored.end is not None else "settled"
        return TaskEnd(stored.task, why, stored.ended_at or 0.0).sign(self.signing)

    def _tell(self, stored: StoredTask, name: str) -> None:
        """A peer that is away rests for all tasks; one that refuses this message, for this task."""
        if any(key in self._resting and self._resting[key].is_resting for key in (("", name), (stored.task, name))):
            return
        try:
            self.peers[name].end(stored.task, self.document(stored))
        except UnknownTask:  # restored from a backup of before, or never told: it has nothing to erase
            pass
        except (CrowdFLError, OSError) as failure:
            key = ("" if isinstance(failure, ServiceError | OSError) else stored.task, name)
            self._resting.setdefault(key, self.rests.start()).fail()
            self.on_failure(stored.task, name, failure)
            return
        self._resting.pop(("", name), None)
        self.store.change_task(stored.task, **{f"{name}_told_end": self.clock.now()})
