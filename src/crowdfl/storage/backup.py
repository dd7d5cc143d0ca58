"""A role's backup: its database, then its files, in one archive. The role may run meanwhile.

The database comes first: whatever a row names was written before the row, so that the files that are copied afterwards have it,
unless the role has deleted it since, as it may at any time. Left out is what must not come back, or is nobody's state:

- databases, which are copied by their own means, and unfinished writes and uploads
- pools of randomizers: a copy would use them twice
- the passphrase of sealed keys: beside the keys it would protect nothing
- at KGC, shares that were not handed over yet, and what the files of rounds are made from: an archive with both shares would
  be the key


A database is copied while it is in use, and put back: SQLite by its online backup, PostgreSQL by pg_dump and pg_restore. The
copy is of one moment: all of every transaction that was committed by then, and nothing else.
"""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import BackupDamaged, BackupError, BackupRefused, BackupToolMissing
from crowdfl.storage import migrations
from crowdfl.storage.archive import Manifest, OnBytes, unpacked, writing_archive
from crowdfl.storage.database import open_engine, reading
from crowdfl.storage.tables import metadata
from crowdfl.version import __version__

_PG_FOLDER = Path("/usr/lib/postgresql")
_TABLES = (*metadata.tables, "alembic_version")
_SECRETS = ("password", "sslpassword", "passfile")  # never on a command line, which others can read


def kind_of(url: str) -> str:
    return sa.make_url(url).get_backend_name()


def file_of(url: str) -> Path | None:
    """Where an SQLite database lies."""
    parsed = sa.make_url(url)
    return Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None


def url_words(url: str) -> str:
    """A database's URL as it may be shown: nothing secret is in it."""
    known = sa.make_url(url).difference_update_query(_SECRETS)
    shown = sa.URL.create(known.drivername, known.username, None, known.host, known.port, known.database, known.query)
    return shown.render_as_string(hide_password=False)


def copy_database(url: str, target: Path) -> None:
    """Copy it to a file of its owner's alone, which must not be there yet."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    source = file_of(url)
    if source is not None:
        _copy_sqlite(source, target)
    else:
        _dump_postgresql(url, target)


def put_database(url: str, copy: Path) -> None:
    """Put a copy where the URL says; nothing may be there. Completely or not at all."""
    target = file_of(url)
    if target is not None:
        _put_sqlite(copy, target)
    else:
        _restore_postgresql(url, copy)


def _copy_sqlite(source: Path, target: Path) -> None:
    if not source.is_file():
        raise BackupError(f"there is no database at {source}: start the role once, or name its settings")
    try:
        with (
            contextlib.closing(sqlite3.connect(source, timeout=30)) as live,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            live.backup(copy)  # in one step: writers go on beside it, and cannot make it begin again
            (found,) = copy.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as wrong:
        raise BackupError(f"{source} cannot be copied: {wrong}") from None
    if found != "ok":
        raise BackupError(f"{source} is damaged ({found}): repair it, or restore an earlier backup")


def _put_sqlite(copy: Path, target: Path) -> None:
    if any(Path(f"{target}{companion}").exists() for companion in ("", "-wal", "-shm")):
        raise BackupRefused(f"there is a database at {target} already: move it away first")
    try:
        with contextlib.closing(sqlite3.connect(copy)) as found:
            found.execute("SELECT count(*) FROM tasks").fetchone()
    except sqlite3.Error as wrong:
        raise BackupDamaged(f"the archive's database cannot be read: {wrong}") from None
    for companion in ("-wal", "-shm"):
        Path(f"{copy}{companion}").unlink(missing_ok=True)
    # Copied: it may go to another file system.
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file, open(copy, "rb") as found:
        shutil.copyfileobj(found, file)
        file.flush()
        os.fsync(file.fileno())


def _dump_postgresql(url: str, target: Path) -> None:
    """The tables of the schema that the role works in, and nothing else of the database."""
    with _inspected(url) as (schema, there):
        tables = [table for table in _TABLES if table in there]
    if not tables:
        raise BackupError("the database has no tables of this program: start the role once")
    chosen = [f'--table="{schema}"."{table}"' for table in tables]
    how = ("--format=custom", "--no-owner", "--no-privileges", f"--file={target}")
    run_tool("pg_dump", url, (*how, *chosen))


def _restore_postgresql(url: str, copy: Path) -> None:
    with _inspected(url) as (schema, there):
        taken = sorted(there & set(_TABLES))
    if taken:
        raise BackupRefused(f"the database has a table {taken[0]!r} already: name an empty one in the settings")
    how = ("--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", f"--schema={schema}")
    run_tool("pg_restore", url, (*how, str(copy)))
    with _inspected(url) as (schema, there):
        if "tasks" not in there:
            raise BackupRefused(f"the backup is of another schema than {schema!r}: restore it into one of that name")


@contextlib.contextmanager
def _inspected(url: str) -> Iterator[tuple[str, set[str]]]:
    """The schema that a role would work in, and the tables there."""
    engine = open_engine(url)
    try:
        with reading(engine) as connection:
            schema = connection.execute(sa.text("SELECT current_schema()")).scalar()
            yield str(schema), set(sa.inspect(connection).get_table_names(schema))
    finally:
        engine.dispose()


def run_tool(name: str, url: str, arguments: Sequence[str]) -> None:
    where, secret = _connection(url)
    # A program of the system's package, and arguments from the operator's own settings; no shell reads them.
    done = subprocess.run(  # noqa: S603
        [_tool(name), f"--dbname={where}", "--no-password", *arguments],
        env=os.environ | secret,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise BackupError(f"{name} failed: {said[-1] if said else f'status {done.returncode}'}")


def _tool(name: str) -> str:
    found = shutil.which(name)
    places = sorted(_PG_FOLDER.glob(f"*/bin/{name}"), key=lambda path: path.parent.parent.name.zfill(4))
    if found is None and not places:
        raise BackupToolMissing(
            f"{name} is not on PATH: install PostgreSQL's client programs, of the server's version or a newer one"
        )
    return found or str(places[-1])


def _connection(url: str) -> tuple[str, Mapping[str, str]]:
    """How libpq reaches it, without secrets; and those, for its environment."""
    parsed = sa.make_url(url)
    found = {
        name: str(value) for name, value in parsed.translate_connect_args(username="user", database="dbname").items()
    }
    found |= {name: value if isinstance(value, str) else ",".join(value) for name, value in parsed.query.items()}
    names = {"password": "PGPASSWORD", "passfile": "PGPASSFILE"}
    secret = {names[name]: found[name] for name in names if name in found}
    return " ".join(f"{name}={_quoted(value)}" for name, value in found.items() if name not in _SECRETS), secret


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


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
        kind, revision = kind_of(source.database), migrations.revision_of(source.database)
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
