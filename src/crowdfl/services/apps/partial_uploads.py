"""Uploads that come in pieces: one unfinished upload per participant and task, on disk, resumed at its length.

A piece is appended once all of it is in and fits its signature. Nothing here is acknowledged: what a crash damages, the digest
given at the end finds, and the participant starts again.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from crowdfl.errors import Conflict, LimitExceeded, NotReady, Truncated

__all__ = ["Incoming"]

_PIECE = 1024 * 1024
_STALE_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Incoming:
    """A folder of unfinished uploads."""

    folder: Path
    now: Callable[[], float] = time.time  # of the file system, not of a campaign

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def offset(self, task: str, number: int, who: str) -> int:
        """Bytes that are in."""
        with suppress(FileNotFoundError):
            return self._path(task, number, who).stat().st_size
        return 0

    def append(self, task: str, number: int, who: str, offset: int, piece: IO[bytes], limit: int) -> int:
        """Add a piece at an offset, which is the present length, or 0 to start again; the new length."""
        with self._open(task, number, who) as file:
            length = file.seek(0, os.SEEK_END)
            if offset not in (0, length):
                raise Conflict(f"{length} bytes are in, not {offset}: go on from there, or start again at 0")
            if offset + piece.seek(0, os.SEEK_END) > limit:
                raise LimitExceeded(f"an upload of this task has at most {limit} bytes")
            try:
                file.truncate(offset)
                file.seek(offset)
                piece.seek(0)
                shutil.copyfileobj(piece, file, _PIECE)
                file.flush()
            except OSError:  # a full disk leaves no half piece behind
                file.truncate(offset)
                raise
            return file.tell()

    def take(self, task: str, number: int, who: str, digest: str) -> bytes:
        """The finished upload, if it has this digest."""
        try:
            upload = self._path(task, number, who).read_bytes()
        except FileNotFoundError:
            raise NotReady("nothing of this upload is here: send it from offset 0") from None
        if hashlib.sha256(upload).hexdigest() != digest:
            raise Truncated(
                f"the {len(upload)} bytes that are in have another digest: send the rest, or start again at 0"
            )
        return upload

    def discard(self, task: str, number: int, who: str) -> None:
        """It is acknowledged, or refused."""
        self._path(task, number, who).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Remove what nobody has continued for a week; how many."""
        stale = [path for path in self.folder.glob("*.part") if self.now() - path.stat().st_mtime > _STALE_SECONDS]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    @contextmanager
    def _open(self, task: str, number: int, who: str) -> Iterator[IO[bytes]]:
        path = self._path(task, number, who)
        for other in self.folder.glob(f"{path.name.split('.')[0]}.*.part"):
            if other != path:
                other.unlink(missing_ok=True)  # of another round: one unfinished upload each bounds the disk
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # pieces of one upload that come at once, here or in another process
            yield file

    def _path(self, task: str, number: int, who: str) -> Path:
        return self.folder / f"{hashlib.sha256(f'{task} {who}'.encode()).hexdigest()[:32]}.{number}.part"
