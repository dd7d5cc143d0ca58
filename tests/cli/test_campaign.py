"""A campaign through the command line alone: three services and three participants as processes, short test keys."""

import csv
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crowdfl.cli.task.template import task_text
from crowdfl.settings import to_millionths
from crowdfl_lab.demo.finished import SERVERS, secrets_of, shares_in
from tests import subprocesses
from tests.cli.program import Processes, Result, call, finish

PEOPLE = 3
CHANGES = {  # every bound small, so that a short key has room for rewards
    'learner = "network"': 'learner = "softmax"',
    "epochs = 20": "epochs = 1",
    "max_participants = 10": "max_participants = 3",
    "clip = 16.0": "clip = 4.0",
    "decimals = 6": "decimals = 3",
    "lanes = 1024": "lanes = 16",
    "min_participants = 5": "min_participants = 3",
    "rounds = 3": "rounds = 2",
    "key_bits = 2048": "key_bits = 1280",
    '\nwindow = "1 h"': '\nwindow = "5 min"',  # everyone uploads, so rounds close early
    '# claim_window = "7 days"': 'claim_window = "10 min"',
}
PATIENCE = 900.0


def task_file(**more: str) -> str:
    text = task_text("hardened")
    for before, after in CHANGES.items():
        assert before in text
        text = text.replace(before, after)
    return text.replace("Recognise", more.get("purpose", "Recognise"))


def allow_short_claims(settings: Path) -> None:
    before, text = '# min_claim_window = "1 day"', settings.read_text()
    assert before in text
    settings.write_text(text.replace(before, 'min_claim_window = "0 s"'))


@dataclass
class Campaign(Processes):
    said: dict[str, Result] = field(default_factory=dict)
    shares: dict[str, int] = field(default_factory=dict)

    def shares_at(self, role: str) -> tuple[str, ...]:
        return shares_in(self.folder / "roles" / role, self.shares)

    @property
    def settings(self) -> tuple[str, str]:
        return "-s", str(self.folder / "roles/requester/settings.toml")

    def do(self, name: str, *args: object) -> Result:
        """A command to its end, which must be a good one."""
        result = call(*args)
        assert result.code == 0, (name, result, self.logs())
        self.said[name] = result
        return result

    def serve(self, *options: str) -> None:
        """Three services, as `init` with these options makes them."""
        roles = self.folder / "roles"
        self.do("init", "init", roles, *options, *free_ports())
        allow_short_claims(roles / "sp" / "settings.toml")
        for role in SERVERS:
            self.start(role, role, "serve", roles / role / "settings.toml")

    def post(self, task: str, *options: object) -> None:
        (self.folder / "task.toml").write_text(task)
        created = self.do("create", "task", "create", self.folder / "task.toml", *options, "--json", *self.settings)
        self.task = json.loads(created.out)["task"]

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.do("watch", "task", "watch", self.task, "--json", *self.settings).out))

    def gather(self, people: int) -> None:
        """Until so many have joined."""
        subprocesses.until(lambda: self.status()["enrolled"] == people, self.logs)

    def wait(self, *names: str) -> None:
        for name in names:
            assert self.processes[name].wait(timeout=PATIENCE) == 0, self.logs()


def free_ports() -> list[str]:
    """Options for `init`."""
    names = ("--kgc-port", "--sp-port", "--csp-port")
    return [part for name, port in zip(names, subprocesses.free_ports(3), strict=True) for part in (name, str(port))]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """From `init` to the payouts, on machines without torch; the services still run."""
    made = Campaign(tmp_path_factory.mktemp("campaign"))
    (bare := made.folder / "bare").mkdir()
    (bare / "torch.py").write_text('raise ModuleNotFoundError("not on a small computer", name="torch")\n')
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(bare), prepend=os.pathsep)
            run_campaign(made, task_file())
        yield made
    finally:
        made.stop()


