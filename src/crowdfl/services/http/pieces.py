"""Long bodies that come in pieces: each is held against its leaf as it ends, and kept until all have come."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated

from anyio import to_thread
from fastapi import Query, Request

from crowdfl.crypto.leaves import Leaf
from crowdfl.crypto.own_files import CHECKED, Mark
from crowdfl.errors import BadSignature, Conflict, FormatError, LimitExceeded, NotReady, Truncated
from crowdfl.protocols.messages import HEADER_BYTES, LENGTH_BYTES
from crowdfl.protocols.uploads import Head, parcel_head_bytes
from crowdfl.roles.kept_file import KeptFile
from crowdfl.services.http.bodies import Body, spooled

_PIECE = 1024 * 1024
_TRIES = 100  # of a piece that meets others of the same file
_STALE_SECONDS = 7 * 24 * 3600.0
Offset = Annotated[int, Query(ge=0, le=2**40)]
Total = Annotated[int, Query(ge=1, le=2**32 - 1)]


@dataclass(frozen=True)
class UnfinishedFiles:
    """What comes in pieces, on disk: one unfinished file of each key, which its name begins with, resumed at its length.

    A piece is appended once it has arrived whole and fits its leaf in the head, which comes first and which the name of all is
    the hash of. What a crash damages, the leaves find at the end, and all is sent again.
    """

    folder: Path
    now: Callable[[], float] = time.time  # of the file system, not of a campaign
    _marks: dict[Path, list[Mark]] = field(default_factory=dict, repr=False)  # of what this process has checked

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def length(self, path: Path) -> int:
        with suppress(FileNotFoundError):
            return path.stat().st_size
        return 0

    def beginning(self, path: Path, length: int) -> bytes:
        with suppress(FileNotFoundError), path.open("rb") as file:
            return file.read(length)
        return b""

    def pieces(self, path: Path, digest: str, offset: int, head: int) -> "ArrivingPieces":
        """To hold what comes at this offset against its leaves; so many bytes of the file are its head."""
        known = self.beginning(path, head) if offset else b""
        if offset and len(known) < head:
            raise Conflict(f"{len(known)} bytes have arrived, not {offset}: start again at 0")
        return ArrivingPieces(digest, Head.of(known) if offset else head, offset)

    def append(self, path: Path, offset: int, piece: IO[bytes], limit: int, marks: Sequence[Mark] = ()) -> int:
        """Add a piece at an offset, which is the present length, or 0 to start again; the new length."""
        with self._open(path, anew=offset == 0) as file:
            length = file.seek(0, os.SEEK_END)
            if offset not in (0, length):
                raise Conflict(f"{length} bytes have arrived, not {offset}: go on from there, or start again at 0")
            if offset + piece.seek(0, os.SEEK_END) > limit:
                raise LimitExceeded(f"more bytes than this has, which are {limit}")
            known = self._marks.get(path, []) if offset else []
            try:
                file.truncate(offset)
                file.seek(offset)
                piece.seek(0)
                shutil.copyfileobj(piece, file, _PIECE)
                file.flush()
            except OSError:  # a full disk leaves no half piece behind
                file.truncate(offset)
                raise
            if marks and sum(one.length for one in known) == offset:
                self._marks[path] = [*known, *marks]
            return file.tell()

    def add(self, path: Path, offset: int, body: Body, limit: int, pieces: "ArrivingPieces") -> int:
        """A body, all of whose pieces were held against their leaves on the way."""
        pieces.require_whole(body.length)
        body.file.seek(0)
        return self.append(
            path, offset, body.file, limit, [CHECKED.mark(body.file.read(length)) for length in pieces.whole]
        )

    def checked(self, path: Path, file: IO[bytes], digest: str, length: int) -> tuple[Head, list[Mark]]:
        """Its head, of so many bytes, and marks of all, once every piece fits its leaf; `Truncated` if some is missing."""
        try:
            head = Head.of(file.read(length))
        except FormatError:
            raise cut(length) from None
        size = file.seek(0, os.SEEK_END)
        if head.digest != digest or size != head.length:
            raise cut(size)
        marks = self._marks.get(path, [])
        if sum(one.length for one in marks) != size:
            file.seek(0)
            marks = []
            for index, part in enumerate(head.parts()):
                piece, leaf = file.read(part.stop - part.start), Leaf(head.total, index)
                leaf.update(memoryview(piece)[len(head.data) :] if index == 0 else piece)
                try:
                    head.require_leaf(index, leaf)
                except BadSignature:
                    raise cut(size) from None
                marks.append(CHECKED.mark(piece))
        return head, marks

    def sweep(self) -> int:
        """Remove what nobody has continued for a week, in folders below too; returns how many."""
        swept = 0
        for path in self.folder.rglob("*.part"):
            with suppress(FileNotFoundError):  # finished at this moment
                if self.now() - path.stat().st_mtime > _STALE_SECONDS:
                    self.unlink(path)
                    swept += 1
        return swept

    def remove_all(self, beginning: str) -> None:
        """All whose names begin so."""
        for path in self.folder.glob(f"{beginning}*.part"):
            self.unlink(path)

    def unlink(self, path: Path) -> None:
        self._marks.pop(path, None)
        path.unlink(missing_ok=True)

    @contextmanager
    def _open(self, path: Path, *, anew: bool) -> Iterator[IO[bytes]]:
        """To begin anew is another file: that of before may be an upload that was acknowledged, or is read at this moment."""
        for other in self.folder.glob(f"{path.name.split('.')[0]}.*.part"):
            if other != path:
                self.unlink(other)  # of another round, or other bytes: one unfinished file each bounds the disk
        for _ in range(_TRIES):
            with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # pieces of one file may come at once, here or in another process
                if not _is_at(path, file):
                    continue
                if anew and file.seek(0, os.SEEK_END):
                    path.unlink(missing_ok=True)
                    continue
                yield file
                return
        raise Conflict("others keep sending this at the same time: send it again")

    @contextmanager
    def held(self, path: Path) -> Iterator[None]:
        """Nobody adds to it meanwhile, or begins it anew."""
        with ExitStack() as stack:
            for _ in range(_TRIES):
                try:
                    file = stack.enter_context(path.open("rb"))
                except FileNotFoundError:
                    break
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_at(path, file):
                    break
            yield


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """Whether this open file still lies there: another request may have begun it anew, or finished it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


