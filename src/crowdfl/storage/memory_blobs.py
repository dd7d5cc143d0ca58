"""Blobs in memory: nothing survives the process."""

import io
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from crowdfl.errors import Conflict, NotReady
from crowdfl.storage.blobs import require_blob_name


class MemoryBlobs:
    """Blobs in a dictionary, under the names that `FileBlobs` takes."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._blobs: dict[str, bytes] = {}
        self._folders: Counter[str] = Counter()  # how many blobs lie below each
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name in blobs:
            require_blob_name(name)
        with self._lock:
            for name, data in blobs.items():
                # As in a file system, a blob is not a folder.
                if self._folders[name] or any(folder in self._blobs for folder in _folders(name)):
                    raise Conflict(f"{name} cannot be stored: it is a part of a blob's name, or a part of it is a blob")
                if name not in self._blobs:
                    self._blobs[name], self._written[name] = data, self._now()
                    self._folders.update(_folders(name))
                elif self._blobs[name] != data:
                    raise Conflict(f"{name} exists already, with other contents")

    def put_file(self, name: str, file: Path) -> None:
        self.put(name, file.read_bytes())

    def get(self, name: str) -> bytes:
        if not self.has(name):
            raise NotReady(f"{name} does not exist (yet)")
        return self._blobs[name]

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.get(name))

    def has(self, name: str) -> bool:
        return require_blob_name(name) in self._blobs

    def delete(self, name: str) -> None:
        if self.has(name):
            del self._blobs[name], self._written[name]
            self._folders.subtract(_folders(name))

    def clear(self, folder: str) -> None:
        inside = f"{require_blob_name(folder)}/"
        with self._lock:
            for name in [name for name in self._blobs if name.startswith(inside)]:
                self.delete(name)

    def listing(self, inside: str = "") -> dict[str, float]:
        return {name: when for name, when in self._written.items() if not inside or name.startswith(f"{inside}/")}

    def remove_unfinished(self, before: float) -> int:
        """A dictionary holds nothing that is half written."""
        del before
        return 0


def _folders(name: str) -> list[str]:
    """All that it lies in."""
    return [name[:place] for place, sign in enumerate(name) if sign == "/"]