def run_campaign(made: Campaign, task: str) -> None:
    """Of the task in this text, from `init` until everyone is paid."""
    folder = made.folder
    made.serve("--insecure-test-key")
    made.post(task)
    made.do("invite", "task", "invite", made.task, folder / "invitations", "-n", PEOPLE, "--json", *made.settings)
    made.do("look", "participant", "look", folder / "invitations/invitation-0.json", "--home", folder / "look")
    for person in range(PEOPLE):
        invitation = folder / f"invitations/invitation-{person}.json"
        home = ("--home", folder / f"person-{person}", "--least-participants", PEOPLE)
        options = ("--data", f"watch:{person}", *home, "--yes", "--json")
        made.start(f"person-{person}", "participant", "run", invitation, *options)
    made.gather(PEOPLE)
    made.do("fund", "task", "fund", made.task, "72.00", "--name", "all", *made.settings)
    made.do("fund again", "task", "fund", made.task, "72.00", "--name", "all", *made.settings)
    made.do("unconfirmed", "task", "report", made.task, "--json", *made.settings)
    sp = folder / "roles/sp/settings.toml"
    made.do("deposits", "sp", "deposit", "list", sp, "--json")
    made.do("confirm", "sp", "deposit", "confirm", sp, made.task, "all", "72.00", "EUR")
    made.shares = secrets_of(folder / "roles", made.task, "hardened")  # nobody can claim yet: no server erases them
    subprocesses.until(lambda: made.shares_at("kgc") == (), made.logs)
    assert (made.shares_at("sp"), made.shares_at("csp")) == (("lambda_sc",), ("lambda_c",))
    made.do("close", "task", "close", made.task, *made.settings)
    made.do("finished", "task", "watch", made.task, "--until", "finished", *made.settings)
    made.wait(*(f"person-{person}" for person in range(PEOPLE)))


