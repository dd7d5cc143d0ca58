"""Folders of roles."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.roles.records import PaymentState, StoredPayment, StoredTask
from crowdfl.settings import TaskSettings
from crowdfl.storage import migrations
from crowdfl.storage.sql import SqlStore
from tests.cli.program import ROLES, call, public
from tests.hosts import small_definition

TASK = "a" * 64
KEY = SigningKey.fresh()
WAITS = StoredPayment(TASK, "b" * 20, 1, 5_000_000, 0, PaymentState.PENDING, 0.0)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("made")
    for role in ROLES:
        result = call("init", place / role, "--role", role, "--host", f"{role}.example.org", "--json")
        assert result.code == 0, result
        assert json.loads(result.out)["public"] == str(public(place, role))
    return place


@pytest.fixture(scope="session")
def initialised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("initialised") / "campaign"
    ports = [part for role in ("kgc", "sp", "csp") for part in (f"--{role}-port", "1")]
    assert call("init", folder, *ports, "--insecure-test-key").code == 0
    return folder


@pytest.fixture
def workspace(initialised, tmp_path):
    """A folder as `crowdfl init` makes it, for services that do not run."""
    return Path(shutil.copytree(initialised, tmp_path / "campaign"))


@pytest.fixture
def place(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "place"))


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `crowdfl init` makes, each server with a task, SP with a payment that waits."""
    folder = tmp_path_factory.mktemp("operator") / "roles"
    assert call("init", folder, "--insecure-test-key").code == 0
    definition = replace(small_definition(TaskSettings(budget="36.00")), requester=KEY.public)
    for role in ("kgc", "sp", "csp"):
        url = f"sqlite:///{folder}/{role}/state.db"
        migrations.upgrade(url)
        store = SqlStore(url)
        store.add_task(StoredTask(TASK, definition.dated(time.time()).sign(KEY), "appointment", "running"))
        if role == "sp":
            store.add_payment(WAITS)
        store.close()
    return folder
