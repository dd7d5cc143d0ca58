"""Uploads to SP: whole by PUT, or in pieces on a bad connection. Either way the answer is a signed receipt."""

import hashlib
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import Counter
from pydantic import Field

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import Forbidden
from crowdfl.roles.documents import sign_document
from crowdfl.roles.ports import Upload
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.uploads import PendingUpload, UploadOutcome
from crowdfl.services.apps.batches import Batches
from crowdfl.services.apps.partial_uploads import Incoming
from crowdfl.services.http.auth import Security
from crowdfl.services.http.bodies import (
    IN_MEMORY,
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
from crowdfl.services.http.metrics import Metrics
from crowdfl.services.http.signatures import ByParticipant, Signed

__all__ = ["Finished", "add_upload_routes"]

_UPLOADS = "/v1/tasks/{task}/rounds/{number}/uploads/{who}"
_COMMIT_LIMIT = 4096
_PLACE = re.compile("[0-9a-f]{32}/[1-9][0-9]{0,5}/[0-9a-f]{20}")
_Place = tuple[str, int]  # task and round
Offset = Annotated[int, Query(ge=0, le=2**40)]


class Finished(Form):
    """The SHA-256 of a whole upload, in hex."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True, eq=False)
class _Owner:
    """A dependency: the request is signed by the participant whose upload the path names."""

    guard: ByParticipant

    @property
    def security(self) -> Security:
        """For OpenAPI."""
        return self.guard.security

    async def __call__(self, request: Request, task: TaskId, who: Who) -> Signed:
        """The participant whose upload it is."""
        caller = await self.guard(request, task)
        if caller.who != who:
            raise Forbidden("nobody uploads for another")
        return caller


class _Direct(APIRoute):
    """A route of one upload whose guard is called as such: FastAPI's general way there was a fifth of the loop's time."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """With the arguments that FastAPI would find; whatever is odd about a path, FastAPI says."""
        usual, owner, endpoint = super().get_route_handler(), self.dependant.dependencies[0].call, self.endpoint

        async def handle(request: Request) -> Response:
            task, number, who = (request.path_params[name] for name in ("task", "number", "who"))
            if owner is None or not _PLACE.fullmatch(f"{task}/{number}/{who}"):
                return await usual(request)
            answer: Response = await endpoint(request, task, int(number), who, await owner(request, task, who))
            return answer

        return handle


@dataclass(frozen=True, eq=False)
class _Desk:
    """Where uploads go, and receipts come from."""

    sp: Sp
    incoming: Incoming
    signing: SigningKey = field(repr=False)
    acknowledged: Counter = field(repr=False)
    _limits: dict[str, int] = field(default_factory=dict)  # follow from a task's definition alone

    async def limit(self, task: str) -> int:
        """Bytes of an upload."""
        if task not in self._limits:
            self._limits[task] = await to_thread.run_sync(self.sp.upload_limit, task)
        return self._limits[task]

    def receive(self, place: _Place, arrivals: Sequence[PendingUpload]) -> list[Response | Exception]:
        """What each is answered."""
        return [self._answer(place, received) for received in self.sp.receive_all(*place, arrivals)]

    def receive_one(self, place: _Place, arrival: PendingUpload) -> Response:
        """The same for one."""
        (outcome,) = self.receive(place, [arrival])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def finish(self, place: _Place, who: str, digest: str) -> Response:
        """All pieces of an upload are in."""
        known = self.sp.store.upload(*place, who)
        if known is not None and known.digest == digest:  # finished before; the receipt was lost
            self.incoming.discard(*place, who)
            return self._receipt(place, known, new=False)
        upload = self.incoming.take(*place, who, digest)
        response = self.receive_one(place, PendingUpload(who, upload, digest))
        self.incoming.discard(*place, who)  # a refused one stays until it is replaced or swept: the refusal may pass
        return response

    def _answer(self, place: _Place, received: UploadOutcome) -> Response | Exception:
        return received if isinstance(received, Exception) else self._receipt(place, received[0], new=received[1])

    def _receipt(self, place: _Place, entry: Upload, *, new: bool) -> Response:
        self.acknowledged.labels("new" if new else "again").inc()
        task, number = place
        body = {"task": task, "round": number, "who": entry.who, "digest": entry.digest, "late": entry.late}
        return JSONResponse({"receipt": sign_document("receipt", body, self.signing)}, status_code=201 if new else 200)


def add_upload_routes(
    app: FastAPI, sp: Sp, metrics: Metrics, folder: Path, signing: SigningKey, guard: ByParticipant, workers: int
) -> None:
    """The routes of uploads; `workers` bounds how many large ones are in memory, where small ones wait, one a connection."""
    incoming = Incoming(folder / "incoming")
    incoming.sweep()
    acknowledged = metrics.counter("crowdfl_uploads_acknowledged", "Uploads with a receipt", "kind")
    desk = _Desk(sp, incoming, signing, acknowledged)
    heavy = partial(to_thread.run_sync, limiter=CapacityLimiter(workers))
    batches: Batches[_Place, PendingUpload, Response] = Batches(desk.receive)
    owned = Annotated[Signed, Depends(_Owner(guard))]

    async def put(request: Request, task: TaskId, number: Number, who: Who, caller: owned) -> Response:
        """A whole upload; the same bytes again are the same upload."""
        limit, place = await desk.limit(task), (task, number)
        if limit <= IN_MEMORY:
            upload = await read_bytes(request, limit)
            digest = hashlib.sha256(upload).hexdigest()
            caller.require_body(digest)
            return await batches.run(place, PendingUpload(who, upload, digest))
        async with spooled(request, limit, folder) as body:
            caller.require_body(body.digest)
            return await heavy(lambda: desk.receive_one(place, PendingUpload(who, body.read(), body.digest)))

    app.router.add_api_route(
        _UPLOADS,
        put,
        methods=["PUT"],
        status_code=201,
        response_class=JSONResponse,
        openapi_extra=takes_bytes(),
        route_class_override=_Direct,
    )

    @app.get(_UPLOADS + "/offset")
    def offset(task: TaskId, number: Number, who: Who, caller: owned) -> dict[str, int]:
        """How much of an upload in pieces is in."""
        return {"offset": incoming.offset(task, number, caller.who)}

    @app.patch(_UPLOADS, openapi_extra=takes_bytes())
    async def patch(
        request: Request, task: TaskId, number: Number, who: Who, caller: owned, offset: Offset
    ) -> dict[str, int]:
        """One more piece of an upload."""
        limit = await desk.limit(task)
        async with spooled(request, limit, folder) as body:
            caller.require_body(body.digest)
            append = partial(incoming.append, task, number, who, offset, body.file, limit)
            return {"offset": await heavy(append)}

    @app.post(_UPLOADS + "/commit", response_class=JSONResponse, openapi_extra=takes_json(Finished))
    async def commit(request: Request, task: TaskId, number: Number, who: Who, caller: owned) -> Response:
        """All pieces are in."""
        raw = await read_bytes(request, _COMMIT_LIMIT)
        caller.require_body(hashlib.sha256(raw).hexdigest())
        return await heavy(partial(desk.finish, (task, number), who, parse(Finished, raw).digest))
