"""Uploads to SP, whole or in pieces, and their receipts.

Requests that wait for the same thing are worked on together: a thread takes all that came while it was busy. A thread per
request would cost more than the work, and would slow the event loop down.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import Counter
from pydantic import Field

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Receipt
from crowdfl.errors import (
    Forbidden,
    NotReady,
    ServiceUnavailable,
)
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.records import Upload
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.uploads import PendingUpload
from crowdfl.services.http.app_factory import ServiceMetrics
from crowdfl.services.http.auth import opened_by
from crowdfl.services.http.bodies import (
    IN_MEMORY,
    Body,
    Form,
    Number,
    TaskId,
    Who,
    parse,
    read_bytes,
    spooled,
    takes_bytes,
    takes_json,
)
from crowdfl.services.http.pieces import ArrivingPieces, Offset, UnfinishedFiles, cut
from crowdfl.services.http.signatures import ByParticipant, Signed

_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")
_Outcome = TypeVar("_Outcome")
_Queued = tuple[asyncio.AbstractEventLoop, _Key]
_MOST = 16  # of one batch, so that nobody waits long for the rest of it
_AT_ONCE = 2  # batches of a key: while one waits for the disk, another computes
IN_WORK = _AT_ONCE * _MOST  # items of a key


class Batches(Generic[_Key, _Item, _Outcome]):
    """Hands items of one key to `work` in batches, a few batches at a time.

    `work` returns, for each item, an outcome or the error of its refusal; if it raises, everyone in the batch gets that error.
    """

    def __init__(self, work: Callable[[_Key, Sequence[_Item]], Sequence[_Outcome | Exception]]) -> None:
        self._work = work
        self._waiting: dict[_Queued[_Key], list[tuple[_Item, asyncio.Future[_Outcome]]]] = {}
        self._tasks: dict[_Queued[_Key], set[asyncio.Task[None]]] = {}

    async def run(self, key: _Key, item: _Item) -> _Outcome:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()
        place = loop, key  # an app may be served by two loops at once: neither wakes the other's
        self._waiting.setdefault(place, []).append((item, future))
        self._start(place)
        return await future

    def _start(self, place: _Queued[_Key]) -> None:
        tasks = self._tasks.setdefault(place, set())
        if sum(not task.done() for task in tasks) < _AT_ONCE:  # one that has ended stays until the loop comes round
            # In no request's context: a batch is the work of many.
            task = place[0].create_task(self._serve(place), context=Context())
            tasks.add(task)
            task.add_done_callback(partial(self._ended, place))

    def _ended(self, place: _Queued[_Key], task: asyncio.Task[None]) -> None:
        tasks = self._tasks[place]
        tasks.discard(task)
        if place in self._waiting:  # it ended by an unexpected error
            self._start(place)
        elif not tasks:
            del self._tasks[place]

    async def _serve(self, place: _Queued[_Key]) -> None:
        while waiting := self._waiting.pop(place, []):
            batch = waiting[:_MOST]
            rest = waiting[_MOST:]
            if rest:
                self._waiting[place] = rest
            try:
                outcomes = await self._outcomes(place[1], [item for item, _ in batch])
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    _settle(future, outcome)
            finally:  # whatever happened, nobody waits forever
                for _, future in batch:
                    _settle(future, ServiceUnavailable("the work on this request was interrupted: send it again"))

    async def _outcomes(self, key: _Key, items: Sequence[_Item]) -> Sequence[_Outcome | Exception]:
        try:
            return await to_thread.run_sync(self._work, key, items)
        except Exception as failure:  # noqa: BLE001 -- raised in every request that asked
            return [failure] * len(items)


def _settle(future: asyncio.Future[_Outcome], outcome: _Outcome | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


_UPLOADS = "/v1/tasks/{task}/rounds/{number}/uploads/{who}"
_COMMIT_LIMIT = 4096
_LARGE_AT_ONCE = 4  # in memory; small ones wait there too, one a connection
_PLACE = re.compile("[0-9a-f]{64}/[1-9][0-9]{0,5}/[0-9a-f]{20}")
_Place = tuple[str, int]  # task and round
Digest = Annotated[str, Query(pattern="^[0-9a-f]{64}$")]


class Finished(Form):
    """The name of a whole upload, in hex."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class UnfinishedUploads(UnfinishedFiles):
    """Of uploads: one per participant and task. Nothing here is acknowledged."""

    def offset(self, task: str, number: int, who: str, digest: str) -> int:
        return self.length(self.path(task, number, who, digest))

    def take(self, task: str, number: int, who: str, digest: str, head: int, limit: int) -> PendingUpload:
        """All of it, as its sender has signed; what this process has not held against its leaves is hashed now."""
        path = self.path(task, number, who, digest)
        try:
            with path.open("rb") as file:
                if head == limit:  # all of an upload of this task is its head
                    upload = file.read()
                    if (found := hashlib.sha256(upload).hexdigest()) != digest:
                        raise cut(len(upload))
                    return PendingUpload(who, upload, found)
                whole, marks = self.checked(path, file, digest, head)
                return PendingUpload(who, whole.data, digest, path, marks)
        except FileNotFoundError:
            raise NotReady("nothing of this upload has arrived: send it from offset 0") from None

    def discard(self, task: str, number: int, who: str, digest: str) -> None:
        self.unlink(self.path(task, number, who, digest))

    def forget(self, task: str, who: str) -> None:
        """All of one who takes back what has arrived."""
        self.remove_all(f"{self.key(task, who)}.")

    def places(self) -> list[tuple[str, int]]:
        """Whose unfinished upload, as `key` says, and of which round."""
        found = [path.name.split(".") for path in self.folder.glob("*.*.*.part")]
        return [(key, int(number)) for key, number, *_ in found if number.isdecimal()]

    def key(self, task: str, who: str) -> str:
        return hashlib.sha256(f"{task} {who}".encode()).hexdigest()[:32]

    def remove(self, key: str, number: int) -> None:
        self.remove_all(f"{key}.{number}.")

    def path(self, task: str, number: int, who: str, digest: str) -> Path:
        """Of the upload of this name: of another one nothing is continued."""
        return self.folder / f"{self.key(task, who)}.{number}.{digest}.part"


