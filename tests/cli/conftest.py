"""Folders of roles."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.program import ROLES, call, public


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
