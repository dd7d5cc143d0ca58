"""Migrations make the tables that the program works with, and say so when they have not."""

import shutil
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, text
from tests import subprocesses
from tests.storage.papers import DEFINITION

from crowdfl.errors import StoreOutdated, StoreTooNew, StoreUnavailable
from crowdfl.roles.records import Round, StoredTask
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


def test_an_empty_database_gets_the_present_tables(url: str):
    migrations.upgrade(url)
    migrations.check(url)
    assert differences(url, metadata) == []


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


NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.add_column("rounds", sa.Column("unheard_of", sa.Integer))
"""


def test_a_later_revision_changes_a_database_that_is_in_use(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    migrations.upgrade(url)
    store = SqlStore(url)
    store.set_round("t", None, Round(1, 5.0))
    folder = shutil.copytree(Path(migrations.__file__).parent, tmp_path / "migrations")
    (folder / "versions" / "r0002_next.py").write_text(NEXT)
    monkeypatch.setattr(migrations, "_FOLDER", folder)
    with pytest.raises(StoreOutdated):
        migrations.check(url)
    migrations.upgrade(url)
    migrations.check(url)
    assert len(differences(url, metadata)) == 1
    assert store.rounds("t") == [Round(1, 5.0)]
    store.close()
