"""`crowdfl task create` says what KGC deals for a task, beside the id that scripts read."""

import contextlib
import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from crowdfl.cli.task import commands
from crowdfl.cli.task.views import template


@pytest.fixture
def created(tmp_path, monkeypatch):
    """The command with these settings in its task file; nothing is sent anywhere."""

    @contextlib.contextmanager
    def requester(_own):
        yield SimpleNamespace(create=lambda _definition, _initial: "the-task")

    own = SimpleNamespace(settings=SimpleNamespace(min_claim_window=0.0))
    monkeypatch.setattr(commands, "open_requester", requester)
    monkeypatch.setattr(commands.RequesterFile, "read", lambda _path: own)

    def run(profile, *options):
        file = tmp_path / "task.toml"
        text = template.replace('learner = "network"', 'learner = "softmax"')
        file.write_text(text.replace('profile = "hardened"', f'profile = "{profile}"'))
        return CliRunner().invoke(commands.app, ["create", str(file), *options], catch_exceptions=False)

    return run


def test_a_task_of_shares_is_created_with_what_it_is_dealt(created):
    """For each server, by the round and in all; the id stays alone on standard output."""
    found = created("shares")
    assert found.stdout == "the-task\n"
    assert any(line.startswith("dealt by KGC: SP ") for line in found.stderr.splitlines())
    assert all(part in found.stderr for part in ("a round", "in all", "CSP "))
    assert "CSP" in json.loads(created("shares", "--json").stdout)["dealt"]


def test_of_a_task_that_is_dealt_nothing_nothing_is_said(created):
    """As before."""
    found = created("hardened")
    assert found.stdout == "the-task\n"
    assert "dealt" not in found.stderr
    assert json.loads(created("hardened", "--json").stdout).keys() == {"task", "parameters", "tried"}
