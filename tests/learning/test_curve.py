"""A learning curve, and that looking on changes nothing."""

import importlib.util

import numpy as np
import pytest

from crowdfl.errors import DataMalformed
from crowdfl.learning.curve import learning_curve
from crowdfl.learning.datasets.data import Person, Split
from crowdfl.learning.datasets.synthetic import PACES
from crowdfl.learning.recipe import Recipe

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


@pytest.mark.parametrize("learner", ["softmax", pytest.param("network", marks=needs_torch)])
def test_a_curve_shows_every_epoch_and_ends_where_training_alone_ends(learner):
    """In every bit of the weights, and in the last metrics."""
    recipe = Recipe.of({"labels": list(PACES), "channels": 3, "learner": learner, "epochs": 4})
    split, told = recipe.load("synthetic:2"), []
    watched, alone = recipe.make_learner(), recipe.make_learner()
    curve = learning_curve(recipe, watched, split, told.append)
    alone.train(recipe.inputs_of(split.train.windows), split.train.labels, recipe.training)
    assert [epoch.number for epoch in curve] == [0, 1, 2, 3, 4]
    assert told == curve
    assert [a.tobytes() for a in watched.weights()] == [a.tobytes() for a in alone.weights()]
    assert curve[-1].held_out == alone.evaluate(recipe.inputs_of(split.held_out.windows), split.held_out.labels)
    assert curve[-1].train.loss < curve[0].train.loss


@needs_torch
def test_looking_on_does_not_change_a_network_with_dropout():
    """It goes back to training after every look."""
    section = {"labels": list(PACES), "channels": 3, "learner": "module", "module": "x.y:Z", "epochs": 3}
    recipe = Recipe.of(section)
    split = recipe.load("synthetic:2")
    watched, alone = (recipe.make_learner("tests.learning.own_networks:Normed") for _ in range(2))
    learning_curve(recipe, watched, split)
    alone.train(recipe.inputs_of(split.train.windows), split.train.labels, recipe.training)
    assert [a.tobytes() for a in watched.weights()] == [a.tobytes() for a in alone.weights()]


def test_nothing_held_out_is_said_before_training():
    """With what to do."""
    recipe = Recipe.of({"labels": ["a"], "channels": 1, "window": 20, "learner": "softmax"})
    some, none = (
        Person("p", np.zeros((n, 20, 1), dtype=np.float32), np.zeros(n, dtype=np.int64), ("a",)) for n in (3, 0)
    )
    with pytest.raises(DataMalformed, match="no window is held out"):
        learning_curve(recipe, recipe.make_learner(), Split(some, none))
