"""A database copied while it is in use, and put back: SQLite by its online backup, PostgreSQL by pg_dump and pg_restore.

The copy is of one moment: all of every transaction that was committed by then, and nothing else.
"""

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import sqlalchemy as sa

from crowdfl.errors import BackupDamaged, BackupError, BackupRefused, BackupToolMissing
from crowdfl.storage.database import open_engine, reading
from crowdfl.storage.tables import metadata

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