class _Direct(APIRoute):
    """A route that calls its guard itself: FastAPI's general way to it took a fifth of the event loop's time."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """With the arguments that FastAPI would find; a path that does not fit is left to FastAPI."""
        usual = super().get_route_handler()
        owner = self.dependant.dependencies[0].call
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            task, number, who = (request.path_params[name] for name in ("task", "number", "who"))
            if owner is None or not _PLACE.fullmatch(f"{task}/{number}/{who}"):
                return await usual(request)
            answer: Response = await endpoint(request, task, int(number), who, await owner(request, task, who))
            return answer

        return handle


@dataclass(frozen=True, eq=False)
class _Reception:
    """Passes uploads to SP and signs receipts."""

    sp: Sp
    incoming: UnfinishedUploads
    signing: SigningKey = field(repr=False)
    acknowledged: Counter = field(repr=False)
    _limits: dict[str, tuple[int, int]] = field(default_factory=dict)  # follow from a task's definition alone

    async def limits(self, task: str) -> tuple[int, int]:
        """Bytes of an upload, and of its head."""
        if task not in self._limits:
            uploads = self.sp.uploads
            self._limits[task] = await to_thread.run_sync(lambda: (uploads.limit(task), uploads.head(task)))
        return self._limits[task]

    def append(self, path: Path, offset: int, body: Body, limit: int, pieces: ArrivingPieces | None) -> int:
        if pieces is None:
            return self.incoming.append(path, offset, body.file, limit)
        return self.incoming.add(path, offset, body, limit, pieces)

    def receive(self, place: _Place, arrivals: Sequence[PendingUpload]) -> list[Response | Exception]:
        outcomes = self.sp.uploads.receive(*place, arrivals)
        return [one if isinstance(one, Exception) else self._receipt(place, *one) for one in outcomes]

    def receive_one(self, place: _Place, arrival: PendingUpload) -> Response:
        (outcome,) = self.receive(place, [arrival])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def finish(self, place: _Place, who: str, digest: str, limits: tuple[int, int]) -> Response:
        known = self.sp.store.upload(*place, who)
        if known is not None and known.digest == digest:  # finished before; the receipt was lost
            self.incoming.discard(*place, who, digest)
            return self._receipt(place, known, "again")
        limit, head = limits
        with self.incoming.held(self.incoming.path(*place, who, digest)):  # what is looked at is what is kept
            response = self.receive_one(place, self.incoming.take(*place, who, digest, head, limit))
            self.incoming.discard(
                *place, who, digest
            )  # a refused one stays until it is replaced or swept: that may pass
        return response

    def _receipt(self, place: _Place, entry: Upload, became: Literal["new", "again", "unused"]) -> Response:
        self.acknowledged.labels(became).inc()
        receipt = Receipt(*place, entry.who, entry.digest, entry.late, became == "unused").sign(self.signing)
        return JSONResponse({"receipt": receipt}, status_code=201 if became == "new" else 200)


def add_upload_routes(
    app: FastAPI, sp: Sp, metrics: ServiceMetrics, folder: Path, signing: SigningKey, guard: ByParticipant
) -> UnfinishedUploads:
    incoming = UnfinishedUploads(folder / "incoming")
    incoming.sweep()
    acknowledged = metrics.counter("crowdfl_uploads_acknowledged", "Uploads with a receipt", "kind")
    reception = _Reception(sp, incoming, signing, acknowledged)
    heavy = partial(to_thread.run_sync, limiter=CapacityLimiter(_LARGE_AT_ONCE))
    batches: Batches[_Place, PendingUpload, Response] = Batches(reception.receive)

    @opened_by(guard)
    async def owner(request: Request, task: TaskId, who: Who) -> Signed:
        caller = await guard(request, task)
        if caller.who != who:
            raise Forbidden("a participant can upload for itself only")
        return caller

    owned = Annotated[Signed, Depends(owner)]

    async def put(request: Request, task: TaskId, number: Number, who: Who, caller: owned) -> Response:
        """A whole upload, signed by its name; the same bytes again are the same upload."""
        limit, head = await reception.limits(task)
        if limit > IN_MEMORY:
            await take_pieces(request, (task, number), caller, 0)
            return await heavy(reception.finish, (task, number), who, caller.digest, (limit, head))
        upload = await read_bytes(request, limit)
        digest = upload_digest(upload)
        caller.require_body(digest)
        return await batches.run((task, number), PendingUpload(who, upload, digest))

    async def take_pieces(request: Request, place: _Place, caller: Signed, offset: int) -> int:
        limit, head = await reception.limits(place[0])
        path = incoming.path(*place, caller.who, caller.digest)
        pieces = None  # of a task whose uploads are all head
        if head < limit:
            pieces = await to_thread.run_sync(incoming.pieces, path, caller.digest, offset, head)
        over = pieces.take if pieces else lambda _chunk: None
        async with spooled(request, limit, folder, over=over) as body:
            return await heavy(reception.append, path, offset, body, limit, pieces)

    app.router.add_api_route(
        _UPLOADS,
        put,
        methods=["PUT"],
        status_code=201,
        response_class=JSONResponse,
        openapi_extra=takes_bytes(),
        route_class_override=_Direct,
    )

    @app.get(_UPLOADS)
    def uploaded(task: TaskId, number: Number, who: Who, caller: owned) -> dict[str, str | bool | None]:
        """The digest of the upload that was acknowledged, or null: after SP was restored from a backup it may be gone.

        And whether the caller is in this round: of a task with `per_round`, only those who were drawn are.
        """
        known = sp.store.upload(task, number, caller.who)
        return {
            "digest": None if known is None else known.digest,
            "drawn": sp.uploads.is_drawn(task, number, caller.who),
        }

    @app.get(_UPLOADS + "/offset")
    def offset(task: TaskId, number: Number, who: Who, caller: owned, digest: Digest) -> dict[str, int]:
        """How much of the upload of this name has arrived in pieces."""
        return {"offset": incoming.offset(task, number, caller.who, digest)}

    @app.patch(_UPLOADS, openapi_extra=takes_bytes())
    async def patch(
        request: Request, task: TaskId, number: Number, who: Who, caller: owned, offset: Offset
    ) -> dict[str, int]:
        """One more piece, or several, of the upload whose name was signed: the first with the head."""
        return {"offset": await take_pieces(request, (task, number), caller, offset)}

    @app.post(_UPLOADS + "/commit", response_class=JSONResponse, openapi_extra=takes_json(Finished))
    async def commit(request: Request, task: TaskId, number: Number, who: Who, caller: owned) -> Response:
        """All pieces have arrived."""
        raw = await read_bytes(request, _COMMIT_LIMIT)
        caller.require_body(hashlib.sha256(raw).hexdigest())
        digest, limits = parse(Finished, raw).digest, await reception.limits(task)
        return await heavy(reception.finish, (task, number), who, digest, limits)

    return incoming
