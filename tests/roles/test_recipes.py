"""Encrypted campaigns by recipes of every kind are what the same rounds give in the clear."""

import pytest

from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer
from crowdfl.roles.defining import defined
from crowdfl.simulation.host import Host
from tests.hosts import test_tools as tools_for_tests
from tests.learning.plain_rounds import plain_rounds

pytestmark = pytest.mark.second

PEOPLE = ("synthetic:1", "synthetic:2", "synthetic:3")
TABLES = {"settings": {"max_participants": 3, "max_samples": 1000, "rounds": 2}, "shares": {"lanes": 256}}
PACES = {"labels": ["slow", "middling", "fast"], "channels": 3, "epochs": 2}
PACE = {"labels": ["pace"], "target": "value", "channels": 3, "epochs": 2, "rate": 0.02}
OWN = "tests.learning.own_learners:Bare"
OVER_TIME = "tests.learning.own_networks:OverTime"
LOSS = "tests.learning.own_losses:half"


@pytest.mark.parametrize(
    ("training", "code"),
    [
        (PACES | {"learner": "softmax", "features": "spectral", "scale_inputs": True, "proximal": 0.1}, {}),
        (PACE | {"features": "spectral", "scale_inputs": True, "proximal": 0.1, "loss": "huber"}, {}),
        (PACE | {"loss": LOSS, "layers": []}, {"loss": LOSS}),
        (PACES | {"learner": OWN, "rate": 0.5}, {"learner": OWN}),
        (
            PACES | {"learner": OVER_TIME, "features": "windows", "epochs": 1, "standardise": True},
            {"learner": OVER_TIME},
        ),
    ],
    ids=["spectral softmax with FedProx", "values", "own loss", "own learner", "own network on windows"],
)
def test_a_campaign_is_the_same_rounds_in_the_clear(training, code):
    """To the decimals that are kept; and everyone is told the scores of the first average."""
    task = {"purpose": "p", "terms": "t", "readers": "r", **TABLES}
    definition, initial = defined("task", task | {"training": training}, **code)
    host, told = Host(tools_for_tests()), []
    name = host.create(definition, initial)
    trainers = [LocalTrainer(data, definition.training, **code) for data in PEOPLE]
    people = [host.join(name, data) for data in PEOPLE]
    for trainer, person in zip(trainers, people, strict=True):
        trainer.prepare(definition.shape)
        person.on_event = lambda what, details: told.append(details) if what == "read" else None
    for _ in range(2):
        host.run()
        for trainer, person in zip(trainers, people, strict=True):
            person.step(trainer.train, trainer.evaluate)
        host.run()
    recipe = Recipe.of(training)
    splits = [recipe.load(data) for data in PEOPLE]
    first, last = plain_rounds(recipe.make_learner(**code), splits, recipe.training, 2, recipe)
    for mine, plain in zip(host.requester.model(name), last.weights, strict=True):
        assert mine == pytest.approx(plain, abs=2e-5)
    for details, split in zip(told, splits, strict=True):
        plain = first.scores[split.train.name].numbers
        assert {key: details[key] for key in plain} == pytest.approx(plain, abs=1e-3)