def events(campaign: Campaign, person: int, what: str) -> list[dict[str, Any]]:
    lines = (campaign.folder / f"person-{person}.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in found if event["event"] == what]


def test_a_participant_sees_the_terms_before_joining(campaign: Campaign, tmp_path):
    """Purpose, terms and readers; without a yes nobody joins, and beside JSON nothing is asked."""
    assert all(word in campaign.said["look"].out for word in ("Purpose: Recognise", "Terms: ", "Readers: "))
    invitation = campaign.folder / "invitations/invitation-0.json"
    asked = call("participant", "run", invitation, "--data", "watch:0", "--home", tmp_path / "me", "--json")
    assert (asked.code, "--yes" in asked.err) == (3, True)
    unanswered = finish("participant", "join", invitation, "--home", tmp_path / "me", "--least-participants", PEOPLE)
    assert unanswered.code == 1
    assert "Purpose: Recognise" in unanswered.out
    assert not (tmp_path / "me/certificate").exists()


def test_a_crowd_below_five_is_shown_and_not_joined_without_the_owner_s_word(campaign: Campaign, tmp_path):
    """Before any question, and whatever --yes says; nothing of the participant is made."""
    assert "at least 3 participants; you accept 5 or more: TOO FEW" in campaign.said["look"].out
    place = (campaign.folder / "invitations/invitation-0.json", "--home", tmp_path / "me")
    commands = (
        ("join", *place),
        ("join", *place, "--yes"),
        ("run", *place, "--data", "watch:0", "--yes"),
        ("run", *place, "--data", "watch:0", "--yes", "--least-participants", 4),
    )
    for command in commands:
        refused = call("participant", *command)
        assert (refused.code, "TooFewParticipants" in refused.err) == (3, True), refused
        assert "--least-participants 3" in refused.err
        assert not (tmp_path / "me/keys").exists()
    assert "you accept 5 or more: TOO FEW" in call("participant", "look", *place).out  # nothing refused is kept
    assert call("participant", "join", *place, "--least-participants", 0).code == 2


def test_the_least_number_of_participants_is_kept_with_the_participant(campaign: Campaign, tmp_path):
    """It was given once, when the person joined; it may be changed, and a file that was damaged is named."""
    home = tmp_path / "person"
    shutil.copytree(campaign.folder / "person-0", home, ignore=shutil.ignore_patterns("*.pool"))
    place = (campaign.folder / "invitations/invitation-0.json", "--home", home)
    look = call("participant", "look", *place).out
    assert ("you accept 3 or more" in look, "TOO FEW" in look) == (True, False)
    assert call("participant", "join", *place).code == 0
    raised = call("participant", "join", *place, "--least-participants", 7)
    assert (raised.code, "you take part from 7 on" in raised.err) == (3, True)
    assert call("participant", "join", *place).code == 0  # what was refused is not kept
    assert call("participant", "rewards", *place).code == 0  # what was earned is not touched by it
    status = call("participant", "status", *place).out
    assert "uploaded to rounds: 1, 2\nearned: " in status
    assert re.search(r"\nround 1: [0-9.]+ EUR, (claimed|waiting for payment)", status), status
    (home / "least-participants").write_text("many")
    damaged = call("participant", "join", *place)
    assert (damaged.code, "--least-participants" in damaged.err) == (3, True)


def test_a_deposit_is_pending_until_the_operator_confirms_it(campaign: Campaign):
    report = json.loads(campaign.said["unconfirmed"].out)
    assert (report["pending"], report["paid_in"], report["movements"]) == (72_000_000, 0, [])
    assert report["deposits"] == [{"name": "all", "amount": 72_000_000, "state": "pending"}]
    (listed,) = json.loads(campaign.said["deposits"].out)
    assert listed == {"task": campaign.task, "name": "all", "amount": "72.00", "currency": "EUR", "state": "pending"}
    assert "72.00 EUR is announced as the deposit all. It counts once" in campaign.said["fund"].out


def test_everyone_took_part_in_every_round(campaign: Campaign):
    """Uploads on time with a receipt, the first average read and measured, rewards of both rounds paid."""
    for person in range(PEOPLE):
        assert [event["late"] for event in events(campaign, person, "uploaded")] == [False, False]
        assert [event["round"] for event in events(campaign, person, "read")] == [1]
        earned = [event["millionths"] for event in events(campaign, person, "rewarded")]
        claimed = {"event": "claimed", "millionths": sum(earned), "currency": "EUR"}
        assert events(campaign, person, "claimed")[-1] == claimed
        assert all(amount > 0 for amount in earned)
        assert (campaign.folder / f"person-{person}/rounds/1/receipt").read_text().startswith("crowdfl receipt ")


def test_what_a_participant_asks_later(campaign: Campaign):
    """Rewards by round; what was claimed is told again, not paid again."""
    place = (campaign.folder / "invitations/invitation-1.json", "--home", campaign.folder / "person-1", "--json")
    earned = [json.loads(line) for line in call("participant", "rewards", *place).out.splitlines()]
    claimed = json.loads(call("participant", "claim", *place).out)["claimed"]
    assert [line["round"] for line in earned] == [1, 2]
    assert sum(to_millionths(line["amount"]) for line in earned) == to_millionths(claimed)


def test_the_books_and_the_payouts_agree(campaign: Campaign):
    """A payment of one name is one; SP's operator has a CSV of what each was paid, the requester the sum of what was earned."""
    report = json.loads(call("task", "report", campaign.task, "--json", *campaign.settings).out)
    text = call("sp", "payouts", campaign.folder / "roles/sp/settings.toml", campaign.task).out
    rows = list(csv.DictReader(text.splitlines()))
    assert {row["state"] for row in rows} == {"waiting"}  # this operator has no program that pays
    assert report["paid_in"] == 72_000_000
    amounts = [to_millionths(row["amount"]) for row in rows]
    assert len(amounts) == PEOPLE
    assert report["offered"] - (4 + 10_000) * PEOPLE <= sum(amounts) <= report["offered"] == 72_000_000
    assert not set(amounts) & {movement["amount"] for movement in report["movements"]}
    assert "Paid in by the requester" in call("task", "report", campaign.task, *campaign.settings).out


def test_the_model_is_fetched_and_used(campaign: Campaign, tmp_path):
    found = {}
    for form in ("npz", "safetensors"):
        fetched = call(
            "task", "fetch", campaign.task, tmp_path / "model", "--format", form, "--json", *campaign.settings
        )
        path = json.loads(fetched.out)["model"]
        found[form] = json.loads(call("evaluate", path, "--data", "watch:0", "--data", "watch:5", "--json").out)
        assert len(json.loads(call("predict", path, "--data", "watch:5", "--json").out)["windows"]) > 10
    assert found["npz"] == found["safetensors"]
    assert found["npz"]["accuracy"] > 2 / 7  # seven exercises, two epochs


def test_no_folder_holds_two_key_shares(campaign: Campaign):
    """Each server its own, KGC neither once they were dealt, nor any other process."""
    assert campaign.shares_at("kgc") == campaign.shares_at("requester") == ()
    assert set(campaign.shares_at("sp")) <= {"lambda_sc"}  # none, once everyone has claimed and it was erased
    assert set(campaign.shares_at("csp")) <= {"lambda_c"}
    for person in range(PEOPLE):
        assert shares_in(campaign.folder / f"person-{person}", campaign.shares) == ()
    for log in campaign.folder.glob("*.log"):
        assert str(campaign.shares["lambda_c"]) not in log.read_text()
        assert str(campaign.shares["lambda_sc"]) not in log.read_text()
