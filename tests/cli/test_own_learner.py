"""An encrypted campaign with a learner of the user's own, named on the command line and found in the current folder."""

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
from crowdfl.storage.model_files import read_model
from tests.cli.program import call
from tests.cli.test_campaign import PATIENCE, PEOPLE, Campaign, start_with_task

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
lanes = 256
window = 300.0
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
    """No rewards: what is learned is what this is about."""
    start_with_task(made, TASK, "--insecure-test-key", learner=NAME)
    made.do("invite", "task", "invite", made.task, "invitations", "-n", PEOPLE, "--json", *made.settings)
    for person in range(PEOPLE):
        options = ("--home", f"person-{person}", "--least-participants", PEOPLE, "--yes", "--json")
        words = ("participant", "run", f"invitations/invitation-{person}.json", "--data", f"synthetic:{person}")
        made.start(f"person-{person}", *words, "--learner", NAME, *options)
    until = time.monotonic() + PATIENCE
    while made.status()["enrolled"] < PEOPLE:
        assert time.monotonic() < until, made.logs()
    made.do("close", "task", "close", made.task, *made.settings)
    made.do("finished", "task", "watch", made.task, "--until", "finished", *made.settings)
    made.wait(*(f"person-{person}" for person in range(PEOPLE)))


def test_the_model_is_that_of_the_same_rounds_in_the_clear(campaign: Campaign):
    """Two rounds of federated averaging with the same learner, to the decimals that are kept."""
    path = json.loads(
        campaign.do("fetch", "task", "fetch", campaign.task, "model.npz", "--json", *campaign.settings).out
    )
    definition, found = read_model(Path(path["model"]))
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
