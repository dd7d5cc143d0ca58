"""Calls inside `transaction` stand or fall together; failures have names; nothing leaks."""

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import event, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import QueuePool
from tests.storage.papers import DEFINITION

from crowdfl.errors import AlreadyCounted, NotEnoughMoney, StoreUnavailable
from crowdfl.roles.records import Movement, Round, StoredTask, Upload
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER
from crowdfl.storage import database
from crowdfl.storage.sql import SqlStore
from crowdfl.storage.tables import sp_records

TASK = StoredTask("t", DEFINITION, "appointment", "running")
OVERDRAFT = Movement("fund round 1", ESCROW, "round 1", 1)
Opener = Callable[[], SqlStore]


class Interrupted(BaseException):
    """What a signal raises, past every `except Exception`."""


def run(store: SqlStore, *calls: Callable[[], object]) -> None:
    with store.transaction():
        for call in calls:
            call()


def connections_out(store: SqlStore) -> int:
    assert isinstance(store.engine.pool, QueuePool)
    return store.engine.pool.checkedout()


def test_a_failing_call_takes_all_others_with_it(sql_store: SqlStore):
    """And the connection goes back; the next transaction is a fresh one."""
    put = partial(sql_store.set_round, "t", None, Round(1, 1.0))
    with pytest.raises(NotEnoughMoney):
        run(sql_store, partial(sql_store.add_task, TASK), put, partial(sql_store.post, "t", OVERDRAFT))
    assert sql_store.tasks() == []
    assert sql_store.rounds("t") == []
    assert connections_out(sql_store) == 0
    sql_store.add_task(TASK)
    assert sql_store.tasks() == [TASK]


@pytest.mark.parametrize("stop", [Interrupted, ValueError, KeyboardInterrupt])
def test_whatever_ends_a_transaction_early_undoes_it(sql_store: SqlStore, stop: type[BaseException]):
    """Errors that are not the sql_store's, and those that nobody catches."""

    def give_up() -> None:
        raise stop

    with pytest.raises(stop):
        run(sql_store, partial(sql_store.add_task, TASK), give_up)
    assert sql_store.tasks() == []
    assert connections_out(sql_store) == 0


def test_calls_inside_see_each_other_and_others_see_them_at_the_end(sql_store: SqlStore, open_store: Opener):
    """Another process reads the last committed state meanwhile, without waiting."""
    other = open_store()
    with sql_store.transaction():
        sql_store.add_task(TASK)
        assert sql_store.tasks() == [TASK]
        assert other.tasks() == []
    assert other.tasks() == [TASK]


def test_another_thread_of_the_same_store_is_not_inside(sql_store: SqlStore):
    """It reads what was committed, and gets a transaction of its own."""
    seen: list[list[StoredTask]] = []
    with sql_store.transaction():
        sql_store.add_task(TASK)
        thread = threading.Thread(target=lambda: seen.append(sql_store.tasks()))
        thread.start()
        thread.join(10)
    assert seen == [[]]


def test_a_transaction_inside_another_falls_alone_and_ends_with_it(sql_store: SqlStore):
    """A failure that was caught undoes the inner one only; one that was not, both."""
    with sql_store.transaction():
        sql_store.add_task(TASK)
        with pytest.raises(NotEnoughMoney):
            run(
                sql_store,
                partial(sql_store.set_round, "t", None, Round(1, 1.0)),
                partial(sql_store.post, "t", OVERDRAFT),
            )
        with sql_store.transaction():
            sql_store.set_round("t", None, Round(2, 1.0))
    assert [r.number for r in sql_store.rounds("t")] == [2]
    inner = partial(run, sql_store, partial(sql_store.set_round, "t", None, Round(3, 1.0)))
    with pytest.raises(NotEnoughMoney):
        run(sql_store, inner, partial(sql_store.post, "t", OVERDRAFT))
    assert [r.number for r in sql_store.rounds("t")] == [2]


def test_a_refusal_that_was_caught_leaves_the_transaction_usable(sql_store: SqlStore):
    """No statement had failed, so that PostgreSQL too goes on."""
    sql_store.set_round("t", None, Round(1, 0.0))
    sql_store.acknowledge("t", 1, [Upload("p", "a", late=False)])
    with sql_store.transaction():
        assert isinstance(sql_store.acknowledge("t", 1, [Upload("p", "b", late=False)])[0], AlreadyCounted)
        sql_store.add_task(TASK)
    assert sql_store.tasks() == [TASK]


def test_readers_do_not_wait_for_a_writer_and_writers_do(sql_store: SqlStore, open_store: Opener):
    """A long transaction in one process stops no reads in another; a write there comes after it."""
    other, order = open_store(), []

    def write() -> None:
        other.add_task(TASK)
        order.append("other")

    thread = threading.Thread(target=write)
    with sql_store.transaction():
        sql_store.post("t", Movement("deposit 1", REQUESTER, ESCROW, 1))
        thread.start()
        assert other.movements("t") == []
        thread.join(0.3)
        assert order == []
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]


