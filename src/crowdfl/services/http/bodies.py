"""Request bodies: limits known before anything is read, JSON checked against a model, large ones on disk."""

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, TypeVar

from anyio import to_thread
from fastapi import Path as InPath
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from crowdfl.crypto.long_bytes import Long
from crowdfl.errors import FormatError, LimitExceeded, TooSlow
from crowdfl.roles.kept_file import KeptFile
from crowdfl.services.http.wire import OCTETS


@dataclass
class Pace:
    """How slowly a body may come: a pause of `idle` seconds at most, and after `patience` at least `rate` bytes a second."""

    idle: float = 20.0
    patience: float = 60.0
    rate: float = 4096.0


JSON_LIMIT = 4 * 1024 * 1024  # two documents of the longest kind, escaped
SMALL_LIMIT = (
    8 * 1024
)  # a certificate with its chain, or an invitation with a request to enrol: less than 2 KiB, escaped
PACE = Pace()
IN_MEMORY = 256 * 1024  # a body up to here never touches the disk

TaskId = Annotated[str, InPath(pattern="^[0-9a-f]{64}$")]
Who = Annotated[str, InPath(pattern="^[0-9a-f]{20}$")]
Invited = Annotated[
    str, InPath(pattern="^([0-9a-f]{20}|[0-9a-f]{32})$")
]  # a name in the task, or an invitation's number
Number = Annotated[int, InPath(ge=1, le=1_000_000)]
Item = Annotated[int, InPath(ge=0, le=1_000_000)]  # that is paid: a round, or the bonus, which is none
Sha256 = Annotated[str, InPath(pattern="^[0-9a-f]{64}$")]


class Form(BaseModel):
    """A JSON body: what is not documented is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SignedOrder(Form):
    """A signed order."""

    order: str


class CertificateForm(Form):
    """A certificate of KGC's."""

    certificate: str


class EnrolmentForm(CertificateForm):
    """The same, and its owner's consent where the task asks for one."""

    consent: str | None = None


_Form = TypeVar("_Form", bound=Form)


@dataclass(frozen=True)
class Body:
    """A body that has arrived, with its digest unless something else has gone over it."""

    file: IO[bytes]
    digest: str
    length: int

    def read(self) -> bytes:
        self.file.seek(0)
        return self.file.read()

    def later(self) -> Long:
        """To be looked at when the request that brought it may have ended; a long one stays on disk."""
        if self.length <= IN_MEMORY:
            return self.read()
        return KeptFile(os.fdopen(os.dup(self.file.fileno()), "rb"))


def known_task(look_up: Callable[[str], object]) -> Callable[[str], None]:
    """A dependency: the task that the path names is here, which is looked up before anything else of the request is read."""

    def require(task: TaskId) -> None:
        look_up(task)

    return require


def json_body(model: type[_Form], limit: int = JSON_LIMIT) -> Callable[[Request], Awaitable[_Form]]:
    """A dependency that reads a JSON body. FastAPI's own would read it before the caller is authenticated."""

    async def read(request: Request) -> _Form:
        return parse(model, await read_bytes(request, limit))

    return read


def parse(model: type[_Form], raw: bytes) -> _Form:
    try:
        return model.model_validate_json(raw)
    except ValidationError as wrong:
        raise RequestValidationError(wrong.errors(include_input=False, include_url=False)) from None


def binary_body(limit: int) -> Callable[[Request], Awaitable[bytes]]:
    async def read(request: Request) -> bytes:
        return await read_bytes(request, limit)

    return read


async def read_bytes(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    await _read(request, limit, chunks.append)
    return b"".join(chunks)


@contextlib.asynccontextmanager
async def spooled(
    request: Request, limit: int, folder: Path, over: Callable[[bytes], object] | None = None
) -> AsyncIterator[Body]:
    """A body of at most `limit` bytes in a file without a name: gone when this ends, even if the process is killed.

    `over` sees its bytes as they come, in place of the hash."""
    digest = hashlib.sha256()
    see = over or digest.update
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY, dir=str(folder)) as file:

        def take(chunk: bytes) -> None:
            see(chunk)
            file.write(chunk)

        await _read(request, limit, take)
        yield Body(file, "" if over else digest.hexdigest(), file.tell())


def takes_json(model: type[Form]) -> dict[str, Any]:
    """For OpenAPI, which cannot see the dependency."""
    return _takes("application/json", model.model_json_schema())


def takes_bytes() -> dict[str, Any]:
    return _takes(OCTETS, {"type": "string", "format": "binary"})


def _takes(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


async def _read(request: Request, limit: int, take: Callable[[bytes], object]) -> None:
    """Take the pieces of a body as they come; refuse one that is too long or too slow."""
    announced = request.headers.get("content-length", "0")
    if not announced.isascii() or not announced.isdigit() or len(announced) > 20:
        raise FormatError("Content-Length must be a whole number")
    if int(announced) > limit:
        raise LimitExceeded(f"a body of {announced} bytes; the limit here is {limit}")
    try:
        await _paced(request, limit, take)
    except TimeoutError:
        raise TooSlow("the body came too slowly: send it again, over a slow connection in smaller pieces") from None


async def _paced(request: Request, limit: int, take: Callable[[bytes], object]) -> None:
    """TimeoutError when a pause is too long, or when all of it comes too slowly."""
    now = asyncio.get_running_loop().time
    taken, started = 0, now()
    async with asyncio.timeout(PACE.idle) as pause:
        async for chunk in request.stream():
            taken += len(chunk)
            if taken > limit:
                raise LimitExceeded(f"a body of more than {limit} bytes, which is the limit here")
            take(chunk)
            pause.reschedule(min(now() + PACE.idle, started + PACE.patience + taken / PACE.rate))


_PIECE = 64 * 1024


class FileResponse(StreamingResponse):
    """The rest of a file, which is closed at the end, whether the reader has stayed for it or not."""

    def __init__(self, file: BinaryIO, length: int) -> None:
        super().__init__(_pieces(file, length), media_type=OCTETS, headers={"Content-Length": str(length)})
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def download(file: BinaryIO) -> Response:
    """An answer with what is in this file; a short one is read at once."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    if length > _PIECE:
        return FileResponse(file, length)
    with file:
        return Response(file.read(), media_type=OCTETS)


async def _pieces(file: BinaryIO, length: int) -> AsyncIterator[bytes]:
    left = length
    while left:
        piece = await to_thread.run_sync(file.read, min(_PIECE, left))
        if not piece:
            raise EOFError("the file became shorter while it was sent")
        left -= len(piece)
        yield piece
