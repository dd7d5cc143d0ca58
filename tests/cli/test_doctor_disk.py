"""`crowdfl doctor SETTINGS` looks at the disk of the role itself, and says a full one before all that it may cause."""

import json
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crowdfl.cli.doctor import machine
from tests.cli.program import ROLES, call

_USAGE = namedtuple("_USAGE", "total used free")
MIB = 2**20


def of_folder(real: Callable[[Any], Any], folder: Path, found: object) -> Callable[[Any], Any]:
    """Another answer for what is on the role's own disk."""
    return lambda path: found if Path(path).resolve().is_relative_to(folder) else real(path)


def first(workspace: Path, role: str) -> dict[str, str]:
    findings = json.loads(call("doctor", workspace / role / "settings.toml", "--json").out)["findings"]
    return dict(findings[0])


@pytest.mark.parametrize("role", [role for role in ROLES if role != "requester"])
def test_a_full_disk_of_the_role_comes_first(role: str, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Though the disk of the folder that doctor runs in has room."""
    usage = of_folder(shutil.disk_usage, workspace, _USAGE(1000 * MIB, 950 * MIB, 50 * MIB))
    monkeypatch.setattr(machine.shutil, "disk_usage", usage)
    found = first(workspace, role)
    assert (found["verdict"], found["what"], found["found"]) == ("fail", f"{role}: disk", "0.0 GiB free")


def test_a_disk_without_names_for_files_is_full_too(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.statvfs(workspace)
    without = os.statvfs_result((*real[:5], 1000, 0, 0, *real[8:]))
    monkeypatch.setattr(machine.os, "statvfs", of_folder(os.statvfs, workspace, without))
    found = first(workspace, "sp")
    assert (found["verdict"], found["what"]) == ("fail", "sp: disk")
    assert "no name is left" in found["found"]


def test_a_disk_with_room_is_said_in_its_place(workspace: Path):
    findings = json.loads(call("doctor", workspace / "sp/settings.toml", "--json").out)["findings"]
    assert findings[0]["what"] == "Python"
    assert next(one["what"] for one in findings if one["what"].startswith("sp:")) == "sp: disk"
