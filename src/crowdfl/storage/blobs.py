"""Blobs: bytes under a name, one file each, written with fsync and an atomic link, owner-only; or in memory; or sealed.

Blobs that nobody reads or alters without the folder's passphrase; their names and lengths stay visible.

One blob, `sealing`, says how the key follows from the passphrase; layout: docs/formats.md.
"""

import contextlib
import io
import shutil
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import BinaryIO, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from crowdfl.crypto.randomness import secret_bytes, secret_hex
from crowdfl.errors import Conflict, FormatError, KeyFileDamaged, NotReady, PassphraseError, StoreUnavailable
from crowdfl.roles.ports import Blobs
from crowdfl.storage.atomic import sync_directory, write_private

_LONGEST_SEGMENT = 200  # file systems take 255, less what a temporary name may add
_LONGEST_NAME = 1000
OF_STORE = "store-id"  # of a folder that belongs to a store, beside its blobs


class KeyBlobs(Blobs, Protocol):
    """What keys are sealed in: a folder, or a bucket."""

    @property
    def folder(self) -> PurePath: ...


class FileBlobs:
    """A folder of blobs. Names are paths of plain segments; nothing outside the folder can be named.

    A full disk, or one that fails, is the OSError that the system raised; nothing half-written is left under a name.
    """

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        self.folder = folder
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
                write_private(path, blobs[name], sync_folder=False)
            except FileExistsError:
                if not path.is_file() or path.read_bytes() != blobs[name]:
                    raise Conflict(f"{name} exists already, with other contents") from None
        for folder in folders:  # of existing blobs too: their writer may not have synced yet
            sync_directory(folder)

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
            sync_directory(path.parent)

    def clear(self, name: str) -> None:
        """Remove everything below a name durably, unfinished writes included. Idempotent."""
        path = self._path(name)
        self._durable = {folder for folder in self._durable if not folder.is_relative_to(path)}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            shutil.rmtree(path)
            sync_directory(path.parent)

    def listing(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_file() and not path.name.startswith(".") and name != OF_STORE:  # hidden: an unfinished write
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    found[name] = path.stat().st_mtime
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

    def listing(self) -> dict[str, float]:
        return dict(self._written)

    def remove_unfinished(self, before: float) -> int:
        """A dictionary holds nothing that is half written."""
        del before
        return 0


def _folders(name: str) -> list[str]:
    """All that it lies in."""
    return [name[:place] for place, sign in enumerate(name) if sign == "/"]


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


_SEALING = "sealing"
_MAGIC = b"CFLS\x01"
_SALT = 16
_HEAD = len(_MAGIC) + 1 + _SALT  # the work factor, and the salt
_NONCE = 12
_WORK_FACTOR = 17  # log2 of scrypt's n: slow on purpose, for those who guess
_LARGEST_WORK_FACTOR = 20  # 1 GiB and some seconds: no file may ask for more


_Keys = TypeVar("_Keys", bound=KeyBlobs)


def require_open(blobs: _Keys) -> _Keys:
    """The same, unless a passphrase is needed to read them."""
    if blobs.has(_SEALING):
        raise PassphraseError(f"{blobs.folder} is sealed: name the file of its passphrase, `passphrase_file`")
    return blobs


class SealedBlobs:
    """The blobs of a folder that was empty when it was given its passphrase."""

    def __init__(self, blobs: KeyBlobs, passphrase: str, work_factor: int = _WORK_FACTOR) -> None:
        self._blobs = blobs
        self.has, self.delete, self.clear = blobs.has, blobs.delete, blobs.clear
        self.remove_unfinished = blobs.remove_unfinished
        if not blobs.has(_SEALING):
            self._begin(passphrase, work_factor)
        told = blobs.get(_SEALING)  # another process may have begun at the same moment: what is there counts
        if len(told) < _HEAD or not told.startswith(_MAGIC) or not 0 < told[len(_MAGIC)] <= _LARGEST_WORK_FACTOR:
            raise KeyFileDamaged(f"{blobs.folder / _SEALING} was altered; restore it from a backup")
        self._cipher = _cipher_from(passphrase, told[_HEAD - _SALT : _HEAD], told[len(_MAGIC)])
        self._open(_SEALING, told[_HEAD:], told[:_HEAD])

    def put(self, name: str, data: bytes) -> None:
        if not self.has(name):
            try:
                return self._blobs.put(name, self._seal(name, data))
            except Conflict:  # someone was faster, and sealed it in another way
                pass
        if self.get(name) != data:
            raise Conflict(f"{name} exists already, with other contents")

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            self.put(name, data)

    def get(self, name: str) -> bytes:
        return self._open(name, self._blobs.get(name), _MAGIC + name.encode())

    def open(self, name: str) -> BinaryIO:
        """All of it at once: a part alone would not show that the rest was altered."""
        return io.BytesIO(self.get(name))

    def listing(self) -> dict[str, float]:
        return {name: written for name, written in self._blobs.listing().items() if name != _SEALING}

    def _begin(self, passphrase: str, work_factor: int) -> None:
        if self._blobs.listing():
            raise PassphraseError(
                f"{self._blobs.folder} holds keys that are not sealed: end their tasks first, or take the passphrase out"
            )
        head = _MAGIC + bytes([work_factor]) + secret_bytes(_SALT)
        nonce = secret_bytes(_NONCE)
        proof = _cipher_from(passphrase, head[-_SALT:], work_factor).encrypt(nonce, b"", head)
        with contextlib.suppress(Conflict):  # another process has begun
            self._blobs.put(_SEALING, head + nonce + proof)

    def _seal(self, name: str, data: bytes) -> bytes:
        nonce = secret_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, _MAGIC + name.encode())

    def _open(self, name: str, sealed: bytes, about: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], about)
        except (InvalidTag, ValueError):
            where = self._blobs.folder / name
            raise PassphraseError(f"{where} does not open: the passphrase is wrong, or the file was altered") from None


def _cipher_from(passphrase: str, salt: bytes, work_factor: int) -> ChaCha20Poly1305:
    if not passphrase:
        raise PassphraseError("the passphrase is empty: give one, or do not set `passphrase_file`")
    try:
        # One keyboard types an accented letter as one character, another as two.
        phrase = unicodedata.normalize("NFKC", passphrase).encode()
    except UnicodeEncodeError:
        raise PassphraseError("the passphrase contains characters that are not valid text") from None
    return ChaCha20Poly1305(Scrypt(salt=salt, length=32, n=1 << work_factor, r=8, p=1).derive(phrase))
