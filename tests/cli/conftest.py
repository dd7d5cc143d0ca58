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


@pytest.fixture
def place(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "place"))
