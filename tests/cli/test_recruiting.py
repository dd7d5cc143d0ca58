"""A task that SP lists, by the command line: posted, found, looked at, joined all the same, and who came how."""

import json
import tomllib
from collections.abc import Iterator

import pytest

from crowdfl.cli.task.template import task_text
from tests.cli.program import call, refused
from tests.cli.test_campaign import Campaign


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """A listed task of the profile `shares`; the services run."""
    made = Campaign(tmp_path_factory.mktemp("campaign"))
    text = task_text()
    for before, after in (('# recruit = "invitations"', 'recruit = "open"'), ("lanes = 1024", "lanes = 128")):
        assert before in text
        text = text.replace(before, after)
    try:
        made.serve()
        made.post(text)
        yield made
    finally:
        made.stop()


def place(campaign: Campaign) -> tuple[str, ...]:
    """Where SP is, and whom to trust, as the requester knows it."""
    folder = campaign.folder / "roles/requester"
    found = tomllib.loads((folder / "settings.toml").read_text())
    return found["sp"], "--ca", str(folder / found["ca"])


def test_whoever_looks_finds_the_task_and_what_the_platform_could_do(campaign: Campaign):
    listed = call("participant", "tasks", *place(campaign))
    assert listed.code == 0, listed
    assert campaign.task in listed.out
    assert "no number of people protects anybody against it" in listed.out
    shown = json.loads(call("participant", "tasks", *place(campaign), "--json").out)
    assert [one["task"] for one in shown["tasks"]] == [campaign.task]
    told = call("task", "explain", campaign.folder / "task.toml")
    assert 'recruit = "open": the platform can be a reader and everybody else' in told.out + told.err


def test_who_joins_says_all_the_same_and_the_requester_sees_how_each_came(campaign: Campaign):
    file = campaign.folder / "listed.json"
    address = place(campaign)
    key = json.loads(call("participant", "tasks", *address, "--json").out)["servers"]["kgc_key"]
    refused(
        call("participant", "tasks", *address, "--take", campaign.task, "--kgc-key", "00" * 32), "another key of KGC"
    )
    refused(call("participant", "tasks", *address, "--take", "0" * 64, "--out", file), "lists no task")
    assert not file.exists()
    taken = call("participant", "tasks", *address, "--take", campaign.task, "--kgc-key", key, "--out", file)
    assert taken.code == 0, taken
    looked = call("participant", "look", file)
    assert "Recruiting: the platform lets people in itself" in looked.out
    refused(call("participant", "join", file, "--yes"), "everybody else", "--all-the-same")
    joined = call("participant", "join", file, "--yes", "--all-the-same")
    assert joined.code == 0, joined
    assert call("participant", "join", file, "--yes").code == 0  # it is kept, and the place is one
    (invited,) = json.loads(
        call("task", "invite", campaign.task, campaign.folder / "people", "-n", "1", "--json", *campaign.settings).out
    )["invitations"]
    assert call("participant", "join", invited, "--yes", "--all-the-same").code == 0
    people = json.loads(call("task", "people", campaign.task, "--json", *campaign.settings).out)
    assert [(one["came"], one["state"]) for one in people] == [("listed", "in"), ("invited", "in")]
    watched = call("task", "watch", campaign.task, *campaign.settings)
    assert "2 enrolled (1 by the platform's list, 1 invited)" in watched.out
