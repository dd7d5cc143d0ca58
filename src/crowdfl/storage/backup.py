"""A role's backup: its database, then its files and what it keeps in a bucket, in one archive. The role may run meanwhile.

The database comes first: whatever a row names was written before the row, so that the files that are copied afterwards have it.
Where the role deletes some of them meanwhile, the backup begins anew. An object of a bucket is kept as the file that it would
be in the folder, so that either is restored into either. Left out is what must not come back, or is nobody's state:

- databases, which are copied by their own means, and unfinished writes and uploads
- pools of randomizers: a copy would use them twice
- the passphrase of sealed keys: beside the keys it would protect nothing
- at KGC, shares that were not handed over yet, and what the files of rounds are made from: an archive with both shares would
  be the key
- the guard in a bucket, which shows what has left since
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import BackupDamaged, BackupRefused, Conflict, NotReady
from crowdfl.storage import migrations
from crowdfl.storage.archive import Manifest, OnBytes, unpacked, writing_archive
from crowdfl.storage.blobs import OF_STORE, FileBlobs
from crowdfl.storage.database_copy import copy_database, file_of, put_database
from crowdfl.storage.s3 import S3Blobs
from crowdfl.storage.sealed_blobs import SEALING
from crowdfl.version import __version__

_FILES = "files"
_DATABASE = "database"
_UNFINISHED = "incoming"
_POOL = b"CFLP"  # what a pool of randomizers begins with, whatever its name
_UNDEALT = ("sp", "csp", "requester", "source")
_TRIES = 3  # while the role deletes what is being copied
KEPT = ("blobs", "keys")  # what a role keeps in a bucket in place of its folder


@dataclass(frozen=True)
class BackupSource:
    """What is backed up: a role, its folder, the settings file in it, its database, files that stay out."""

    role: str
    folder: Path
    settings: str
    database: str  # URL
    without: tuple[Path, ...] = ()  # by whatever name they are reached
    objects: Mapping[str, S3Blobs] = field(default_factory=dict)  # by the folder that the bucket stands for

    def objects_now(self) -> Iterator[tuple[str, str]]:
        """The folder and the name of each object."""
        for part, kept in self.objects.items():
            names = [*kept.listing(), *([OF_STORE] if kept.has(OF_STORE) else [])]
            yield from ((part, name) for name in sorted(names))

    def files(self) -> Iterator[tuple[str, Path]]:
        unwanted = frozenset(_identities(self.without))
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_file() and not path.is_symlink() and not self._stays_out(name, path, unwanted):
                yield str(name), path

    def left_out(self) -> list[str]:
        """What an operator must keep elsewhere: links, and what was asked to stay out."""
        links = [path for path in sorted(self.folder.rglob("*")) if path.is_symlink()]
        return [str(path) for path in (*links, *self.without)]

    def size(self) -> int:
        return sum(path.stat().st_size for _, path in self.files() if path.exists())

    def _stays_out(self, name: Path, path: Path, unwanted: frozenset[tuple[int, int]]) -> bool:
        database = file_of(self.database)
        companions = (
            () if database is None else tuple(f"{database.name}{end}" for end in ("", "-wal", "-shm", "-journal"))
        )
        hidden = any(part.startswith(".") for part in name.parts)
        beside = database is not None and path.parent.resolve() == database.parent.resolve()
        of_database = beside and path.name in companions
        undealt = self.role == "kgc" and name.parts[0] == "keys" and path.suffix[1:] in _UNDEALT
        asked = not unwanted.isdisjoint(_identities((path,)))
        unused = name.parts[0] in (_UNFINISHED, *self.objects)
        return hidden or of_database or undealt or asked or unused or _is_pool(path)


def _identities(paths: Sequence[Path]) -> Iterator[tuple[int, int]]:
    """What a file is, whichever links and folders its name goes through."""
    for path in paths:
        with contextlib.suppress(OSError):
            found = path.stat()
            yield found.st_dev, found.st_ino


def _is_pool(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_POOL)) == _POOL
    except FileNotFoundError:
        return False


class _DeletedMeanwhile(Exception):
    """The role has deleted something that it had when the copy of its database was made."""


def write_backup(source: BackupSource, target: Path, on_bytes: OnBytes = lambda _: None) -> Manifest:
    """An archive of all that a role would miss, at `target`, mode 0600.

    A role that goes on deleting is no reason to have no backup: the last try takes what is there.
    """
    if target.resolve().is_relative_to(source.folder.resolve()):  # the next archive would hold this one
        raise BackupRefused(f"{target} is in the role's folder, which is backed up: name a place outside of it")
    for _ in range(_TRIES - 1):
        with contextlib.suppress(_DeletedMeanwhile):
            return _write(source, target, on_bytes, whole=True)
    return _write(source, target, on_bytes, whole=False)


def _write(source: BackupSource, target: Path, on_bytes: OnBytes, *, whole: bool) -> Manifest:
    taken_at = time.time()
    before = {f"{_FILES}/{name}" for name, _ in source.files()} | {
        f"{_FILES}/{part}/{name}" for part, name in source.objects_now()
    }
    copy = target.parent / f".{secret_hex(12)}.part"
    with writing_archive(target, on_bytes) as archive:
        try:
            copy_database(source.database, copy)
            archive.add(_DATABASE, copy)
            revision = migrations.revision_of(f"sqlite:///{copy}")
        finally:
            for companion in ("", "-wal", "-shm"):
                Path(f"{copy}{companion}").unlink(missing_ok=True)
        for name, path in source.files():
            archive.add(f"{_FILES}/{name}", path)
        for part, name in source.objects_now():
            with contextlib.suppress(NotReady), source.objects[part].open(name) as found:
                archive.add_open(f"{_FILES}/{part}/{name}", found)
        if whole and not before <= archive.digests.keys():
            raise _DeletedMeanwhile
        manifest = Manifest(source.role, __version__, taken_at, source.settings, revision, dict(archive.digests))
        archive.finish(manifest)
    return manifest


@contextmanager
def restoring(
    archive: Path, folder: Path, on_bytes: OnBytes = lambda _: None
) -> Iterator[tuple[Manifest, Path, Callable[[str], None]]]:
    """The manifest, the role's files where they are checked, and what puts the database where its URL says.

    The files come to `folder` when this ends well. Until then nothing that was there before is changed.
    """
    with unpacked(archive, folder, _FILES, on_bytes) as (place, manifest):
        copy, files = place / _DATABASE, place / _FILES
        if not copy.is_file() or not (files / manifest.settings).is_file():
            raise BackupDamaged(f"{archive} lacks the database or the settings of its role")
        yield manifest, files, lambda url: put_database(url, copy)


def fill_bucket(objects: Mapping[str, S3Blobs], folder: Path) -> None:
    """Move what a restored folder has of a bucket's into the bucket, which is the same role's, or empty. Safe to repeat."""
    for part, kept in objects.items():
        _require_fitting(part, kept, folder)
    for part, kept in objects.items():
        files = FileBlobs(folder / part, make=False)
        for name in (*files.listing(), *([OF_STORE] if files.has(OF_STORE) else [])):
            try:
                kept.put_file(name, files.folder / name)
            except Conflict:
                raise BackupRefused(
                    f"s3://{kept.folder}/{name} is there with other contents: name an empty bucket, or another prefix"
                ) from None
        shutil.rmtree(files.folder, ignore_errors=True)


def _require_fitting(part: str, kept: S3Blobs, folder: Path) -> None:
    files = FileBlobs(folder / part, make=False)
    own = files.listing()
    if part == "keys" and own and SEALING not in own:
        raise BackupRefused("the keys in the archive are not sealed: whoever runs the bucket could read them")
    if part == "keys" and own and kept.has(SEALING) and kept.get(SEALING) != files.get(SEALING):
        raise BackupRefused(f"s3://{kept.folder} has keys under another passphrase: name another prefix")
    ours = files.get(OF_STORE) if files.has(OF_STORE) else None
    if part == "blobs" and (kept.get(OF_STORE) != ours if kept.has(OF_STORE) else kept.listing()):
        raise BackupRefused(f"s3://{kept.folder} is another role's: name an empty bucket, or another prefix")
