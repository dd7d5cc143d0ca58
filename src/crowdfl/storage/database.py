"""How a database is opened, and what its failures are called here. SQLite (WAL) by default, PostgreSQL by URL."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, event, make_url, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, DataError, NoSuchModuleError, SQLAlchemyError, StatementError

from crowdfl.errors import CrowdFLError, FormatError, StoreExposed, StoreOutdated, StoreUnavailable
from crowdfl.retry import Backoff, retry
from crowdfl.storage.atomic import require_owner_only

_PATIENCE = 30  # seconds to wait for another writer
_SHORT_PATIENCE = 1  # seconds to wait for readers where a later try does as well
_CONNECTIONS = 20  # kept open, and as many again in a rush: a service answers on 40 threads
_WRITERS_LOCK = 0x43464C  # PostgreSQL advisory lock: one writer at a time, as SQLite has it
_READING = "crowdfl_reading"
_PG_FULL, _PG_NO_TABLE, _PG_NO_COLUMN = "53100", "42P01", "42703"


def open_engine(url: str) -> Engine:
    """Nothing is connected yet."""
    parsed = _parse(url)
    try:
        # Parameters hold mask seeds: they stay out of every message.
        engine = create_engine(
            parsed,
            hide_parameters=True,
            pool_pre_ping=parsed.get_backend_name() != "sqlite",  # a file cannot disconnect
            pool_size=_CONNECTIONS,
            max_overflow=_CONNECTIONS,
            connect_args=_arguments(parsed),
        )
    except (ImportError, NoSuchModuleError) as missing:
        raise StoreUnavailable(f"{parsed.drivername} needs a package that is not installed: {missing}") from None
    if engine.dialect.name == "sqlite":
        _make_private(parsed)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "connect", _prepare_postgresql)
    return engine


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that holds the one writers' lock from its start: what it reads is still true when it writes."""
    with named_errors(engine), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _WRITERS_LOCK})
        yield connection


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads the last committed state and waits for no writer."""
    with named_errors(engine), engine.connect().execution_options(**{_READING: True}) as connection, connection.begin():
        yield connection


@contextlib.contextmanager
def named_errors(engine: Engine) -> Iterator[None]:
    """Turn what the driver raises into errors of this project; a full disk stays the OSError that it is."""
    try:
        yield
    except SQLAlchemyError as problem:
        raise _named(problem, engine.url.render_as_string(hide_password=True)) from None


def truncate_log(engine: Engine) -> None:
    """Move SQLite's write-ahead log into the database and empty it, unless somebody reads: then the next one does.

    Rows that were deleted are overwritten with zeros in the database (`secure_delete`); the log would keep them for a while.
    """
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        raw.cursor().execute(f"PRAGMA busy_timeout={_SHORT_PATIENCE * 1000}")
        raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.cursor().execute(f"PRAGMA busy_timeout={_PATIENCE * 1000}")
    except sqlite3.OperationalError:  # another process is busy with the log
        raw.invalidate()
    finally:
        raw.close()


def _named(problem: SQLAlchemyError, where: str) -> Exception:
    cause = problem.orig if isinstance(problem, StatementError) else None
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    if isinstance(cause, CrowdFLError):  # a column refused a value
        return cause
    if code in (_PG_FULL, "SQLITE_FULL"):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)
    if code in (_PG_NO_TABLE, _PG_NO_COLUMN) or str(cause).startswith(("no such table", "no such column")):
        return StoreOutdated(f"{where} lacks tables that this program needs: run its migrations")
    if isinstance(problem, DataError):
        return FormatError(f"the database cannot hold this value: {type(cause).__name__}")
    said = str(cause if cause is not None else problem).strip().splitlines()
    return StoreUnavailable(f"{where} cannot be used now: {said[0] if said else type(problem).__name__}")


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreUnavailable("the database URL is not of the form sqlite:///FILE or postgresql://HOST/NAME") from None
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreUnavailable(f"{parsed.drivername} is not supported: use sqlite or postgresql")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreUnavailable("an in-memory database is lost with the process: use sqlite:///FILE")
    if parsed.get_backend_name() == "sqlite" and ("uri" in parsed.query or str(parsed.database).startswith("file:")):
        raise StoreUnavailable("SQLite's own URIs are not supported: use sqlite:///FILE")
    return parsed


def _arguments(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {"timeout": _PATIENCE}
    return {} if "connect_timeout" in url.query else {"connect_timeout": 10}


def _make_private(url: URL) -> None:
    """Create the file with mode 0600; SQLite gives its companion files the same mode. One that others can read is refused."""
    path = Path(str(url.database))
    try:
        _require_private(path, os.O_RDWR | os.O_CREAT)
        for companion in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):  # there while somebody uses the database, or after a crash
                _require_private(path.with_name(path.name + companion), os.O_RDONLY)
    except OSError as problem:
        raise StoreUnavailable(f"{path} cannot be opened: {problem.strerror}") from None


def _require_private(path: Path, how: int) -> None:
    descriptor = os.open(path, how, 0o600)
    try:
        require_owner_only(descriptor, path, StoreExposed)
    finally:
        os.close(descriptor)


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy, not the driver, says when a transaction begins
    connection.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten: mask seeds, what CSP remembers
    connection.execute("PRAGMA synchronous=FULL")  # in WAL too, a commit is on disk when it returns
    if _ask_for_wal(connection) != ("wal",):
        raise sqlite3.OperationalError("its file system does not support a write-ahead log; use a local disk")


def _ask_for_wal(connection: sqlite3.Connection) -> object:
    """Two processes that create the file at the same time block each other, and SQLite does not wait here by itself."""
    return retry(
        lambda: connection.execute("PRAGMA journal_mode=WAL").fetchone(),
        Backoff.steady(0.01, deadline=_PATIENCE),
        sqlite3.OperationalError,
        passing=lambda busy: "locked" in str(busy),
    )


def _begin_sqlite(connection: Connection) -> None:
    # A deferred transaction that becomes a writer halfway fails at once, whatever the timeout: writers begin as such.
    deferred = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if deferred else "BEGIN IMMEDIATE")


def _prepare_postgresql(connection: Any, _record: object) -> None:  # noqa: ANN401 -- the driver is optional
    # As SQLite: a writer waits so long and no longer; and one that hangs inside a transaction does not hold up the rest.
    connection.execute(f"SET lock_timeout = '{_PATIENCE}s'")
    connection.execute(f"SET idle_in_transaction_session_timeout = '{2 * _PATIENCE}s'")
    connection.commit()
