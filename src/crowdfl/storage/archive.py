"""An archive of files: written as a whole or not at all, its owner's alone, with the digest of every file in a last member.

An archive that was cut off lacks the last member; one that was altered does not fit it. Nothing is left of either.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import BackupDamaged, BackupRefused
from crowdfl.storage.atomic import sync_directory

_MANIFEST = "manifest"
_FORM = 1
_LARGEST_MANIFEST = 1 << 30
_PIECE = 1 << 20
OnBytes = Callable[[int], object]


@dataclass(frozen=True)
class Manifest:
    """What an archive says about itself."""

    role: str
    program: str  # the version that made it
    taken_at: float
    settings: str  # the name of the settings file in the role's folder
    revision: str | None  # of its tables
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 by name
    form: int = _FORM

    @classmethod
    def parse(cls, data: bytes) -> "Manifest":
        body, _, digest = data.rpartition(b"\n")
        try:
            manifest = cls(**json.loads(body))
            if hashlib.sha256(body).hexdigest() != digest.decode():
                raise ValueError("another digest")
        except (ValueError, TypeError, RecursionError):
            raise BackupDamaged(
                "the archive's manifest cannot be read: it was altered, or it is not a backup"
            ) from None
        if manifest.form != _FORM:
            raise BackupDamaged(
                f"the archive is of form {manifest.form!r}, this program reads {_FORM}: update the program"
            )
        texts = (manifest.role, manifest.program, manifest.settings, manifest.revision or "")
        if not all(isinstance(text, str) for text in texts) or not isinstance(manifest.files, dict):
            raise BackupDamaged("the archive's manifest is not of the documented form")
        return manifest

    def to_bytes(self) -> bytes:
        """JSON, and its own digest in a second line."""
        body = json.dumps(asdict(self)).encode()
        return body + b"\n" + hashlib.sha256(body).hexdigest().encode()


class ArchiveWriter:
    """Adds files; what was read is what the manifest names."""

    def __init__(self, file: IO[bytes], on_bytes: OnBytes) -> None:
        self._tar = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)
        self._on_bytes = on_bytes
        self.digests: dict[str, str] = {}

    def add(self, name: str, path: Path) -> bool:
        """One file as it is now; False if it is gone, or is not a regular file."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except (FileNotFoundError, OSError):
            if path.is_symlink() or not path.exists():
                return False
            raise
        with open(descriptor, "rb") as file:
            self.add_open(name, file)
        return True

    def add_open(self, name: str, file: IO[bytes]) -> None:
        """All of what was opened, from its first byte."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        reader = _Hashing(file, self._on_bytes)
        self._tar.addfile(_member(name, size), reader)
        self.digests[name] = reader.digest.hexdigest()

    def finish(self, manifest: Manifest) -> None:
        data = manifest.to_bytes()
        member = _member(_MANIFEST, len(data))
        with contextlib.closing(self._tar):
            self._tar.addfile(member, io.BytesIO(data))


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


@dataclass
class _Hashing:
    """A file that is hashed while it is read."""

    file: IO[bytes]
    on_bytes: OnBytes
    digest: Any = field(default_factory=hashlib.sha256)

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.digest.update(data)
        self.on_bytes(len(data))
        return data


@contextlib.contextmanager
def writing_archive(target: Path, on_bytes: OnBytes) -> Iterator[ArchiveWriter]:
    """An archive at `target`, mode 0600, there once this ends well; a taken name is refused."""
    if target.exists() or target.is_symlink():
        raise BackupRefused(f"{target} exists already: name another file")
    temporary = target.parent / f".{secret_hex(12)}.part"
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            yield ArchiveWriter(file, on_bytes)
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise BackupRefused(f"{target} exists already: name another file") from None
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(target.parent)


@contextlib.contextmanager
def unpacked(archive: Path, target: Path, inner: str, on_bytes: OnBytes) -> Iterator[tuple[Path, Manifest]]:
    """The files of an archive in a new folder beside `target`, every one compared with the manifest.

    What it has in its folder `inner` becomes `target`, which must be free or an empty folder, when this ends well. The rest
    goes; and all of it, if this does not end well.
    """
    _require_free(target)
    folder = target.parent / f".{target.name}.{secret_hex(8)}.part"
    folder.mkdir(mode=0o700)
    try:
        manifest = _unpack(archive, folder, on_bytes)
        yield folder, manifest
        for made in (folder / inner, *(path for path in folder.rglob("*") if path.is_dir())):
            sync_directory(made)
        _require_free(target)
        (folder / inner).rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync_directory(target.parent)


def _require_free(target: Path) -> None:
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise BackupRefused(f"{target} is not an empty folder: name one that does not exist")
    if not target.parent.is_dir():
        raise BackupRefused(f"{target.parent} is not a folder")


def read_manifest(archive: Path) -> Manifest:
    """What an archive says about itself; its files are not compared with it."""
    return _read(archive, lambda _tar, _member: "")[0]


def _unpack(archive: Path, folder: Path, on_bytes: OnBytes) -> Manifest:
    manifest, found = _read(archive, lambda tar, member: _extract(tar, member, folder, on_bytes))
    if found != dict(manifest.files):
        raise BackupDamaged(f"{archive} was altered: its files are not those that its manifest names")
    return manifest


def _read(archive: Path, take: Callable[[tarfile.TarFile, tarfile.TarInfo], str]) -> tuple[Manifest, Mapping[str, str]]:
    """The manifest, and what `take` makes of each file."""
    found: dict[str, str] = {}
    manifest = None
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if manifest is not None or member.name in found:
                    raise BackupDamaged(f"{archive} holds something after its end, or a file twice: it was altered")
                if member.name == _MANIFEST:
                    manifest = Manifest.parse(_small(tar, member))
                else:
                    found[member.name] = take(tar, member)
    except (tarfile.TarError, EOFError, UnicodeError) as wrong:
        raise BackupDamaged(f"{archive} is truncated, altered, or not a backup: {type(wrong).__name__}") from None
    if manifest is None:
        raise BackupDamaged(f"{archive} is truncated, or not a backup: its manifest is missing")
    return manifest, found


def _small(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member) if member.isreg() and member.size <= _LARGEST_MANIFEST else None
    if file is None:
        raise BackupDamaged("the archive's manifest is not a file, or too long")
    return file.read()


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, on_bytes: OnBytes) -> str:
    """A regular file inside the folder, mode 0600; its digest. Whatever else an archive may name is refused."""
    path = folder / member.name
    is_plain = not os.path.isabs(member.name) and ".." not in Path(member.name).parts
    is_inside = is_plain and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    file = tar.extractfile(member) if member.isreg() and is_inside else None
    if file is None:
        raise BackupDamaged(f"the archive holds {member.name[:100]!r}, which is not a plain file: it was altered")
    reader = _Hashing(file, on_bytes)
    try:
        _make_folders(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise BackupDamaged(f"the archive holds {member.name[:100]!r} twice: it was altered") from None
    with open(descriptor, "wb") as written:
        shutil.copyfileobj(reader, written, _PIECE)
        written.flush()
        os.fsync(descriptor)
    return str(reader.digest.hexdigest())


def _make_folders(folder: Path) -> None:
    """Each its owner's alone."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700)
