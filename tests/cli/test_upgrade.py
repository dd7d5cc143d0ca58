"""`crowdfl upgrade` as an operator meets it: nothing is changed before all is read and a backup is written."""

import json
import shutil
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import StoreUnreadable
from crowdfl.roles.records import StoredTask
from crowdfl.services import run
from crowdfl.settings import TaskSettings
from crowdfl.storage import migrations
from crowdfl.storage.settings_file import SERVICES, read_service
from crowdfl.storage.sql import SqlStore
from tests.cli.program import call
from tests.hosts import small_definition
from tests.storage.later import next_version

TASK, OTHER = "a" * 64, "b" * 64
KEY = SigningKey.fresh()


@pytest.fixture
def roles(workspace):
    """What `crowdfl init` makes, each server with two tasks."""
    definition = replace(small_definition(TaskSettings(budget="36.00")), requester=KEY.public)
    for role in SERVICES:
        migrations.upgrade(url_of(workspace / role))
        with closing(SqlStore(url_of(workspace / role))) as store:
            for task in (TASK, OTHER):
                store.add_task(StoredTask(task, definition.dated(time.time()).sign(KEY), "appointment", "running"))
    return workspace


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/state.db"


def damage(folder: Path) -> None:
    with closing(SqlStore(url_of(folder))) as store, store._write() as c:
        c.execute(text("UPDATE tasks SET definition = 'of a later version' WHERE task = :task"), {"task": OTHER})


def tasks_of(folder: Path) -> list[str]:
    with closing(SqlStore(url_of(folder))) as store:
        return [one.task for one in store.tasks()]


@pytest.mark.parametrize("role", SERVICES)
def test_an_upgrade_reads_then_backs_up_then_migrates_and_the_way_back_is_the_backup(role, roles, tmp_path):
    folder = roles / role
    settings, archive = folder / "settings.toml", tmp_path / "before.backup"
    same = call("upgrade", settings, "--check")
    assert (same.code, "nothing has to change" in same.out) == (0, True)
    with next_version(tmp_path):
        looked = call("upgrade", settings, "--check")
        assert looked.code == 0
        assert f"{role}: the settings, 2 tasks and" in looked.out
        assert "backup and brings the database from 0001 to 0002" in " ".join(looked.out.split())
        assert migrations.revision_of(url_of(folder)) == "0001"
        done = call("upgrade", settings, "--backup", archive)
        assert done.code == 0, done
        assert f"crowdfl restore {archive}" in " ".join(done.out.split())
        migrations.check(url_of(folder))
    refused = call(role, "task", "list", settings)
    assert (refused.code, "StoreTooNew" in refused.err) == (
        3,
        True,
    )  # by the earlier version, which is told the way back
    assert "go back to the backup that its upgrade wrote" in " ".join(refused.err.split())
    shutil.rmtree(folder)
    assert call("restore", archive, folder, "--unchanged").code == 0
    assert tasks_of(folder) == [TASK, OTHER]


def test_an_archive_is_written_beside_the_folder_and_only_if_it_is_needed(roles, tmp_path):
    settings = roles / "sp/settings.toml"
    before = set(roles.iterdir())
    assert json.loads(call("upgrade", settings, "--json").out)["backup"] is None
    assert set(roles.iterdir()) == before
    with next_version(tmp_path):
        told = json.loads(call("upgrade", settings, "--json").out)
    (made,) = set(roles.iterdir()) - before
    assert told["backup"] == str(made)
    assert (told["from"], told["to"], made.name.startswith("sp-before-0002-")) == ("0001", "0002", True)


def test_what_cannot_be_read_is_named_and_neither_a_start_nor_an_upgrade_changes_anything(roles, tmp_path):
    folder = roles / "sp"
    settings, found = folder / "settings.toml", read_service(SERVICES["sp"], folder / "settings.toml")
    damage(folder)
    before = set(roles.iterdir())
    with next_version(tmp_path):
        looked = call("upgrade", settings, "--check", "--json")
        assert looked.code == 1
        assert list(json.loads(looked.out)["unreadable"]) == [OTHER]
        said = " ".join(call("upgrade", settings, "--check").out.split())
        assert "all but what is named below" in said
        assert "rows are read" not in said
        refused = call("upgrade", settings)
        assert refused.code == 3
        assert "StoreUnreadable" in refused.err
        assert OTHER in refused.err.replace("\n", "")
        with pytest.raises(StoreUnreadable, match="--leave-unread"):
            run._store(found)
    assert set(roles.iterdir()) == before
    migrations.check(url_of(folder))
    assert tasks_of(folder) == [TASK]  # the earlier version goes on
    with next_version(tmp_path):
        assert call("upgrade", settings, "--leave-unread").code == 0
        run._store(found).close()
        assert tasks_of(folder) == [TASK]


def test_a_command_of_a_later_version_beside_the_service_changes_nothing(roles, tmp_path):
    """It would migrate the database under a service that runs."""
    settings = roles / "sp/settings.toml"
    with next_version(tmp_path):
        for command in (("sp", "task", "list"), ("sp", "payouts"), ("doctor", "--json")):
            told = call(*command, settings)
            assert told.code != 0
            assert "crowdfl upgrade" in " ".join((told.out + told.err).split())
    migrations.check(url_of(roles / "sp"))
    assert call("sp", "task", "list", settings).code == 0


def test_other_folders_have_nothing_to_upgrade(roles):
    refused = call("upgrade", roles / "requester/settings.toml")
    assert (refused.code, "it has no database" in " ".join(refused.err.split())) == (3, True)
