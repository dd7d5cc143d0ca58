"""CSP's computations in progress: one per request, one at a time per task, shared by everyone who asks the same."""

import hashlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from crowdfl.errors import NotReady, ServiceUnavailable
from crowdfl.roles.csp import Csp

__all__ = ["Answers"]

_MOST_FAILED = 256


@dataclass
class Answers:
    """Answers being made. Those that are made lie in CSP's store; failures are kept until they were told."""

    csp: Csp
    patience: float = 5.0  # seconds until a caller is sent away to poll
    most: int = 64
    _futures: dict[tuple[str, str], Future[bytes]] = field(default_factory=dict, repr=False)
    _workers: dict[str, ThreadPoolExecutor] = field(default_factory=dict, repr=False)
    # Reentrant: a computation may end while the thread that started it still holds this.
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def ask(self, task: str, request: bytes) -> tuple[str, bytes | None]:
        """The request's digest, and the reply unless it takes longer than the caller's patience."""
        self.csp.store.task(task)  # no worker for a task that is not here
        digest = hashlib.sha256(request).hexdigest()
        future = self._start((task, digest), request)
        done, _ = wait([future], self.patience)
        return digest, self._tell((task, digest), future) if done else None

    def poll(self, task: str, digest: str) -> bytes | None:
        """The reply; None while it is computed; `NotReady` if nobody has asked since this process began."""
        with self._lock:
            future = self._futures.get((task, digest))
        if future is not None:
            return self._tell((task, digest), future) if future.done() else None
        blob = self.csp.store.answered(task, digest)
        if blob is None:
            raise NotReady("nobody has asked this here lately: ask again with the request itself")
        return self.csp.blobs.get(blob)

    def known(self, task: str, request: bytes) -> bool:
        """Whether this request was answered before, or is about to be."""
        digest = hashlib.sha256(request).hexdigest()
        return (task, digest) in self._futures or self.csp.store.answered(task, digest) is not None

    def start(self) -> None:
        """Nothing: workers come with requests."""

    def stop(self) -> None:
        """Let what is being computed end and be kept; forget what has not begun."""
        for workers in self._workers.values():
            workers.shutdown(wait=True, cancel_futures=True)

    def check(self) -> None:
        """Always fine."""

    def _start(self, key: tuple[str, str], request: bytes) -> Future[bytes]:
        with self._lock:
            future = self._futures.get(key)
            if future is not None and not future.done():
                return future
            if sum(not known.done() for known in self._futures.values()) >= self.most:
                raise ServiceUnavailable(f"{self.most} requests are being computed: ask again later")
            # One worker a task: CSP's side of a task works on one request at a time.
            if key[0] not in self._workers:
                self._workers[key[0]] = ThreadPoolExecutor(1, f"csp-{key[0][:8]}")
            self._futures[key] = future = self._workers[key[0]].submit(self.csp.answer, key[0], request)
            future.add_done_callback(partial(self._forget_success, key))
            self._prune()
            return future

    def _forget_success(self, key: tuple[str, str], future: Future[bytes]) -> None:
        """The reply lies in the store now: memory need not hold it too."""
        if not future.cancelled() and future.exception() is None:
            with self._lock:
                self._futures.pop(key, None)

    def _tell(self, key: tuple[str, str], future: Future[bytes]) -> bytes:
        """The outcome; a failure is told once and may then be tried again."""
        with self._lock:
            if self._futures.get(key) is future:
                del self._futures[key]
        return future.result()

    def _prune(self) -> None:
        """Failures that nobody came back for."""
        done = [key for key, future in self._futures.items() if future.done()]
        for key in done[: max(0, len(done) - _MOST_FAILED)]:
            del self._futures[key]
