"""Learners that users bring: found, constructed, tried before anyone joins, and each mistake named."""

import sys
from typing import Any

import numpy as np
import pytest

from crowdfl.errors import OwnCodeError, SettingsError
from crowdfl.learning.learning_curve import learning_curve
from crowdfl.learning.models.learner import ModelScores, Training
from crowdfl.learning.models.own_code import code_file, described, load_code
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer
from tests.learning.plain_rounds import plain_rounds

PLACE = "tests.learning.own_learners"
OWN = {"labels": ["slow", "middling", "fast"], "channels": 3, "learner": "mine:Net", "rate": 0.5, "seed": 9}


def made(name: str, **change):
    return Recipe.of(OWN | change).make_learner(learner=f"{PLACE}:{name}")


def test_four_methods_are_enough():
    """The arrays are named by their place, all samples count, and scores follow from the predictions."""
    recipe = Recipe.of(OWN)
    split, learner = recipe.load("synthetic:1"), made("Bare")
    assert learner.shape.names == ("array 0",)
    assert learner.shape.shapes == ((3, 27),)
    kept = learner.weights()
    assert learner.train(*pairs(recipe, split)[0], Training(rate=0.5)) == len(split.train)
    assert (kept[0] == 0).all()  # a copy, though the learner hands out its own array
    assert kept[0].dtype == np.float64
    found = learner.evaluate(*pairs(recipe, split)[1])
    assert isinstance(found, ModelScores)
    assert found.accuracy == 1.0


def pairs(recipe, split):
    inputs, held_out = recipe.both_inputs(split)
    return (inputs, recipe.targets_of(split.train)), (held_out, recipe.targets_of(split.held_out))


def test_data_that_a_learner_changes_in_place_is_its_own_copy():
    """The next round trains on what the sensors said."""
    recipe = Recipe.of(OWN)
    learner, ((inputs, labels), _) = made("Rough"), pairs(recipe, recipe.load("synthetic:1"))
    before = inputs.copy(), labels.copy()
    learner.train(inputs, labels, recipe.training)
    learner.predict(inputs)
    assert (inputs == before[0]).all()
    assert (labels == before[1]).all()


def test_a_constructor_is_given_what_it_names():
    learner = made("Full", epochs=7)
    assert learner.shape.names == ("means",)
    assert learner._learner.asked == (27, 3, 9, 7)


def test_whole_windows_and_values_reach_a_learner():
    """In the documented shapes; the mean of everyone's values is the average of a campaign."""
    recipe = Recipe.of(OWN | {"labels": ["pace"], "target": "value", "features": "windows"})
    people = [recipe.load(f"synthetic:{person}") for person in (1, 2, 3)]
    learner = recipe.make_learner(learner=f"{PLACE}:Means")
    (only,) = plain_rounds(learner, people, recipe.training, 1, recipe)
    everyone = np.concatenate([person.train.values for person in people])
    assert only.weights[0] == pytest.approx(everyone.mean(axis=0, dtype=np.float64))
    assert only.mean("rmse") > 0.1
    trainer = LocalTrainer("synthetic:1", recipe.model_dump(), learner=f"{PLACE}:Means")
    trainer.prepare(learner.shape)
    told = trainer.evaluate(only.weights)
    assert set(told) == {"rmse", "mae", "r2", "windows"}
    assert told["rmse"] == only.scores["synthetic-2"].rmse


