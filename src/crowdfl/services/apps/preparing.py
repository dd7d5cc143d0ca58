"""CSP takes a task over, which takes long where KGC deals files for its rounds: whoever asks is sent away, and asks again."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial

from crowdfl.roles.csp import Csp
from crowdfl.services.client.breaker import PeerPatience
from crowdfl.services.http.app_factory import Background

_AT_ONCE = 4


@dataclass
class Preparations(Background):
    """Those in progress, one per task, shared by everyone who asks for the same. A failure is told once."""

    csp: Csp
    patience: float  # seconds until a caller is sent away
    kgc_patience: PeerPatience = field(default_factory=PeerPatience)
    _futures: dict[str, Future[None]] = field(default_factory=dict, repr=False)
    _workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "csp-prepares"), repr=False
    )
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def prepare(self, task: str) -> bool:
        """Whether CSP has all of the task; False while it is fetched. What keeps it from that is raised."""
        with self._lock:
            future = self._futures.get(task)
            if future is None:
                work = partial(copy_context().run, self._prepare, task)
                future = self._futures[task] = self._workers.submit(work)
        if not wait([future], self.patience).done:
            return False
        with self._lock:
            if self._futures.get(task) is future:
                del self._futures[task]
        future.result()
        return True

    def stop(self) -> None:
        """What was fetched is kept: the next process goes on from there."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _prepare(self, task: str) -> None:
        with self.kgc_patience():
            self.csp.prepare(task)
