"""Blobs: bytes under a name, one file each, written with fsync and an atomic rename, owner-only."""

import os
from collections.abc import Iterator
from pathlib import Path

from crowdfl.errors import Conflict, FormatError, NotThereYet
from crowdfl.storage.atomic import write_private

__all__ = ["FileBlobs"]


class FileBlobs:
    """A folder of blobs. Names are paths of plain segments; nothing outside the folder can be named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, name: str, data: bytes) -> None:
        """Write once; the same bytes again are fine, other bytes are a `Conflict`."""
        path = self._path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            write_private(path, data)
        except FileExistsError:
            if path.read_bytes() != data:
                raise Conflict(f"{name} is there already, with other contents") from None

    def get(self, name: str) -> bytes:
        """Read, or `NotThereYet`."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            raise NotThereYet(f"{name} is not there (yet)") from None

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return self._path(name).is_file()

    def delete(self, name: str) -> None:
        """Remove durably; gone already is fine."""
        path = self._path(name)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def names(self) -> Iterator[str]:
        """Every blob there is."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self.folder))

    def _path(self, name: str) -> Path:
        segments = name.split("/")
        if not all(
            segment and segment.strip(".") and segment.isprintable() and "\\" not in segment for segment in segments
        ):
            raise FormatError(f"{name!r} is no name of a blob")
        return self.folder.joinpath(*segments)
