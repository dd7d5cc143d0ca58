"""Migrations make the tables that the program works with, and say so when they have not."""

import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, text
from sqlalchemy.schema import CreateTable
from tests import subprocesses
from tests.storage.later import next_version
from tests.storage.papers import DEFINITION

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import StoreOutdated, StoreTooNew, StoreUnavailable, StoreUnreadable
from crowdfl.protocols.profile import SpRecord
from crowdfl.protocols.shares.round.average import RoundRecord
from crowdfl.roles.records import Round, StoredPayee, StoredSubscription, StoredTask
from crowdfl.storage import migrations, tables, upgrading
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


def test_the_tables_name_the_newest_revision():
    assert max(migrations._revisions()) == tables.REVISION


def test_an_empty_database_gets_the_present_tables(url: str):
    migrations.upgrade(url)
    migrations.check(url)
    assert differences(url, metadata) == []


def test_an_empty_database_gets_its_revision_as_alembic_would_write_it(url: str):
    """A later `upgrade` goes on from there."""
    migrations.upgrade(url)
    engine = open_engine(url)
    with reading(engine) as connection:
        context = MigrationContext.configure(connection)
        assert context.get_current_revision() == tables.REVISION
        ours, theirs = (str(CreateTable(one).compile(connection)) for one in (migrations._VERSION, context._version))
    engine.dispose()
    assert ours == theirs


def test_upgrading_again_changes_nothing(url: str):
    migrations.upgrade(url)
    store = SqlStore(url)
    store.add_task(StoredTask("t", DEFINITION, "appointment", "running"))
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
    migrations.upgrade(url)
    engine = open_engine(url)
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    for act in (migrations.check, migrations.upgrade):
        with pytest.raises(StoreTooNew):
            act(url)


def test_two_processes_may_upgrade_at_once(url: str):
    code = "import sys; from crowdfl.storage import migrations; migrations.upgrade(sys.argv[1])"
    command = [sys.executable, "-c", code, url]
    with subprocesses.running(command) as one, subprocesses.running(command) as other:
        assert (one.wait(60), other.wait(60)) == (0, 0)
    migrations.check(url)


def test_a_database_that_cannot_be_reached_is_named():
    with pytest.raises(StoreUnavailable) as refused:
        migrations.upgrade("postgresql://someone:hush@127.0.0.1:1/none")
    assert "hush" not in str(refused.value)


def test_a_later_revision_changes_a_database_that_is_in_use(url: str, tmp_path: Path):
    migrations.upgrade(url)
    store = SqlStore(url)
    store.set_round("t", None, Round(1, 5.0))
    with next_version(tmp_path):
        with pytest.raises(StoreOutdated, match="crowdfl upgrade"):
            migrations.check(url)
        migrations.upgrade(url)
        migrations.check(url)
    assert len(differences(url, metadata)) == 1
    assert store.rounds("t") == [Round(1, 5.0)]
    store.close()


def test_a_process_of_the_old_version_writes_nothing_once_another_has_migrated(url: str, tmp_path: Path):
    """Nor does one start: old and new never run side by side."""
    migrations.upgrade(url)
    early, idle = SqlStore(url), SqlStore(url)
    early.set_round("t", None, Round(1, 5.0))
    with next_version(tmp_path):
        migrations.upgrade(url)
    for store in (early, idle):
        with pytest.raises(StoreTooNew, match=r"is at 0002, and this process works with 0001.*Stop"):
            store.set_round("t", None, Round(2, 5.0))
        with pytest.raises(StoreTooNew):
            store.check_tables()
    with pytest.raises(StoreTooNew, match="at 0002, where a later version has brought it"):
        upgrading.upgrade(url)
    assert early.rounds("t") == [Round(1, 5.0)]
    for store in (early, idle):
        store.close()


def broken(store: SqlStore, task: str) -> None:
    with store._write() as c:
        c.execute(text("UPDATE tasks SET definition = :d WHERE task = :t"), {"t": task, "d": DEFINITION[:200]})


def test_a_version_that_cannot_read_a_task_changes_nothing(url: str, tmp_path: Path):
    migrations.upgrade(url)
    store = SqlStore(url)
    for task in ("t", "u"):
        store.add_task(StoredTask(task, DEFINITION, "appointment", "running"))
    broken(store, "u")
    with next_version(tmp_path):
        assert list(upgrading.look(url).unreadable) == ["u"]
        with pytest.raises(StoreUnreadable, match=r"cannot read 1 of the tasks .* changed nothing: u: its definition"):
            upgrading.upgrade(url)
    migrations.check(url)  # at 0001 still
    assert [task.task for task in store.tasks()] == ["t"]
    with next_version(tmp_path):
        upgrading.upgrade(url, leave_unread=True)
        migrations.check(url)
    store.close()


def test_reading_finds_what_is_of_a_later_form_wherever_it_is_kept(url: str):
    """A document or a message in any column; the task that has it is named."""
    migrations.upgrade(url)
    store = SqlStore(url)
    receipt = TaskEnd("w", "settled", 1.0).sign(SigningKey.fresh())
    record = bytearray(RoundRecord("t", 1, b"", (), (), (), b"", (), (), b"").to_bytes())
    for task in "tuvw":
        store.add_task(StoredTask(task, DEFINITION, receipt, "running"))
    store.set_sp_record("t", 1, SpRecord(b"", b""), SpRecord(bytes(record), b"not a message"))
    record[4] = 3
    store.set_sp_record("u", 1, SpRecord(b"", b""), SpRecord(b"", bytes(record)))
    later = Envelope.sign("receipt", '{"form":2}', SigningKey.fresh()).text
    store.change_task("v", attested=later)
    # What people seal is not looked at, whatever it begins with: none of them can keep a platform from its next version.
    sealed = StoredPayee("w", "somebody", offered=bytes(record), destination=bytes(record), named=bytes(record[:32]))
    assert store.change_payee(store.payee("w", "somebody"), sealed)
    keys = bytes(record[:65]), bytes(record[:16])
    store.put_subscription(StoredSubscription("w", "somebody", "https://push.example/1", *keys))
    found = upgrading.look(url)
    assert (found.tasks, found.is_outdated) == (4, False)
    assert {task: why.partition(":")[0] for task, why in found.unreadable.items()} == {
        "u": "sp_records.record",
        "v": "tasks.attested",
    }
    assert "form 3" in found.unreadable["u"]
    assert "FormTooNew" in found.unreadable["v"]
    store.close()


def test_an_empty_database_has_nothing_to_read(url: str):
    assert upgrading.look(url).revision is None
    upgrading.upgrade(url)
    assert upgrading.look(url).tasks == 0
