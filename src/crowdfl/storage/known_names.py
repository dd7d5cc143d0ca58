"""Blobs of a folder that one process has to itself: their names are listed once, and looked up in memory from then on.

A participant asks at every look what it keeps of each round so far: on disk, a thousand rounds are eight million questions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from crowdfl.roles.ports import Blobs
from crowdfl.storage.blobs import require_blob_name


class KnownNames:
    """The same blobs. What fails half-way is listed again."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._names: set[str] | None = None
        self.get, self.listing, self.remove_unfinished = blobs.get, blobs.listing, blobs.remove_unfinished

    def has(self, name: str) -> bool:
        return require_blob_name(name) in self._known()

    def open(self, name: str) -> BinaryIO:
        return self._blobs.open(name)

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        known, self._names = self._known(), None
        self._blobs.put_all(blobs)
        known.update(blobs)
        self._names = known

    def put_file(self, name: str, file: Path) -> None:
        known, self._names = self._known(), None
        self._blobs.put_file(name, file)
        known.add(name)
        self._names = known

    def delete(self, name: str) -> None:
        if self.has(name):
            known, self._names = self._known(), None
            self._blobs.delete(name)
            known.discard(name)
            self._names = known

    def clear(self, folder: str) -> None:
        self._names = None
        self._blobs.clear(folder)

    def _known(self) -> set[str]:
        if self._names is None:
            self._names = set(self._blobs.listing())
        return self._names
