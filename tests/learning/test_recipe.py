"""A task's [training] section, and docs/learning.md: its sections of task files are tasks, and its shapes are right."""

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import DataMalformed, LearningUnavailable, SettingsError
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.supplied import PACES
from crowdfl.learning.models.learner import Training
from crowdfl.learning.recipe import Recipe
from tests.learning.test_commands import typed
from tests.learning.test_values import sensor_csv

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
MADE_UP = {"labels": list(PACES), "channels": 3, "learner": "softmax"}


def test_what_is_said_is_taken():
    said = {"window_samples": 90, "step": 45, "hertz": 20, "held_out": 0.4, "epochs": 3, "batch": 50, "rate": 0.001}
    recipe = Recipe.of({**MADE_UP, **said, "seed": 8, "features": "flat"})
    assert recipe.cut == Cut(90, 45, 0.4, 90, 20.0)
    assert recipe.training == Training(3, 50, 0.001, 8)
    assert recipe.inputs == 270


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": []}, "a list of different strings"),
        ({"learner": "forest"}, '`learner` is \'forest\'; expected "network", "conv", "softmax", package.module:Class'),
        ({"windows_samples": 90}, "unknown setting `windows_samples` .did you mean `window_samples`"),
        ({"epochs": "many"}, "`epochs` is 'many'; expected a whole number"),
        ({"epochs": 1.5}, r"`epochs` is 1\.5; expected a whole number"),
        ({"batch": True}, "`batch` is true; expected a whole number"),
        ({"rate": float("inf")}, "`rate` is inf; expected a number, above 0"),
        ({"seed": -1}, "`seed` is -1; expected a whole number, at least 0"),
        ({"seed": 2**70}, r"below 2\^63"),
        ({"layers": 32}, r"`layers` is 32; expected a list of widths and of layers in words, as in \[32\]"),
        ({"layers": [1.5]}, r"`layers` is \[1\.5\]; expected a list of widths"),
        ({"layers": [True]}, r"`layers` is \[True\]; expected a list of widths"),
        ({"learner": "own"}, "`learner` is 'own'; expected"),
        ({"gap": 10}, "unknown setting `gap`"),
        ({"labels": "fast"}, "`labels` is 'fast'; expected a list of different strings"),
        ({"labels": ["a", "a"]}, "a list of different strings"),
        ({"features": ["flat"]}, r"`features` is \['flat'\]; expected"),
        (
            {"window_samples": 10**9},
            "`window_samples` is 1000000000; expected a whole number, at least 1 and at most 10,000",
        ),
        ({"channels": 0}, "`channels` is 0; expected a whole number, at least 1 and at most 10,000"),
        ({"window_samples": 0}, "`window_samples` is 0; expected a whole number, at least 1"),
        ({"epochs": 10**9}, "`epochs` is 1000000000; .* at most 10,000"),
        ({"rate": -1}, "`rate` is -1; expected a number, above 0"),
        ({"hertz": 0}, "`hertz` is 0; expected a number, above 0"),
        ({"standardise": "yes"}, "`standardise` is 'yes'; expected true or false"),
    ],
)
def test_a_wrong_section_is_refused(change, said):
    with pytest.raises(SettingsError, match=said):
        Recipe.of(MADE_UP | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"learner": "network", "layers": [8, "linear 3"]},
            "is 'linear 3'; the one with an output per label follows by itself",
        ),
        ({"learner": "conv"}, 'say features = "flat"'),
        ({"learner": "pkg.nets:Net"}, "install and read it, then say --learner pkg.nets:Net"),
        ({"learner": "torch functions"}, "take part by `crowdfl.join`"),
        ({"features": "none"}, "`features` is 'none'; expected"),
        ({"learner": "network", "layers": [10**9]}, "is not a layer"),
        ({"learner": "network", "layers": [10**8]}, "too many for a phone"),
        ({"learner": "network", "layers": [-3]}, "is not a layer"),
    ],
)
def test_a_learner_that_cannot_be_made_is_refused(change, said):
    """With what to say instead. Code that a task names is not run because the task names it."""
    with pytest.raises(SettingsError, match=said):
        Recipe.of(MADE_UP | change).make_learner()


OF_TORCH = [
    {"learner": "conv", "features": "flat"},
    {"learner": "network", "layers": ["conv 4 9", "relu", "pool 4"], "features": "flat"},
    {"learner": "somebody.elses:Net"},
]


