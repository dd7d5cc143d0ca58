"""How a database is opened, and what its failures are called here. SQLite (WAL) by default, PostgreSQL by URL.

`Database` opens transactions. Every method of a store is one; inside `transaction` several are. Writers take the writers' lock
at once, so that what a transaction read is still true when it writes; a read outside `transaction` waits for nobody. A database
in memory has one connection, which threads take in turn.
"""

import contextlib
import errno
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, StaticPool, Table, create_engine, event, inspect, make_url, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError, DataError, NoSuchModuleError, SQLAlchemyError, StatementError

from crowdfl.errors import CrowdFLError, FormatError, StoreExposed, StoreOutdated, StoreTooNew, StoreUnavailable
from crowdfl.retry import Backoff, retry
from crowdfl.roles.ports import Events, ignore_event
from crowdfl.storage import tables
from crowdfl.storage.atomic import require_owner_only
from crowdfl.storage.tables import metadata

_PATIENCE = 30  # seconds to wait for another writer
_SHORT_PATIENCE = 1  # seconds to wait for readers where a later try does as well
_CONNECTIONS = 20  # kept open, and as many again in a rush: a service answers on 40 threads
_WRITERS_LOCK = 0x43464C  # PostgreSQL advisory lock: one writer at a time, as SQLite has it
_READING = "crowdfl_reading"
_REVISION = text("SELECT version_num FROM alembic_version")
_PG_FULL, _PG_NO_TABLE, _PG_NO_COLUMN = "53100", "42P01", "42703"


class Database:
    """Transactions, and the events of what became durable in them.

    Threads and processes may share one database, each process with an object of its own.
    """

    def __init__(self, url: str | None, events: Events = ignore_event) -> None:
        """Without a URL: in memory."""
        self.engine: Engine = open_engine(url) if url is not None else _open_in_memory()
        self.listeners: list[Events] = [events]  # who is told of each change, after its commit; none of them raises
        self.at_commit: Callable[[str], None] = _let_it_be  # hears "before" and "after" each commit; an error undoes it
        self._local = threading.local()
        self._process = os.getpid()
        self._memory = _MemoryConnection(self.engine) if url is None else None
        self._is_migrated: bool | None = None if url is not None else False
        # One that nobody closed lets go when it is collected; at the very end the system does that anyway.
        weakref.finalize(self, _let_go, self.engine, self._process).atexit = False

    @classmethod
    def in_memory(cls) -> Self:
        """One that is lost with the process, with its tables."""
        made = cls(None)
        with made._write() as c:
            for statement in _statements():
                c.exec_driver_sql(statement)
        return made

    @classmethod
    def on(cls, connection: Connection) -> Self:
        """Inside a transaction of somebody else's, for this thread, whose changes it sees."""
        found = cls(connection.engine.url.render_as_string(hide_password=False))
        found._local.connection, found._local.events = connection, []
        return found

    def check_tables(self) -> None:
        """`StoreTooNew` as soon as another version has migrated them."""
        with self._read() as c:
            self._require_same_tables(c)

    def rows(self, table: Table) -> Iterator[dict[str, Any]]:
        """All of a table, as they are."""
        with self._read() as c:
            for row in c.execute(table.select()):
                yield row._asdict()

    def create_tables(self) -> None:
        """For tests and temporary stores; `migrations.upgrade` makes the others."""
        with self._write() as c:
            metadata.create_all(c)

    def close(self) -> None:
        self.engine.dispose()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Several calls of this thread as one transaction. A nested one is a savepoint of the outer one."""
        open_one = self._open_one()
        if open_one is None:
            with self._write():
                yield
            return
        outer = self._local.events
        self._local.events = []
        try:
            with open_one.begin_nested():
                yield
            outer += self._local.events
        finally:
            self._local.events = outer

    @contextlib.contextmanager
    def _write(self) -> Iterator[Connection]:
        """Events wait for the commit: what is rolled back was never there."""
        open_one = self._open_one()
        if open_one is not None:
            yield open_one
            return
        events: list[tuple[str, dict[str, object]]] = []
        with writing(self.engine) if self._memory is None else self._memory.writing() as connection:
            self._require_same_tables(connection)
            self._local.connection, self._local.events = connection, events
            try:
                yield connection
                self.at_commit("before")
            finally:
                self._local.connection = None
        self.at_commit("after")
        for name, fields in events:
            for listener in self.listeners:
                listener(name, **fields)

    def _read(self) -> contextlib.AbstractContextManager[Connection]:
        open_one = self._open_one()
        if open_one is not None:
            return contextlib.nullcontext(open_one)
        return reading(self.engine) if self._memory is None else self._memory

    def _require_same_tables(self, connection: Connection) -> None:
        """A process that still runs when another version has migrated the database writes nothing more."""
        if self._is_migrated is None:  # not in tests, whose tables come from nowhere
            self._is_migrated = inspect(connection).has_table("alembic_version")
        if self._is_migrated and (found := connection.execute(_REVISION).scalar()) != tables.REVISION:
            raise StoreTooNew(
                f"the database is at {found}, and this process works with {tables.REVISION}: another version runs on it. Stop "
                "this process"
            )

    def _tell(self, event: str, **fields: object) -> None:
        """Inside `_write`."""
        self._local.events.append((event, fields))

    def _open_one(self) -> Connection | None:
        if self._process != os.getpid():  # forked: the parent's connections are not ours to use, nor to close
            if self._memory is None:  # else what is in memory is a copy, and ours
                self.engine.dispose(close=False)
            self._local, self._process = threading.local(), os.getpid()
        connection: Connection | None = getattr(self._local, "connection", None)
        return connection

    def _overwrite_log(self) -> None:
        """What was deleted leaves the log of writes too; inside a transaction, whoever commits next does that."""
        if self._open_one() is None and self._memory is None:
            truncate_log(self.engine)


def revision_in(connection: Connection) -> str | None:
    """As Alembic keeps it; None of a database without."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(_REVISION).scalar()
    return found


def _let_it_be(_moment: str) -> None:
    """Nobody watches commits but a host that ends processes at them."""


class _MemoryConnection:
    """The one connection to a database in memory; as a context manager, for reading.

    SQLAlchemy sees one transaction without an end. The driver commits by itself, but inside `writing`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection = engine.connect()
        self._lock = threading.RLock()
        self._driver: Any = self._connection.connection

    def __enter__(self) -> Connection:
        self._lock.acquire()
        return self._connection

    def __exit__(self, _kind: object, problem: BaseException | None, _where: object) -> None:
        self._lock.release()
        if isinstance(problem, SQLAlchemyError):
            raise _named(problem, "the database in memory") from None

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        with self as connection:
            self._driver.execute("BEGIN")
            try:
                yield connection
            except BaseException:
                self._driver.execute("ROLLBACK")
                raise
            self._driver.execute("COMMIT")


@cache
def _statements() -> tuple[str, ...]:
    """What makes the tables in SQLite: SQLAlchemy takes six times as long to write it as SQLite to execute it."""
    blank = Database(None)
    blank.create_tables()
    with blank._read() as c:
        return tuple(c.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").scalars())


def _let_go(engine: Engine, process: int) -> None:
    """A forked child closes none of its parent's connections: that would drop the parent's locks."""
    engine.dispose(close=os.getpid() == process)


def _open_in_memory() -> Engine:
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, hide_parameters=True, connect_args={"check_same_thread": False}
    )
    event.listen(engine, "connect", lambda connection, _record: setattr(connection, "isolation_level", None))
    return engine


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
