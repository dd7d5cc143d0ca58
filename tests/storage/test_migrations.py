"""Migrations make the tables that the program works with, and say so when they have not."""

import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, text
from tests import subprocesses

from crowdfl.errors import StoreOutdated, StoreTooNew, StoreUnavailable
from crowdfl.roles.ports import DepositState, PaymentState, StoredTask
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, REWARDS, Ledger, Movement
from crowdfl.storage import migrations
from crowdfl.storage.database import open_engine, reading, writing
from crowdfl.storage.sql import SqlStore
from crowdfl.storage.tables import metadata


def differences(url: str, wanted: MetaData) -> list[object]:
    """What Alembic would write into a next revision."""
    engine = open_engine(url)
    with reading(engine) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        found = compare_metadata(context, wanted)
    engine.dispose()
    return list(found)


def test_all_migrations_together_make_the_present_tables(url: str):
    """Alembic finds nothing to add, and would find a column that has no migration."""
    migrations.upgrade(url)
    migrations.check(url)
    assert differences(url, metadata) == []
    ahead = MetaData()
    for table in metadata.sorted_tables:
        table.to_metadata(ahead)
    ahead.tables["rounds"].append_column(Column("unheard_of", Integer))
    assert len(differences(url, ahead)) == 1


def test_upgrading_again_changes_nothing(url: str):
    """What is stored stays."""
    migrations.upgrade(url)
    store = SqlStore(url)
    store.add_task(StoredTask("t", "definition", "appointment", "running"))
    migrations.upgrade(url)
    assert [task.task for task in store.tasks()] == ["t"]
    store.close()


def test_an_empty_database_is_outdated(url: str):
    """Both for the check at the start, and for a store that was opened without it."""
    with pytest.raises(StoreOutdated):
        migrations.check(url)
    store = SqlStore(url)
    with pytest.raises(StoreOutdated):
        store.tasks()
    store.close()


def test_a_database_of_a_newer_program_is_left_alone(url: str):
    """Neither checked nor upgraded."""
    migrations.upgrade(url)
    engine = open_engine(url)
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    for act in (migrations.check, migrations.upgrade):
        with pytest.raises(StoreTooNew):
            act(url)


def test_two_processes_may_upgrade_at_once(url: str):
    """One waits for the other and finds the work done."""
    code = "import sys; from crowdfl.storage import migrations; migrations.upgrade(sys.argv[1])"
    command = [sys.executable, "-c", code, url]
    with subprocesses.running(command) as one, subprocesses.running(command) as other:
        assert (one.wait(60), other.wait(60)) == (0, 0)
    migrations.check(url)


def test_a_database_that_cannot_be_reached_is_named():
    """Without its password."""
    with pytest.raises(StoreUnavailable) as refused:
        migrations.upgrade("postgresql://someone:hush@127.0.0.1:1/none")
    assert "hush" not in str(refused.value)


def test_older_books_keep_their_money(url: str):
    """Deposits are confirmed, payments unknown, and each round's rewards its own; a task that had paid keeps its accounts."""
    migrations.upgrade(url)
    store = SqlStore(url)
    for task in ("fresh", "paid"):
        store.post(task, Movement("deposit a", REQUESTER, ESCROW, 10))
        store.post(task, Movement("fund round 1", ESCROW, "round 1", 9))
        store.post(task, Movement("reward round 1", "round 1", REWARDS, 9))
    store.post("paid", Movement("pay ada", REWARDS, "participant ada", 4))
    engine = open_engine(url)
    with writing(engine) as connection:  # as the release before left it
        for table in ("deposits", "payments"):
            connection.execute(text(f"DROP TABLE {table}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    engine.dispose()
    migrations.upgrade(url)
    assert [(one.task, one.name, one.amount, one.state) for one in store.deposits()] == [
        ("fresh", "a", 10, DepositState.CONFIRMED),
        ("paid", "a", 10, DepositState.CONFIRMED),
    ]
    assert [(one.task, one.who, one.amount, one.state) for one in store.payments()] == [
        ("paid", "ada", 4, PaymentState.UNKNOWN)
    ]
    assert Ledger(store.movements("fresh")).budgets() == {1: 9}
    old = Ledger(store.movements("paid"))
    assert [(movement.source, movement.amount) for movement in old.expire_claims()] == [(REWARDS, 5)]
    store.close()
