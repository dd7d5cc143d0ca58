"""Blobs: bytes under a name, one file each, written with fsync and an atomic link, owner-only; or in memory."""

import contextlib
import io
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from crowdfl.errors import Conflict, FormatError, NotReady
from crowdfl.storage.atomic import sync_directory, write_private

_LONGEST_SEGMENT = 200  # file systems take 255, less what a temporary name may add
_LONGEST_NAME = 1000


class FileBlobs:
    """A folder of blobs. Names are paths of plain segments; nothing outside the folder can be named.

    A full disk, or one that fails, is the OSError that the system raised; nothing half-written is left under a name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._durable = {folder} if folder.is_dir() else set()  # folders known to survive a power cut
        self._make_folder(folder)

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        """A folder is made durable once for all that went into it."""
        paths = {name: self._path(name) for name in blobs}
        folders = {path.parent: name for name, path in paths.items()}
        for folder, name in folders.items():
            try:
                self._make_folder(folder)
            except NotADirectoryError:
                raise Conflict(f"{name} cannot be stored: a part of its name is a blob already") from None
        for name, path in paths.items():
            try:
                write_private(path, blobs[name], sync_folder=False)
            except FileExistsError:
                if not path.is_file() or path.read_bytes() != blobs[name]:
                    raise Conflict(f"{name} exists already, with other contents") from None
        for folder in folders:  # of existing blobs too: their writer may not have synced yet
            sync_directory(folder)

    def get(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotReady(f"{name} does not exist (yet)") from None

    def open(self, name: str) -> BinaryIO:
        try:
            return self._path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotReady(f"{name} does not exist (yet)") from None

    def has(self, name: str) -> bool:
        return self._path(name).is_file()

    def delete(self, name: str) -> None:
        path = self._path(name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            sync_directory(path.parent)

    def clear(self, name: str) -> None:
        """Remove everything below a name durably, unfinished writes included. Idempotent."""
        path = self._path(name)
        self._durable = {folder for folder in self._durable if not folder.is_relative_to(path)}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            shutil.rmtree(path)
            sync_directory(path.parent)

    def names(self) -> Iterator[str]:
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):  # hidden: an unfinished write
                yield str(path.relative_to(self.folder))

    def listing(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in self.names():
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                found[name] = (self.folder / name).stat().st_mtime
        return found

    def remove_unfinished(self, before: float) -> int:
        stale = [path for path in self.folder.rglob(".*.part") if _written_before(path, before)]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    def _make_folder(self, folder: Path) -> None:
        """Create it and its parents, each private and each durable: a file survives only if its folders do."""
        if folder.is_dir() and (folder in self._durable or not folder.is_relative_to(self.folder)):
            return
        self._make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is not a folder")
        sync_directory(folder.parent)  # of an existing one too: its creator may not have synced yet
        self._durable.add(folder)

    def _path(self, name: str) -> Path:
        return self.folder / require_blob_name(name)


class MemoryBlobs:
    """Blobs in a dictionary, under the names that `FileBlobs` takes."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
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
                if self._below(name) or any(str(folder) in self._blobs for folder in PurePosixPath(name).parents):
                    raise Conflict(f"{name} cannot be stored: it is a part of a blob's name, or a part of it is a blob")
                if self._blobs.setdefault(name, data) != data:
                    raise Conflict(f"{name} exists already, with other contents")
                self._written.setdefault(name, time.time())

    def get(self, name: str) -> bytes:
        if not self.has(name):
            raise NotReady(f"{name} does not exist (yet)")
        return self._blobs[name]

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.get(name))

    def has(self, name: str) -> bool:
        return require_blob_name(name) in self._blobs

    def delete(self, name: str) -> None:
        self._blobs.pop(require_blob_name(name), None)
        self._written.pop(name, None)

    def clear(self, folder: str) -> None:
        with self._lock:
            for name in self._below(require_blob_name(folder)):
                del self._blobs[name], self._written[name]

    def names(self) -> Iterator[str]:
        return iter(sorted(self._blobs))

    def listing(self) -> dict[str, float]:
        return dict(self._written)

    def remove_unfinished(self, before: float) -> int:
        """A dictionary holds nothing that is half written."""
        del before
        return 0

    def _below(self, folder: str) -> list[str]:
        return [name for name in self._blobs if name.startswith(f"{folder}/")]


def require_blob_name(name: str) -> str:
    """A path of plain segments: no parent folder, nothing hidden, nothing that a file system could interpret."""
    if len(name) > _LONGEST_NAME or not all(map(_is_plain, name.split("/"))):
        raise FormatError(f"{name[:100]!r} is not a valid blob name")
    return name


def _written_before(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:  # its writer has finished
        return False


def _is_plain(segment: str) -> bool:
    short = 0 < len(segment) <= _LONGEST_SEGMENT
    return short and segment[0] != "." and segment.isascii() and segment.isprintable() and "\\" not in segment
