"""A campaign of the profile `shares`, with a server step, through the command line alone: processes, TLS, files."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdfl.roles.dealt import is_dealt_file
from tests.cli.program import call
from tests.cli.test_campaign import PEOPLE, Campaign, events, run_campaign, task_file

pytestmark = pytest.mark.second


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """From `init` to the payouts; the services still run."""
    text = task_file()
    for before, after in {
        'profile = "hardened"': 'profile = "shares"',
        "# max_norm = 5.0": "max_norm = 20.0",
        "lanes = 16 ": "lanes = 256 ",
        'server_step = "none"': 'server_step = "fedavgm"',
    }.items():
        assert before in text
        text = text.replace(before, after)
    made = Campaign(tmp_path_factory.mktemp("campaign"))
    try:
        run_campaign(made, text)
        yield made
    finally:
        made.stop()


def test_everyone_takes_part_reads_and_is_paid(campaign: Campaign):
    """Both rounds, everyone alike."""
    earned = []
    for person in range(PEOPLE):
        assert [event["late"] for event in events(campaign, person, "uploaded")] == [False, False]
        assert [event["round"] for event in events(campaign, person, "read")] == [1]
        assert not events(campaign, person, "upload rejected")
        own = {event["round"]: event["millionths"] for event in events(campaign, person, "rewarded")}
        assert sorted(own) == [1, 2]
        assert events(campaign, person, "paid") == [{"event": "paid", "millionths": sum(own.values())}]
        earned.append(own)
    assert earned == [dict.fromkeys((1, 2), 36_000_000 // PEOPLE)] * PEOPLE


def test_nobody_is_told_of_a_key_that_there_is_not(campaign: Campaign):
    assert "profile shares, no key" in campaign.said["look"].out
    assert "INSECURE" not in campaign.said["finished"].out


def test_the_model_is_fetched_and_used(campaign: Campaign, tmp_path: Path):
    fetched = call("task", "fetch", campaign.task, tmp_path / "model", "--format", "npz", "--json", *campaign.settings)
    assert fetched.code == 0, fetched
    path, states = (json.loads(fetched.out)[name] for name in ("model", "states"))
    assert states.keys() == {"1", "2"}
    for person in range(PEOPLE):  # everyone holds what the requester holds
        assert [event["state"] for event in events(campaign, person, "read")] == [states["1"]]
    found = json.loads(call("evaluate", path, "--data", "watch:0", "--data", "watch:5", "--json").out)
    assert found["accuracy"] > 2 / 7


def test_nothing_that_was_dealt_for_a_round_is_left_and_the_doctor_finds_the_roles_well(campaign: Campaign):
    roles = campaign.folder / "roles"
    kept = {role: sorted(path.name for path in (roles / role / "keys").glob("*")) for role in ("kgc", "sp", "csp")}
    assert kept["sp"]
    assert not [name for names in kept.values() for name in names if is_dealt_file(name) or name.endswith(".source")]
    files = [roles / role / "settings.toml" for role in ("kgc", "sp", "csp", "requester")]
    result = call("doctor", *files, "--json")
    found = json.loads(result.out)["findings"]
    assert result.code == 0, [line for line in found if line["verdict"] == "fail"]
    assert "dealt files" not in result.out
