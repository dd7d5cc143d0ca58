"""A database copied while it is in use, and put back: PostgreSQL or SQLite into an SQLite file, and that into either.

The copy is of one moment: all of every transaction that was committed by then, and nothing else. Tables are read off the
database, whatever state of the program they are of.
"""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import sqlalchemy as sa

from crowdfl.errors import BackupDamaged, BackupError, BackupRefused
from crowdfl.storage.database import named_errors, open_engine, writing
from crowdfl.storage.tables import metadata

_TABLES = (*metadata.tables, "alembic_version")
_SECRETS = ("password", "sslpassword", "passfile")  # never shown, nor typed where others can read it
_ROWS = 1000  # at a time
_NAMED = ("", "-wal", "-shm")  # what one SQLite database is kept in


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
    """Copy it to an SQLite file of its owner's alone, which must not be there yet."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    source = file_of(url)
    if source is not None:
        _copy_sqlite(source, target)
        return
    engine = open_engine(url)
    try:
        with named_errors(engine), engine.connect() as found, _plain(target).begin() as copy:
            # A snapshot: what others commit meanwhile is not in it.
            _copy_tables(found.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True), copy)
    finally:
        engine.dispose()


def put_database(url: str, copy: Path) -> None:
    """Put a copy where the URL says; nothing may be there. Completely or not at all."""
    _require_whole(copy)
    target = file_of(url)
    if target is not None:
        _put_sqlite(copy, target)
        return
    engine = open_engine(url)
    try:
        with writing(engine) as connection, _plain(copy).connect() as found:
            if taken := sorted(set(sa.inspect(connection).get_table_names()) & set(_TABLES)):
                raise BackupRefused(f"the database has a table {taken[0]!r} already: name an empty one")
            _copy_tables(found, connection)
    finally:
        engine.dispose()


def _plain(path: Path) -> sa.Engine:
    """One file and no log beside it."""
    return sa.create_engine(f"sqlite:///{path}", hide_parameters=True, poolclass=sa.NullPool)


def _copy_tables(source: sa.Connection, target: sa.Connection) -> None:
    known = sorted(set(sa.inspect(source).get_table_names()) & set(_TABLES))
    if "tasks" not in known:
        raise BackupError("the database has no tables of this program: start the role once")
    found, made = sa.MetaData(), sa.MetaData()
    found.reflect(source, only=known)
    for table in found.sorted_tables:
        _made_like(table, made)
    made.create_all(target)
    for name, table in made.tables.items():
        rows = source.execution_options(yield_per=_ROWS).execute(sa.select(found.tables[name]))
        for part in rows.mappings().partitions():
            target.execute(sa.insert(table), [dict(row) for row in part])
        _count_on(table, target)


def _made_like(table: sa.Table, into: sa.MetaData) -> sa.Table:
    """The same table for either kind of database."""
    known = metadata.tables.get(table.name)
    columns = [
        sa.Column(
            one.name,
            sa.Float(53)
            if isinstance(one.type, sa.Float)
            else one.type.as_generic(),  # each kind has a name of its own
            primary_key=one.primary_key,
            nullable=one.nullable,
            autoincrement=known is not None and one.name in known.c and known.c[one.name].autoincrement is True,
        )
        for one in table.columns
    ]
    unique = [one for one in table.constraints if isinstance(one, sa.UniqueConstraint)]
    constraints = [sa.UniqueConstraint(*one.columns.keys(), name=one.name) for one in unique]
    indexes = [sa.Index(str(one.name), *one.columns.keys(), unique=one.unique) for one in table.indexes]
    return sa.Table(table.name, into, *columns, *constraints, *indexes)


def _count_on(table: sa.Table, connection: sa.Connection) -> None:
    """Where PostgreSQL numbers rows itself, it goes on after those that were put there."""
    column = table.autoincrement_column
    if column is None or connection.dialect.name != "postgresql":
        return
    last = connection.execute(sa.select(sa.func.max(column))).scalar()
    if last is not None:
        sequence = sa.func.pg_get_serial_sequence(f'"{table.name}"', column.name)
        connection.execute(sa.select(sa.func.setval(sequence, last)))


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


def _require_whole(copy: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(copy)) as found:
            found.execute("SELECT count(*) FROM tasks").fetchone()
    except sqlite3.Error as wrong:
        raise BackupDamaged(f"the archive's database cannot be read: {wrong}") from None
    for companion in _NAMED[1:]:
        Path(f"{copy}{companion}").unlink(missing_ok=True)


def _put_sqlite(copy: Path, target: Path) -> None:
    if any(Path(f"{target}{companion}").exists() for companion in _NAMED):
        raise BackupRefused(f"there is a database at {target} already: move it away first")
    # Copied: it may go to another file system.
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file, open(copy, "rb") as found:
        shutil.copyfileobj(found, file)
        file.flush()
        os.fsync(file.fileno())
