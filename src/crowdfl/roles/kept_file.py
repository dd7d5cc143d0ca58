"""A file that is looked at piece by piece, as it is where it lies."""

import os
import weakref
from pathlib import Path
from typing import BinaryIO

from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.roles.ports import Blobs


class KeptFile:
    """What follows the head of a file; closed when nobody holds it."""

    def __init__(self, file: BinaryIO, head: int = 0, path: Path | None = None) -> None:
        """`path`: where all of it lies, if it has no head, so that it can be given another name."""
        self._file, self.path = file, path
        weakref.finalize(self, file.close)
        file.seek(0)
        self.head = file.read(head)
        self._length = file.seek(0, os.SEEK_END) - head

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, piece: slice) -> bytes:
        first, last, _ = piece.indices(self._length)
        self._file.seek(len(self.head) + first)
        return self._file.read(max(0, last - first))


def put_long(blobs: Blobs, name: str, data: Long) -> None:
    """As `put`, without a copy in memory of what is in a file."""
    if isinstance(data, KeptFile) and data.path is not None:
        blobs.put_file(name, data.path)
    else:
        blobs.put(name, whole(data))
