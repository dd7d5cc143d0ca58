"""Blobs: bytes under a name, one file each, written with fsync and an atomic link, owner-only."""

import contextlib
import errno
import filecmp
import os
import shutil
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import Conflict, FormatError, NotReady, StoreUnavailable
from crowdfl.storage.atomic import sync_directory, sync_file, write_private

_LONGEST_SEGMENT = 200  # file systems take 255, less what a temporary name may add
_LONGEST_NAME = 1000
_COPIED = 1 << 20  # bytes at a time
OF_STORE = "store-id"  # of a folder that belongs to a store, beside its blobs


class FileBlobs:
    """A folder of blobs. Names are paths of plain segments; nothing outside the folder can be named.

    A full disk, or one that fails, is the OSError that the system raised; nothing half-written is left under a name.
    """

    def __init__(self, folder: Path, *, make: bool = True, durable: bool = True) -> None:
        """`durable=False`, of a simulation: waits for no disk, so that a power cut may take what a dead process has left."""
        self.folder = folder
        self._waits = durable
        self._store: str | None = None
        self._durable = {folder} if folder.is_dir() else set()  # folders known to survive a power cut
        if make:
            self._make_folder(folder)

    def name(self) -> str:
        """That the folder carries, and a new one for a folder that carries none."""
        with contextlib.suppress(FileExistsError):
            write_private(self.folder / OF_STORE, secret_hex(16).encode())
        return (self.folder / OF_STORE).read_text("ascii", "replace")

    def bind(self, store: str) -> None:
        """The folder of the store of this name from now on: if it is another's, or not there, nothing is read or written."""
        self._store = store
        self.require_own()

    def require_own(self) -> None:
        """Else files that are elsewhere would look lost, and new ones would be written beside them."""
        if self._store is None:
            return
        try:
            found = (self.folder / OF_STORE).read_text("ascii", "replace")
        except OSError:
            found = ""
        if found != self._store:
            whose = "belongs to another database" if found else f"is empty, or not there: it has no file {OF_STORE}"
            raise StoreUnavailable(f"{self.folder} {whose}. Mount the folder of this database, or restore both")

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        """A folder is made durable once for all that went into it."""
        self.require_own()
        paths = {name: self._path(name) for name in blobs}
        folders = {path.parent: name for name, path in paths.items()}
        for folder, name in folders.items():
            try:
                self._make_folder(folder)
            except NotADirectoryError:
                raise Conflict(f"{name} cannot be stored: a part of its name is a blob already") from None
        for name, path in paths.items():
            try:
                write_private(path, blobs[name], sync=self._waits, sync_folder=False)
            except FileExistsError:
                if not path.is_file() or path.read_bytes() != blobs[name]:
                    raise Conflict(f"{name} exists already, with other contents") from None
        for folder in folders:  # of existing blobs too: their writer may not have synced yet
            self._sync(folder)

    def put_file(self, name: str, file: Path) -> None:
        """A second name of the file, where that can be; a copy elsewhere."""
        self.require_own()
        path = self._path(name)
        self._make_folder(path.parent)
        if self._waits:
            sync_file(file)
        try:
            os.link(file, path)
        except FileExistsError:
            if not path.is_file() or not filecmp.cmp(file, path, shallow=False):
                raise Conflict(f"{name} exists already, with other contents") from None
        except OSError as wrong:
            if wrong.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            self._copy(name, file)
        self._sync(path.parent)

    def _copy(self, name: str, file: Path) -> None:
        """From another file system: beside its name first, so that no part of it ever stands there."""
        near = self._path(name).with_name(f".{secret_hex(12)}.part")
        try:
            with (
                open(os.open(near, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy,
                file.open("rb") as whole,
            ):
                shutil.copyfileobj(whole, copy, _COPIED)
            self.put_file(name, near)
        finally:
            near.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def open(self, name: str) -> BinaryIO:
        try:
            return self._path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self.require_own()
            raise NotReady(f"{name} does not exist (yet)") from None

    def has(self, name: str) -> bool:
        return self._path(name).is_file()

    def delete(self, name: str) -> None:
        path = self._path(name)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            self._sync(path.parent)

    def clear(self, name: str) -> None:
        """Remove everything below a name durably, unfinished writes included. Idempotent."""
        path = self._path(name)
        self._durable = {folder for folder in self._durable if not folder.is_relative_to(path)}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            shutil.rmtree(path)
            self._sync(path.parent)

    def listing(self, inside: str = "") -> dict[str, float]:
        found, root = dict[str, float](), os.fspath(self.folder)
        for folder, _, names in os.walk(self.folder / require_blob_name(inside) if inside else self.folder):
            place = folder[len(root) + 1 :]
            for last in names:  # paths as text: a guard lists its notes before every step
                name = f"{place}/{last}" if place else last
                if not last.startswith(".") and name != OF_STORE:  # hidden: an unfinished write
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        found[name] = os.stat(f"{folder}/{last}").st_mtime
        return dict(sorted(found.items()))

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
        self._sync(folder.parent)  # of an existing one too: its creator may not have synced yet
        self._durable.add(folder)

    def _sync(self, folder: Path) -> None:
        if self._waits:
            sync_directory(folder)

    def _path(self, name: str) -> Path:
        return self.folder / require_blob_name(name)


@lru_cache(maxsize=4096)
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
