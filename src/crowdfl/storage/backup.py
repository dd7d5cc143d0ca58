"""A role's backup: its database, then its files, in one archive. The role may run meanwhile.

The database comes first: whatever a row names was written before the row, so that the files that are copied afterwards have it,
unless the role has deleted it since, as it may at any time. Left out is what must not come back, or is nobody's state:

- databases, which are copied by their own means, and unfinished writes and uploads
- pools of randomizers: a copy would use them twice
- the passphrase of sealed keys: beside the keys it would protect nothing
- at KGC, shares that were not handed over yet, and what the files of rounds are made from: an archive with both shares would
  be the key
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import BackupDamaged
from crowdfl.storage import migrations
from crowdfl.storage.archive import Manifest, OnBytes, unpacked, writing_archive
from crowdfl.storage.database_copy import copy_database, file_of, kind_of, put_database
from crowdfl.version import __version__

_FILES = "files"
_DATABASE = "database"
_UNFINISHED = "incoming"
_POOL = b"CFLP"  # what a pool of randomizers begins with, whatever its name
_UNDEALT = ("sp", "csp", "requester", "source")


@dataclass(frozen=True)
class BackupSource:
    """What is backed up: a role, its folder, the settings file in it, its database, files that stay out."""

    role: str
    folder: Path
    settings: str
    database: str  # URL
    without: tuple[Path, ...] = ()  # by whatever name they are reached

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
        return hidden or of_database or undealt or asked or name.parts[0] == _UNFINISHED or _is_pool(path)


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


def write_backup(source: BackupSource, target: Path, on_bytes: OnBytes = lambda _: None) -> Manifest:
    """An archive of all that a role would miss, at `target`, mode 0600."""
    taken_at = time.time()
    copy = target.parent / f".{secret_hex(12)}.part"
    with writing_archive(target, on_bytes) as archive:
        try:
            copy_database(source.database, copy)
            archive.add(_DATABASE, copy)
        finally:
            copy.unlink(missing_ok=True)
        for name, path in source.files():
            archive.add(f"{_FILES}/{name}", path)
        kind = kind_of(source.database)
        revision = migrations.revision_of(source.database)
        digests = dict(archive.digests)
        manifest = Manifest(source.role, __version__, taken_at, source.settings, kind, revision, digests)
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

        def put(url: str) -> None:
            if kind_of(url) != manifest.database:
                raise BackupDamaged(
                    f"the backup is of {manifest.database}, and its settings name another kind of database"
                )
            put_database(url, copy)

        yield manifest, files, put
