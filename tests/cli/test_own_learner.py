"""A campaign of `shares` through the command line alone, with rewards, a server step, and a learner of the user's own."""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import plain_rounds
from crowdfl.roles.dealt import is_dealt_file
from crowdfl.storage.model_files import read_model
from tests.cli.program import call
from tests.cli.test_campaign import PATIENCE, PEOPLE, Campaign, events, start_with_task

pytestmark = pytest.mark.second

EXAMPLE = Path(__file__).parents[2] / "examples" / "sklearn_learner.py"
NAME = "sklearn_learner:SklearnLearner"
TASK = f"""
purpose = "Tell three paces apart"
terms = "Windows stay on your device."
readers = "The requester."
claim_window = 600.0
[settings]
profile = "shares"
max_participants = {PEOPLE}
max_samples = 1000
min_participants = {PEOPLE}
rounds = 2
budget = "36.00"
lanes = 256
window = 300.0
server_step = "fedavgm"
server_momentum = 0.0  # so that the model is the plain average, and has a state all the same
[training]
learner = "own"
module = "{NAME}"
labels = ["slow", "middling", "fast"]
channels = 3
epochs = 2
rate = 0.01
"""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """From `init` to the last average, every command in the folder that the learner lies in."""
    pytest.importorskip("sklearn")
    made = Campaign(tmp_path_factory.mktemp("campaign"))
    shutil.copy(EXAMPLE, made.folder)
    with contextlib.chdir(made.folder):
        try:
            run(made)
            yield made
        finally:
            made.stop()


def run(made: Campaign) -> None:
    start_with_task(made, TASK, "--insecure-test-key", learner=NAME)
    made.do("invite", "task", "invite", made.task, "invitations", "-n", PEOPLE, "--json", *made.settings)
    made.do("look", "participant", "look", "invitations/invitation-0.json", "--home", "look")
    for person in range(PEOPLE):
        options = ("--home", f"person-{person}", "--least-participants", PEOPLE, "--yes", "--json")
        words = ("participant", "run", f"invitations/invitation-{person}.json", "--data", f"synthetic:{person}")
        made.start(f"person-{person}", *words, "--learner", NAME, *options)
    made.do("fund", "task", "fund", made.task, "72.00", "--name", "all", *made.settings)
    sp = made.folder / "roles/sp/settings.toml"
    made.do("confirm", "sp", "deposit", "confirm", sp, made.task, "all", "72.00")
    until = time.monotonic() + PATIENCE
    while made.status()["enrolled"] < PEOPLE:
        assert time.monotonic() < until, made.logs()
    made.do("close", "task", "close", made.task, *made.settings)
    made.do("finished", "task", "watch", made.task, "--until", "finished", *made.settings)
    made.wait(*(f"person-{person}" for person in range(PEOPLE)))


def test_the_model_is_that_of_the_same_rounds_in_the_clear(campaign: Campaign):
    """Two rounds of federated averaging with the same learner, to the decimals that are kept."""
    told = campaign.do("fetch", "task", "fetch", campaign.task, "model.npz", "--json", *campaign.settings)
    path, states = (json.loads(told.out)[name] for name in ("model", "states"))
    for person in range(PEOPLE):  # everyone holds what the requester holds
        assert [event["state"] for event in events(campaign, person, "read")] == [states["1"]]
    definition, found = read_model(Path(path))
    recipe = Recipe.of(definition.training)
    people = [recipe.load(f"synthetic:{person}") for person in range(PEOPLE)]
    *_, last = plain_rounds(recipe.make_learner(learner=NAME), people, recipe.training, 2, recipe)
    for mine, plain in zip(found, last.weights, strict=True):
        assert mine == pytest.approx(plain, abs=1e-5)
    assert np.abs(found[0]).max() > 0.01  # it has moved from its start


def test_everyone_is_told_where_the_code_was_found(campaign: Campaign):
    where = f"your code: {NAME} from {campaign.folder / 'sklearn_learner.py'}"
    assert where in campaign.said["create"].err
    for person in range(PEOPLE):
        assert where in (campaign.folder / f"person-{person}.log").read_text()


def test_without_being_named_the_code_is_not_run(campaign: Campaign, tmp_path: Path):
    """Neither by a participant, who takes no place, nor to evaluate the model."""
    invitation = campaign.folder / "invitations/invitation-0.json"
    words = ("participant", "run", invitation, "--data", "synthetic:0", "--home", tmp_path / "me", "--yes")
    refused = call(*words, "--least-participants", PEOPLE)
    assert refused.code == 3
    assert f"then say --learner {NAME}" in refused.err
    assert not (tmp_path / "me/certificate").exists()
    campaign.do("fetch", "task", "fetch", campaign.task, "again.npz", "--json", *campaign.settings)
    assert f"then say --learner {NAME}" in call("evaluate", "again.npz", "--data", "synthetic:4").err
    found = json.loads(call("evaluate", "again.npz", "--data", "synthetic:4", "--learner", NAME, "--json").out)
    assert found["accuracy"] > 0.8


def test_everyone_takes_part_and_is_paid(campaign: Campaign):
    """In both rounds, everyone alike. Nobody is told of a key that there is not."""
    earned = []
    for person in range(PEOPLE):
        assert [event["late"] for event in events(campaign, person, "uploaded")] == [False, False]
        assert not events(campaign, person, "upload rejected")
        own = {event["round"]: event["millionths"] for event in events(campaign, person, "rewarded")}
        assert events(campaign, person, "paid") == [
            {"event": "paid", "millionths": sum(own.values()), "currency": "EUR"}
        ]
        earned.append(own)
    assert earned == [dict.fromkeys((1, 2), 36_000_000 // PEOPLE)] * PEOPLE
    assert "profile shares, no key" in campaign.said["look"].out
    assert "INSECURE" not in campaign.said["finished"].out


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