@pytest.mark.parametrize("change", OF_TORCH[:2])
def test_a_learner_that_needs_torch_says_how_to_get_it(change, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LearningUnavailable, match=r"pip install 'crowdfl\[learning\]'"):
        Recipe.of(MADE_UP | change).make_learner()


def test_an_own_loss_needs_torch(monkeypatch):
    """It is written in torch, whatever is trained by it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LearningUnavailable, match=r"pip install 'crowdfl\[learning\]'"):
        Recipe.of(MADE_UP | {"learner": "network", "loss": "a.b:c"}).make_learner(loss="a.b:c")


@pytest.mark.parametrize(
    "change",
    [
        {"learner": "network", "layers": [4]},
        {"learner": "network", "layers": ["linear 8", "tanh"]},
        *(pytest.param(change, marks=needs_torch) for change in OF_TORCH),
        {"learner": "softmax"},
    ],
    ids=["widths", "words", "conv", "own convolutions", "own module", "softmax"],
)
def test_every_kind_of_learner_learns_from_a_made_up_person(change):
    recipe = Recipe.of({**MADE_UP, "epochs": 5, "rate": 0.02, "batch": 8, **change})
    split = recipe.load("synthetic:1")
    own = "tests.learning.own_networks:Normed" if change["learner"] == "somebody.elses:Net" else None
    learner = recipe.make_learner(own)
    learner.train(recipe.inputs_of(split.train.windows), split.train.labels, recipe.training)
    assert learner.evaluate(recipe.inputs_of(split.held_out.windows), split.held_out.labels).accuracy > 0.8


def test_labels_are_the_tasks_and_windows_too():
    """A task about two of three paces, in its own order."""
    split = Recipe.of({**MADE_UP, "labels": ["FAST", "slow"], "window_samples": 50, "hertz": 25}).load("synthetic:1")
    assert split.train.label_names == ("FAST", "slow")
    assert set(split.train.labels.tolist()) == {0, 1}
    assert split.train.windows.shape[1:] == (50, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"channels": 6}, r"windows of 100 x 3 .* of 100 x 6: .* say channels = 3 in its"),
        ({"labels": ["PEN"]}, "none of the labels"),
        ({"window_samples": 5000}, "record longer stretches"),
    ],
)
def test_data_that_does_not_fit_the_task_is_refused(change, said):
    with pytest.raises(DataMalformed, match=said):
        Recipe.of(MADE_UP | change).load("synthetic:1")


def test_the_example_of_the_page_can_be_trained():
    """docs/learning.md, copied."""
    page = (Path(__file__).parents[2] / "docs" / "learning.md").read_text()
    example, *_ = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    recipe = Recipe.of(tomllib.loads(example)["training"])
    assert recipe.inputs == 270
    assert recipe.make_learner().predict(np.zeros((2, 270), dtype=np.float32)).shape == (2, 6)


PAGE = (Path(__file__).parents[2] / "docs" / "learning.md").read_text()
SECTIONS = re.findall(r"```toml\n(\[training\].*?)```", PAGE, re.DOTALL)


def test_the_sections_of_the_page_are_tasks():
    recipes = [Recipe.of(tomllib.loads(section)["training"]) for section in SECTIONS]
    assert [recipe.target for recipe in recipes] == ["label", "value"]


@pytest.mark.second
def test_the_values_of_the_page_are_learned(tmp_path):
    (tmp_path / "task.toml").write_text(SECTIONS[1])
    (tmp_path / "walks").mkdir()
    (tmp_path / "walks/one.csv").write_text(sensor_csv("speed", rows=2000))
    found = json.loads(typed("train", "--data", f"csv:{tmp_path}/walks", "--task", tmp_path / "task.toml", "--json"))
    assert set(found["values"]) == {"speed"}


@pytest.mark.parametrize("features", ["motion", "spectral", "flat", "windows"])
def test_the_table_of_shapes_is_right(features):
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f'| `"{features}"` |') and "(n," in line)
    sizes = {"window_samples": 100, "channels": 6}
    said = re.search(r"\(n, ([^)]*)\) \|$", row)
    expected = tuple(eval(part, {}, sizes) for part in said[1].split(","))  # noqa: S307 -- our own page
    assert Recipe.of({"labels": ["a"], "features": features}).input_shape == expected
