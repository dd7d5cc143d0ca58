"""Uploads to SP: whole by PUT, or in pieces on a bad connection. Either way the answer is a signed receipt."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import Forbidden
from crowdfl.roles.documents import sign_document
from crowdfl.roles.ports import Upload
from crowdfl.roles.sp import Sp
from crowdfl.services.bodies import Form, Number, TaskId, Who, parse, read_bytes, spooled, takes_bytes, takes_json
from crowdfl.services.incoming import Incoming
from crowdfl.services.metrics import Metrics
from crowdfl.services.signatures import ByParticipant, Signed

__all__ = ["Finished", "add_upload_routes"]

_UPLOADS = "/v1/tasks/{task}/rounds/{number}/uploads/{who}"
_COMMIT_LIMIT = 4096
_SMALL, _SMALL_PLACES = 1024 * 1024, 4
_Result = TypeVar("_Result")
Offset = Annotated[int, Query(ge=0, le=2**40)]


class Finished(Form):
    """The SHA-256 of a whole upload, in hex."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def add_upload_routes(
    app: FastAPI, sp: Sp, metrics: Metrics, folder: Path, signing: SigningKey, guard: ByParticipant, workers: int
) -> None:
    """The routes of uploads; `workers` bounds how many are in memory, of small ones a few times more."""
    incoming = Incoming(folder / "incoming")
    incoming.sweep()
    acknowledged = metrics.counter("crowdfl_uploads_acknowledged", "Uploads with a receipt", "kind")
    places, small = CapacityLimiter(workers), CapacityLimiter(_SMALL_PLACES * workers)
    limits: dict[str, int] = {}  # follow from a task's definition alone

    async def limit_of(task: str) -> int:
        if task not in limits:
            limits[task] = await to_thread.run_sync(sp.upload_limit, task)
        return limits[task]

    async def owner(who: Who, caller: Annotated[Signed, Depends(guard)]) -> Signed:
        """The participant whose upload it is."""
        if caller.who != who:
            raise Forbidden("nobody uploads for another")
        return caller

    owned = Annotated[Signed, Depends(owner)]

    async def heavy(work: Callable[[], _Result], limit: int) -> _Result:
        return await to_thread.run_sync(work, limiter=small if limit <= _SMALL else places)

    def receive(task: str, number: int, who: str, read: Callable[[], bytes]) -> Response:
        entry, new = sp.receive(task, number, who, read())
        acknowledged.labels("new" if new else "again").inc()
        return JSONResponse(_receipt(task, number, entry, signing), status_code=201 if new else 200)

    def finish(task: str, number: int, who: str, digest: str) -> Response:
        known = sp.store.upload(task, number, who)
        if known is not None and known.digest == digest:  # finished before; the receipt was lost
            incoming.discard(task, number, who)
            acknowledged.labels("again").inc()
            return JSONResponse(_receipt(task, number, known, signing))
        upload = incoming.take(task, number, who, digest)
        response = receive(task, number, who, lambda: upload)
        incoming.discard(task, number, who)  # a refused one stays until it is replaced or swept: the refusal may pass
        return response

    @app.put(_UPLOADS, status_code=201, response_class=JSONResponse, openapi_extra=takes_bytes())
    async def put(request: Request, task: TaskId, number: Number, who: Who, caller: owned) -> Response:
        """A whole upload; the same bytes again are the same upload."""
        limit = await limit_of(task)
        async with spooled(request, limit, folder) as body:
            caller.require_body(body.digest)
            return await heavy(partial(receive, task, number, who, body.read), limit)

    @app.get(_UPLOADS + "/offset")
    def offset(task: TaskId, number: Number, who: Who, caller: owned) -> dict[str, int]:
        """How much of an upload in pieces is in."""
        return {"offset": incoming.offset(task, number, caller.who)}

    @app.patch(_UPLOADS, openapi_extra=takes_bytes())
    async def patch(
        request: Request, task: TaskId, number: Number, who: Who, caller: owned, offset: Offset
    ) -> dict[str, int]:
        """One more piece of an upload."""
        limit = await limit_of(task)
        async with spooled(request, limit, folder) as body:
            caller.require_body(body.digest)
            append = partial(incoming.append, task, number, who, offset, body.file, limit)
            return {"offset": await heavy(append, limit)}

    @app.post(_UPLOADS + "/commit", response_class=JSONResponse, openapi_extra=takes_json(Finished))
    async def commit(request: Request, task: TaskId, number: Number, who: Who, caller: owned) -> Response:
        """All pieces are in."""
        raw = await read_bytes(request, _COMMIT_LIMIT)
        caller.require_body(hashlib.sha256(raw).hexdigest())
        limit = await limit_of(task)
        return await heavy(partial(finish, task, number, who, parse(Finished, raw).digest), limit)


def _receipt(task: str, number: int, entry: Upload, signing: SigningKey) -> dict[str, str]:
    body = {"task": task, "round": number, "who": entry.who, "digest": entry.digest, "late": entry.late}
    return {"receipt": sign_document("receipt", body, signing)}