def test_a_learner_that_does_not_tell_of_epochs_is_scored_at_its_end():
    """Not at its start, which is all that the curve would hold."""
    recipe = Recipe.of(OWN | {"epochs": 4})
    curve = learning_curve(recipe, made("Bare"), recipe.load("synthetic:1"))
    assert [epoch.number for epoch in curve] == [0, 4]
    assert curve[-1].held_out.accuracy == 1.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "NoMethods",
            r"is no torch.nn.Module, and no learner either: it has no weights\(\), load\(\), train\(\), predict\(\)",
        ),
        ("not_a_class", "is not a class"),
        ("WantsMore", "asks for depth; its constructor may ask for inputs, labels, seed, recipe by name"),
        ("FailsAtOnce", r"FailsAtOnce\(\) failed: KeyError: 'tree' \(own_learners.py, line \d+\)"),
        ("Forgetful", r"weights\(\) does not return what load\(\) was given, of the array 'array 0'"),
        ("NoList", r"weights\(\) returns ndarray; expected a list of arrays"),
        ("Words", r"weights\(\) has <U1 at place 0; expected an array of numbers"),
        ("Narrow", r"predict\(\) returns the shape \(2, 2\) for 2 samples; expected \(2, 3\)"),
        ("Scores", r"predict\(\) must return the probability of each label"),
        ("Nan", r"predict\(\) returns NaN or infinity"),
        ("WrongShape", r"weights\(\) does not fit its shape: the array 'means' has the shape \(3, 27\)"),
        ("ShapeOfText", "shape is str; expected a ModelShape, or leave it out"),
    ],
)
def test_what_cannot_be_a_learner_is_refused_when_it_is_made(name, said):
    with pytest.raises(OwnCodeError, match=said):
        made(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Lavish", r"train\(\) returns 160; expected how many of the 159 samples it used, or None"),
        ("Clumsy", r"Clumsy.train\(\) failed: AxisError: .* \(own_learners.py, line \d+\)"),
        ("Breaks", r"Breaks.train\(\) failed: ZeroDivisionError: no reason \(own_learners.py, line \d+\)"),
        ("Loose", r"evaluate\(\) returns float; expected ModelScores, or leave it out"),
    ],
)
def test_what_goes_wrong_later_names_the_call(name, said):
    recipe = Recipe.of(OWN)
    learner, split = made(name), recipe.load("synthetic:1")
    with pytest.raises(OwnCodeError, match=said):
        learning_curve(recipe, learner, split)


def test_the_place_of_an_error_is_the_users_own_wherever_a_library_is_installed(tmp_path):
    library, own = tmp_path / "site-packages" / "library.py", tmp_path / "own.py"
    names: dict[str, Any] = {}
    for path, code in ((library, "def fails():\n    1 / 0"), (own, "def train():\n    fails()")):
        exec(compile(code, path, "exec"), names)  # noqa: S102
    with pytest.raises(ZeroDivisionError) as found:
        names["train"]()
    assert described(found.value) == "ZeroDivisionError: division by zero (own.py, line 2)"


@pytest.mark.parametrize(
    ("section", "code", "said"),
    [
        ({}, {}, "trains code of its own: install and read it, then say --learner mine:Net$"),
        (
            {"learner": "softmax"},
            {"learner": f"{PLACE}:Bare"},
            'trains learner = "softmax", no code of its own: leave --learner',
        ),
        (
            {"learner": "functions"},
            {"learner": f"{PLACE}:Bare"},
            "functions of people's own: take part by `crowdfl.join`",
        ),
        ({"learner": "network"}, {"loss": f"{PLACE}:Bare"}, "has no loss of its own: leave --loss out"),
        ({"learner": "network", "loss": "mine:f"}, {}, "then say --loss mine:f"),
        ({"loss": "mine:f"}, {"learner": f"{PLACE}:Bare", "loss": "mine:f"}, "Bare has its own loss: leave `loss` out"),
        ({"loss": "mine:f", "learner": "softmax"}, {}, "softmax has its own loss"),
        ({"learner": "network", "features": "windows"}, {}, 'say features = "flat"'),
    ],
)
def test_code_is_run_only_where_the_task_has_it_and_its_user_names_it(section, code, said):
    with pytest.raises(SettingsError, match=said):
        Recipe.of(OWN | section).make_learner(**code)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def", r"cannot be loaded: SyntaxError"),
        ("raise OSError('no disk')", r"cannot be loaded: OSError: no disk \(broken_here.py, line 1\)"),
        ("import sys; sys.exit(0)", "cannot be loaded: the module ends the program"),
        ("import not_installed_anywhere", "'not_installed_anywhere' is not installed"),
        ("x = 1", r"cannot be loaded: .*/broken_here.py has no 'Net'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(tmp_path, monkeypatch, text, said):
    (tmp_path / "broken_here.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_here", raising=False)
    with pytest.raises(SettingsError, match=said):
        load_code("broken_here:Net")
    monkeypatch.delitem(sys.modules, "broken_here", raising=False)


def test_code_is_found_in_the_current_folder_and_the_path_is_left_as_it_was(tmp_path, monkeypatch):
    """With the modules beside it; and its user is told the file."""
    (tmp_path / "beside_mine.py").write_text("ANSWER = 42\n")
    (tmp_path / "mine_here.py").write_text("from beside_mine import ANSWER\nclass Net:\n    answer = ANSWER\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    try:
        assert load_code("mine_here:Net").answer == 42
        assert code_file("mine_here:Net") == str(tmp_path / "mine_here.py")
        assert sys.path == before
    finally:
        for name in ("beside_mine", "mine_here"):
            sys.modules.pop(name, None)
