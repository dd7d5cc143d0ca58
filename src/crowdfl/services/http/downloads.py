"""Long answers: sent from their files piece by piece, as fast as the reader takes them; none lies in memory as a whole."""

import os
from collections.abc import AsyncIterator
from typing import BinaryIO

from anyio import to_thread
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from crowdfl.services.http.wire import OCTETS

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