async def take_parcel(
    request: Request, files: UnfinishedFiles, path: Path, name: str, offset: int, total: int
) -> dict[str, int]:
    """One more piece, or several, of the parcel of this name, which is said to hold `total` bytes."""
    head = parcel_head_bytes(total)
    pieces = await to_thread.run_sync(files.pieces, path, name, offset, head)
    async with spooled(request, head + total, files.folder, over=pieces.take) as body:
        return {"offset": await to_thread.run_sync(files.add, path, offset, body, head + total, pieces)}


def open_parcel(files: UnfinishedFiles, path: Path, name: str) -> KeptFile:
    """What is in it, once all of it has come."""
    try:
        with path.open("rb") as file:
            head = _parcel_head(file)
            files.checked(path, file, name, head)
        return KeptFile(path.open("rb"), head)
    except FileNotFoundError:
        raise NotReady("nothing of this has arrived: send it from offset 0") from None


def _parcel_head(file: IO[bytes]) -> int:
    """Bytes of it. `checked` finds whether it is one."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    leaves = int.from_bytes(file.read(HEADER_BYTES + LENGTH_BYTES)[HEADER_BYTES:], "big")
    file.seek(0)
    return min(size, HEADER_BYTES + 2 * LENGTH_BYTES + leaves)


def cut(length: int) -> Truncated:
    return Truncated(f"the {length} bytes here are not the upload that was signed: send the rest, or start again at 0")


class ArrivingPieces:
    """Pieces of an upload on their way, one or several, the first with the head: each is held against its leaf as it ends."""

    def __init__(self, digest: str, head: Head | int, offset: int) -> None:
        self._digest, self._offset = digest, offset
        self._begun, self._needs = b"", 0
        self._head, self._index = Head(b"", b"", 0), 0
        self._parts: list[slice] = []  # of the upload, that are still to come
        self.whole: list[int] = []  # bytes of those that have come
        self._leaf: Leaf | None = None  # of the present one
        self._left = 0  # bytes of it
        if isinstance(head, int):
            self._needs = head
        else:
            self._continue(head)

    def _continue(self, head: Head) -> None:
        """What was signed for is known from here on."""
        self._head, parts = head, head.parts()
        starts = [part.start for part in parts]
        if self._offset not in starts:
            raise Conflict(
                f"no piece of this upload begins at {self._offset}: ask how much has arrived, and go on from there"
            )
        self._index = starts.index(self._offset)
        self._parts = parts[self._index :]
        self._next()

    def _next(self) -> None:
        part = self._parts[0]
        self._leaf = Leaf(self._head.total, self._index)
        self._left = part.stop - max(part.start, len(self._head.data))

    def take(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        if len(self._begun) < self._needs:
            missing = self._needs - len(self._begun)
            self._begun, rest = self._begun + bytes(rest[:missing]), rest[missing:]
            if len(self._begun) < self._needs:
                return
            self._continue(self._signed_head())
        while rest:
            if self._leaf is None:
                raise BadSignature("more bytes than this upload has")
            taken = min(self._left, len(rest))
            self._leaf.update(rest[:taken])
            self._left, rest = self._left - taken, rest[taken:]
            if not self._left:
                self._end(self._leaf)

    def _end(self, leaf: Leaf) -> None:
        """Of a piece."""
        self._head.require_leaf(self._index, leaf)
        part = self._parts.pop(0)
        self.whole.append(part.stop - part.start)
        self._index, self._leaf = self._index + 1, None
        if self._parts:
            self._next()

    def _signed_head(self) -> Head:
        with suppress(FormatError):
            head = Head.of(self._begun)
            if head.digest == self._digest and len(head.data) == self._needs:
                return head
        raise BadSignature("this upload does not begin with the head that was signed: it was altered")

    def require_whole(self, length: int) -> None:
        """So many bytes have come, which end where a piece ends."""
        if length != sum(self.whole):
            raise BadSignature("this upload was cut off within a piece, or altered")
