"""Federated averaging in the clear, on made-up people and on the ten real ones; a learning curve, which changes nothing."""

import importlib.util
import sys
import tomllib

import numpy as np
import pytest

from crowdfl.cli.task.template import task_text
from crowdfl.errors import DataMalformed, NothingToAverage
from crowdfl.learning.datasets.data import Cut, Person, Recording, Split, split_recordings
from crowdfl.learning.datasets.supplied import CUT, EXERCISES, PACES, Watch
from crowdfl.learning.features import features, features_per_window
from crowdfl.learning.learning_curve import learning_curve
from crowdfl.learning.models.learner import Learner, ModelScores, Training
from crowdfl.learning.models.softmax import SoftmaxLearner
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.server_steps import PlainStep
from crowdfl.learning.training import LocalTrainer
from tests.learning.plain_rounds import PlainRound, plain_rounds

NAMES = ("slow", "middle", "fast")
NORMED = "tests.learning.own_networks:Normed"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def made_up(index: int, labels: tuple[int, ...] = (0, 1, 2), samples: int = 400) -> Split:
    """Someone who swings a limb at 0.5, 1.0 or 1.5 Hz."""
    generator = np.random.default_rng(index)
    time = np.arange(samples)[:, None] / 50
    swings = [np.sin(2 * np.pi * (0.5 + 0.5 * label) * time + generator.normal(size=(1, 2))) for label in labels]
    recordings = [
        Recording(swing + 0.1 * generator.normal(size=swing.shape), label)
        for swing, label in zip(swings, labels, strict=True)
    ]
    return split_recordings(f"person-{index}", recordings, NAMES, Cut(100, 25))


def softmax() -> Learner:
    return SoftmaxLearner(features_per_window("motion", 100, 2), len(NAMES))


def test_what_one_knows_everyone_gets():
    """People with one movement each train a model that tells all three apart."""
    people = [made_up(index, labels=(index,)) for index in range(3)]
    *_, last = plain_rounds(softmax(), people, Training(epochs=5, batch=8, rate=0.1), rounds=3)
    assert last.accuracy > 0.9
    assert set(last.scores) == {"person-0", "person-1", "person-2"}


def test_a_server_step_leads_on_from_each_average():
    """The first round of half a step ends half-way; a step of its own for every run."""
    people, training = [made_up(index) for index in range(2)], Training(epochs=2, batch=8, rate=0.1)
    start = softmax().weights()[0]
    (plain,) = plain_rounds(softmax(), people, training, rounds=1)
    (half,) = plain_rounds(softmax(), people, training, rounds=1, step=PlainStep("fedavgm", rate=0.5))
    assert half.weights[0] == pytest.approx((start + plain.weights[0]) / 2)


def test_a_round_is_the_weighted_mean_of_what_everyone_trained():
    """Repeated by hand with the derived seeds; one person has twice the data."""
    people, training = [made_up(0), made_up(1, samples=800)], Training(epochs=2, batch=8, rate=0.1)
    (only,) = plain_rounds(softmax(), people, training, rounds=1)
    matrices, counts = [], []
    for person in people:
        learner, data = softmax(), person.train
        counts.append(learner.train(features("motion", data.windows), data.labels, training.at(1, data.name)))
        matrices.append(learner.weights()[0])
    assert counts[0] != counts[1]
    assert only.weights[0] == pytest.approx(np.average(matrices, axis=0, weights=counts))


def test_a_participant_of_a_new_task_needs_no_torch(monkeypatch):
    """What `crowdfl task new` writes, which the demo plays: prepared, trained and evaluated."""
    monkeypatch.setitem(sys.modules, "torch", None)
    training = tomllib.loads(task_text("shares"))["training"]
    assert training["learner"] == "network"
    trainer = LocalTrainer("watch:0", training)
    start = trainer.learner.weights()
    trainer.prepare(trainer.learner.shape)
    trained, samples = trainer.train(start, {}, 1)
    assert samples == len(trainer.split.train)
    assert trainer.evaluate(trained)["accuracy"] > trainer.evaluate(start)["accuracy"] + 0.3


def test_scores_count_every_window_once_and_nobody_makes_no_average():
    """(0.5 * 10 + 0.9 * 30) / 40, and the loss likewise."""
    result = PlainRound(1, [], {"anna": ModelScores(0.5, 2.0, 10), "bert": ModelScores(0.9, 0.4, 30)})
    assert (result.accuracy, result.loss) == pytest.approx((0.8, 0.8))
    with pytest.raises(NothingToAverage):
        next(plain_rounds(softmax(), [], Training(), rounds=1))


@pytest.fixture(scope="module")
def ten_people() -> list[Split]:
    source = Watch()
    return [source.load_person(index) for index in range(len(source.people))]


def test_ten_real_people_train_without_torch(ten_people):
    """Softmax regression is well above one in seven, and goes up from round to round."""
    learner = SoftmaxLearner(features_per_window("motion", CUT.length, 6), len(EXERCISES))
    first, second = plain_rounds(learner, ten_people, Training(epochs=5, rate=0.05), rounds=2)
    assert 0.6 < first.accuracy < second.accuracy


@pytest.mark.parametrize("learner", ["softmax", "network", pytest.param(NORMED, marks=needs_torch)])
def test_a_curve_shows_every_epoch_and_ends_where_training_alone_ends(learner):
    """In every bit of the weights, and in the last metrics; a module with dropout goes back to training after every look."""
    recipe = Recipe.of({"labels": list(PACES), "channels": 3, "learner": learner, "epochs": 4})
    split, told = recipe.load("synthetic:2"), []
    own = NORMED if learner == NORMED else None
    watched, alone = recipe.make_learner(own), recipe.make_learner(own)
    curve = learning_curve(recipe, watched, split, told.append)
    alone.train(recipe.inputs_of(split.train.windows), split.train.labels, recipe.training)
    assert [epoch.number for epoch in curve] == [0, 1, 2, 3, 4]
    assert told == curve
    assert [a.tobytes() for a in watched.weights()] == [a.tobytes() for a in alone.weights()]
    assert curve[-1].held_out == alone.evaluate(recipe.inputs_of(split.held_out.windows), split.held_out.labels)
    assert curve[-1].train.loss < curve[0].train.loss


def test_a_curve_shows_how_far_the_weights_have_moved():
    """From their start, which is not zero here; over all arrays together."""
    recipe = Recipe.of({"labels": list(PACES), "channels": 3, "learner": "softmax", "epochs": 3})
    split, learner = recipe.load("synthetic:2"), recipe.make_learner()
    learner.load([np.full(shape, 0.5) for shape in learner.shape.shapes])
    curve = learning_curve(recipe, learner, split)
    moved = sum(float(np.sum((array - 0.5) ** 2)) for array in learner.weights())
    assert curve[0].norm == 0
    assert curve[-1].norm == pytest.approx(moved**0.5)
    assert [epoch.norm for epoch in curve] == sorted(epoch.norm for epoch in curve)


def test_nothing_held_out_is_said_before_training():
    recipe = Recipe.of({"labels": ["a"], "channels": 1, "window_samples": 20, "learner": "softmax"})
    some, none = (
        Person("p", np.zeros((n, 20, 1), dtype=np.float32), np.zeros(n, dtype=np.int64), ("a",)) for n in (3, 0)
    )
    with pytest.raises(DataMalformed, match="no window is held out"):
        learning_curve(recipe, recipe.make_learner(), Split(some, none))