def test_what_a_transaction_read_is_true_when_it_writes(sql_store: SqlStore, open_store: Opener):
    """Two that read a balance and spend it: the second reads what the first left."""
    sql_store.post("t", Movement("deposit 1", REQUESTER, ESCROW, 1))
    refused = []

    def spend(name: str, own: SqlStore) -> None:
        with own.transaction():
            left = sum(m.amount if m.target == ESCROW else -m.amount for m in own.movements("t"))
            if left < 1:
                refused.append(name)
                return
            own.post("t", Movement(f"spend {name}", ESCROW, "out", 1))

    threads = [threading.Thread(target=spend, args=(name, open_store())) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(refused) == 3


def test_many_threads_give_their_connections_back(sql_store: SqlStore):
    """More threads than connections, each with reads, writes and failures."""

    def work(number: int) -> None:
        sql_store.set_round("t", None, Round(number, 1.0))
        sql_store.rounds("t")
        with pytest.raises(NotEnoughMoney):
            sql_store.post("t", OVERDRAFT)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(sql_store.rounds("t")) == 20
    assert connections_out(sql_store) == 0


def test_a_forked_process_opens_connections_of_its_own(sql_store: SqlStore):
    """Neither uses nor closes its parent's, not even when it was forked inside a transaction."""
    with sql_store.transaction():
        sql_store.set_round("t", None, Round(1, 1.0))
        child = os.fork()
        if child == 0:
            os._exit(0 if sql_store.rounds("t") == [] else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        sql_store.set_round("t", None, Round(2, 1.0))
    assert len(sql_store.rounds("t")) == 2


def test_a_forked_process_has_a_copy_of_a_database_in_memory():
    """Through every connection, that of its parent's engine too: a host of all parties is copied so."""
    store = SqlStore.in_memory()
    store.set_round("t", None, Round(1, 1.0))
    child = os.fork()
    if child == 0:
        with contextlib.suppress(Exception):
            known = len(store.rounds("t"))
            with store.engine.connect() as connection:
                rows = connection.exec_driver_sql("SELECT count(*) FROM rounds").scalar()
            os._exit(0 if (known, rows) == (1, 1) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:hush@127.0.0.1:1/none",
        "postgresql://someone:hush@127.0.0.1/none?host=/nowhere",
        "sqlite:////nowhere/at/all.db",
        "sqlite://",
        "mysql://someone:hush@localhost/none",
        "no url",
    ],
)
def test_a_database_that_cannot_be_reached_is_named(url: str):
    """At the first use at the latest, and without its password."""
    with pytest.raises(StoreUnavailable) as refused:
        SqlStore(url).tasks()
    assert "hush" not in str(refused.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path):
    path = tmp_path / "x.db"
    path.write_bytes(b"not a database" * 100)
    path.chmod(0o600)
    with pytest.raises(StoreUnavailable):
        SqlStore(f"sqlite:///{path}").tasks()
    assert path.read_bytes() == b"not a database" * 100


def test_a_database_locked_for_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A writer gives up by name; its connection goes back."""
    monkeypatch.setattr(database, "_PATIENCE", 0.2)
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    store.create_tables()
    blocker = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.add_task(TASK)
    blocker.close()
    store.add_task(TASK)
    assert connections_out(store) == 0
    store.close()


def test_a_full_disk_is_the_error_that_it_is(tmp_path: Path):
    """As from a blob: OSError with ENOSPC, whichever of the two met it; nothing of the transaction is left."""
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    store.create_tables()
    with store.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()

    @event.listens_for(store.engine, "begin")
    def no_more_pages(connection: object) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")  # type: ignore[attr-defined]

    with pytest.raises(OSError, match="No space") as refused:
        store.add_task(StoredTask("t", "x" * 1_000_000, "a", "running"))
    assert refused.value.errno == errno.ENOSPC
    assert store.tasks() == []
    store.close()


def test_every_commit_to_a_file_is_on_disk(tmp_path: Path):
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    store.close()


def test_no_error_shows_what_is_stored(sql_store: SqlStore):
    """Mask seeds are parameters of statements; the driver's own errors would print them."""
    row = insert(sp_records).values(task="t", number=1, record=b"very secret")
    with sql_store.engine.begin() as connection:
        connection.execute(row)
    with sql_store.engine.connect() as connection, pytest.raises(IntegrityError) as refused:
        connection.execute(row)
    assert "very secret" not in str(refused.value)


def test_two_that_begin_a_database_at_once_wait_for_each_other(monkeypatch: pytest.MonkeyPatch):
    """SQLite refuses the second at once; it comes again, for as long as anyone waits for a lock. Other errors are told."""

    class Busy:
        isolation_level: str | None = ""
        refusals = ["database is locked"] * 3

        def execute(self, statement: str) -> "Busy":
            if "WAL" in statement and self.refusals:
                raise sqlite3.OperationalError(self.refusals.pop())
            return self

        def fetchone(self) -> tuple[str]:
            return ("wal",)

    busy = Busy()
    database._prepare_sqlite(busy, None)  # type: ignore[arg-type]
    assert busy.refusals == []
    busy.refusals = ["disk I/O error"]
    with pytest.raises(sqlite3.OperationalError, match="disk"):
        database._prepare_sqlite(busy, None)  # type: ignore[arg-type]
    busy.refusals = ["database is locked"] * 100_000
    monkeypatch.setattr(database, "_PATIENCE", 0.1)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        database._prepare_sqlite(busy, None)  # type: ignore[arg-type]
