"""CSP over HTTP. What takes long is done by workers of their own: whoever asks is sent away, and asks again."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from anyio import to_thread
from fastapi import Depends, FastAPI, Request, Response
from starlette.background import BackgroundTask

from crowdfl.crypto.long_bytes import Long, sha256_of
from crowdfl.errors import LimitExceeded, NotReady, ServiceUnavailable
from crowdfl.roles.csp import Csp
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.services.apps.ends import add_end_route
from crowdfl.services.apps.held import add_held_metrics
from crowdfl.services.client.breaker import Breaker, PeerPatience
from crowdfl.services.http.app_factory import Background, ServiceMetrics, add_peer_gauge, between_roles, make_app
from crowdfl.services.http.auth import CertifiedToken, Pins, Tokens
from crowdfl.services.http.bodies import (
    SMALL_LIMIT,
    CertificateForm,
    Sha256,
    TaskId,
    download,
    json_body,
    known_task,
    spooled,
    takes_bytes,
    takes_json,
)
from crowdfl.services.http.pieces import Offset, Total, UnfinishedFiles, open_parcel, take_parcel
from crowdfl.services.http.wire import DIGEST_HEADER, REQUEST_HEADER

_AT_ONCE = 4
_PIECE = 1 << 20  # bytes


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


_REQUEST_LIMIT = 256 * 1024 * 1024  # bytes that come at once, or in pieces besides 8 for each of the model's parameters
_POLL_SECONDS = "1"
_MOST_FAILED = 256


@dataclass
class Answers(Background):
    """CSP's computations in progress: one per request, one at a time per task, shared by everyone who asks the same.

    Finished answers are in CSP's store; failures are kept here until someone was told.
    """

    csp: Csp
    patience: float = 5.0  # seconds until a caller is sent away to poll
    most: int = 64
    longest_stop: float = 3.0  # seconds
    _futures: dict[tuple[str, str], Future[None]] = field(default_factory=dict, repr=False)
    _workers: dict[str, ThreadPoolExecutor] = field(default_factory=dict, repr=False)
    # Reentrant: a computation may end while the thread that started it still holds the lock.
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def ask(self, task: str, digest: str, request: Callable[[], Long]) -> BinaryIO | None:
        """The reply, or None if it takes longer than the caller's patience. The request is read when its turn has come."""
        self.csp.store.task(task)  # no worker for a task that is not here
        self.csp.require_answering(task)
        key = task, digest
        kept = self.csp.kept(*key)
        if kept is not None:
            return kept
        future = self._start(key, request)
        done, _ = wait([future], self.patience)
        return self._tell(key, future) if done else None

    def poll(self, task: str, digest: str) -> BinaryIO | None:
        """The reply; None while it is computed; `NotReady` if nobody has asked since this process began."""
        self.csp.require_answering(task)
        with self._lock:
            future = self._futures.get((task, digest))
        if future is not None:
            return self._tell((task, digest), future) if future.done() else None
        return self._stored(task, digest)

    def known(self, task: str, digest: str) -> bool:
        """Whether this request was answered before, or is about to be."""
        return (task, digest) in self._futures or self.csp.store.answered(task, digest) is not None

    def forget(self, task: str) -> None:
        """A task that has ended needs no worker; what it computes now is refused when it is done."""
        with self._lock:
            worker = self._workers.pop(task, None)
        if worker is not None:
            worker.shutdown(wait=False)

    def stop(self) -> None:
        """Drop what has not begun, and wait a little for what is being computed: SP asks again for what is not stored."""
        with self._lock:
            computing = list(self._futures.values())
        for workers in self._workers.values():
            workers.shutdown(wait=False, cancel_futures=True)
        wait(computing, self.longest_stop)

    def _stored(self, task: str, digest: str) -> BinaryIO:
        kept = self.csp.kept(task, digest)
        if kept is None:
            raise NotReady("this request is not known here: send the request itself again")
        return kept

    def _compute(self, task: str, request: list[Long]) -> None:
        self.csp.answer(task, request.pop())  # which keeps it

    def _start(self, key: tuple[str, str], request: Callable[[], Long]) -> Future[None]:
        with self._lock:
            future = self._futures.get(key)
            if future is not None and not future.done():
                return future
            if sum(not known.done() for known in self._futures.values()) >= self.most:
                raise ServiceUnavailable(f"{self.most} requests are being computed: try again later")
            # One worker a task: CSP's side of a task works on one request at a time.
            if key[0] not in self._workers:
                self._workers[key[0]] = ThreadPoolExecutor(1, f"csp-{key[0][:8]}")
            # Under the caller's request id.
            work = partial(copy_context().run, self._compute, key[0], [request()])
            self._futures[key] = future = self._workers[key[0]].submit(work)
            future.add_done_callback(partial(self._forget_success, key))
            self._prune()
            return future

    def _forget_success(self, key: tuple[str, str], future: Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            with self._lock:
                self._futures.pop(key, None)

    def _tell(self, key: tuple[str, str], future: Future[None]) -> BinaryIO:
        """The outcome; a failure is told once and may then be tried again."""
        with self._lock:
            if self._futures.get(key) is future:
                del self._futures[key]
        future.result()
        return self._stored(*key)

    def _prune(self) -> None:
        done = [key for key, future in self._futures.items() if future.done()]
        for key in done[: max(0, len(done) - _MOST_FAILED)]:
            del self._futures[key]


def create_app(
    csp: Csp,
    tokens: Tokens,
    *,
    folder: Path,
    patience: float = 5.0,
    pins: Pins | None = None,
    retention: CspRetention | None = None,
    background: Sequence[Background] = (),
    peers: Sequence[Breaker] = (),
) -> FastAPI:
    """CSP's app; `patience` is how long a request is held before its caller is sent to poll.

    Without `retention` nobody can end a task here.
    """
    metrics = ServiceMetrics()
    answers = Answers(csp, patience)
    incoming = UnfinishedFiles(folder / "incoming")
    preparations = Preparations(csp, patience)
    app = make_app("csp", tokens, metrics, csp.store.task, folder, (*background, answers, preparations), pins)
    asked = metrics.counter("crowdfl_csp_requests", "Requests of SP's by how they were answered", "how")
    add_peer_gauge(metrics, peers)
    for_sp = [Depends(CertifiedToken(tokens.require("sp"), pins)), Depends(between_roles)]

    def forget(task: str) -> None:
        answers.forget(task)
        incoming.remove_all(f"{task}.")

    if retention is not None:
        add_end_route(app, retention, for_sp, forget)
        add_held_metrics(metrics, retention)

    @app.post("/v1/tasks/{task}/prepare", status_code=204, dependencies=for_sp, response_class=Response)
    def prepare(task: TaskId) -> Response:
        """Fetch all that the task is dealt from KGC; 202 while that goes on."""
        if preparations.prepare(task):
            return Response(status_code=204)
        return Response(status_code=202, headers={"Retry-After": _POLL_SECONDS})

    extra = takes_json(CertificateForm)
    certificate = json_body(CertificateForm, SMALL_LIMIT)

    @app.post("/v1/tasks/{task}/participants", status_code=204, dependencies=for_sp, openapi_extra=extra)
    def enrol(task: TaskId, body: Annotated[CertificateForm, Depends(certificate)]) -> None:
        """Take note of a certified participant."""
        csp.enrol(task, body.certificate)

    @app.get("/v1/tasks/{task}/attested", dependencies=for_sp)
    def attested(task: TaskId) -> dict[str, str]:
        """CSP's signed word how much it has attested in all, for the requester; not before claims have ended."""
        return {"document": csp.attested(task)}

    @app.get("/v1/tasks/{task}/claims-extension", dependencies=for_sp)
    def claims_extension(task: TaskId) -> dict[str, str]:
        """CSP's signed word that people can claim longer; empty if its operator has not given it."""
        return {"document": csp.claims_extended(task)}

    extra = takes_bytes()
    of_a_task = [*for_sp, Depends(known_task(csp.store.task))]

    def answer(task: str, digest: str, request: Callable[[], Long]) -> Response:
        how = "cached" if answers.known(task, digest) else "answered"
        reply = answers.ask(task, digest, request)
        asked.labels(how).inc()
        return _outcome(csp, task, digest, reply)

    @app.post("/v1/tasks/{task}/requests", dependencies=of_a_task, response_class=Response, openapi_extra=extra)
    async def ask(request: Request, task: TaskId) -> Response:
        """Answer a request, or say where its answer will be."""
        async with spooled(request, _REQUEST_LIMIT, folder) as body:
            return await to_thread.run_sync(answer, task, body.digest, body.later)

    _add_long_requests(app, csp, incoming, of_a_task, answer)

    @app.get("/v1/tasks/{task}/requests/{digest}", dependencies=for_sp, response_class=Response)
    def poll(task: TaskId, digest: Sha256) -> Response:
        """The answer to a request that was taken in before."""
        reply = answers.poll(task, digest)
        if reply is not None:
            incoming.remove_all(f"{task}.")  # its pieces, if it had any
        return _outcome(csp, task, digest, reply)

    return app


def _add_long_requests(
    app: FastAPI,
    csp: Csp,
    incoming: UnfinishedFiles,
    guard: Sequence[Any],
    answer: Callable[[str, str, Callable[[], Long]], Response],
) -> None:
    def path(task: str, parcel: str) -> Path:
        """One request of a task is on its way at a time."""
        return incoming.folder / f"{task}.{parcel}.part"

    @app.patch("/v1/tasks/{task}/requests/{parcel}", dependencies=guard, openapi_extra=takes_bytes())
    async def take(request: Request, task: TaskId, parcel: Sha256, offset: Offset, total: Total) -> dict[str, int]:
        """One more piece, or several, of a long request, which is named after the leaves of all its pieces."""
        stored = await to_thread.run_sync(csp.store.task, task)
        most = _REQUEST_LIMIT + 8 * stored.opened.spec.parameters
        if total > most:
            raise LimitExceeded(f"a request of {total} bytes, and {most} are the most of this task")
        return await take_parcel(request, incoming, path(task, parcel), parcel, offset, total)

    @app.get("/v1/tasks/{task}/requests/{parcel}/offset", dependencies=guard)
    def offset(task: TaskId, parcel: Sha256) -> dict[str, int]:
        """How much of a long request has arrived."""
        return {"offset": incoming.length(path(task, parcel))}

    @app.post("/v1/tasks/{task}/requests/{parcel}", dependencies=guard, response_class=Response)
    def ask_long(task: TaskId, parcel: Sha256) -> Response:
        """All pieces of a long request have arrived: answer it, or say where its answer will be."""
        request = open_parcel(incoming, path(task, parcel), parcel)
        response = answer(task, sha256_of(request).hex(), lambda: request)
        if response.status_code == 200:
            incoming.unlink(path(task, parcel))
        return response


def _outcome(csp: Csp, task: str, digest: str, reply: BinaryIO | None) -> Response:
    if reply is not None:
        whole = hashlib.sha256()
        for piece in iter(partial(reply.read, _PIECE), b""):
            whole.update(piece)
        answer = download(reply)
        answer.headers.update({REQUEST_HEADER: digest, DIGEST_HEADER: whole.hexdigest()})
        answer.background = BackgroundTask(csp.tidy, task)
        return answer
    place = f"/v1/tasks/{task}/requests/{digest}"
    return Response(status_code=202, headers={"Location": place, "Retry-After": _POLL_SECONDS})
