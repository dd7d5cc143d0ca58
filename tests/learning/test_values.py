"""Learning numbers: their data in each form, their scores, their losses, and a whole campaign in the clear."""

import json

import numpy as np
import pytest

from crowdfl.errors import DataMalformed, OwnCodeError, SettingsError
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.sources import load_split
from crowdfl.learning.evaluation import evaluated, load_samples
from crowdfl.learning.models.learner import value_score
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer
from tests.learning.plain_rounds import plain_rounds
from tests.learning.test_commands import typed

VALUES = {"labels": ["pace"], "target": "value", "channels": 3, "epochs": 4, "rate": 0.02}
FILE = {
    "windows": np.zeros((4, 5, 2), dtype=np.float32),
    "user": np.array([1, 1, 1, 1]),
    "train": np.array([True, True, True, False]),
    "value": np.array([0.5, 1.5, 2.5, 3.5]),
}


def test_scores_are_those_worked_out_by_hand():
    """Errors 1, -1, 0 of 1, 2, 3: squares 2 / 3, absolute 2 / 3, and all of the variance."""
    found = value_score(np.array([[2.0], [1.0], [3.0]]), np.array([[1.0], [2.0], [3.0]], dtype=np.float32))
    assert found.numbers == pytest.approx({"rmse": (2 / 3) ** 0.5, "mae": 2 / 3, "r2": 0.0})
    assert found.samples == 3


def test_scores_of_several_values_weigh_them_alike():
    """R2 of each, then their mean; a value that never changes is explained or not."""
    wanted = np.array([[0.0, 5.0], [2.0, 5.0]], dtype=np.float32)
    assert value_score(wanted.astype(np.float64), wanted).r2 == 1.0
    assert value_score(wanted + np.array([0.0, 1.0]), wanted).r2 == 0.5
    assert value_score(np.ones((2, 2)) * [1.0, 5.0], wanted).r2 == 0.5


@pytest.mark.parametrize(
    ("found", "said"), [(np.zeros((0, 1)), "nothing to evaluate"), ([[np.inf]], "training diverged; lower `rate`")]
)
def test_what_cannot_be_scored_is_refused(found, said):
    with pytest.raises(DataMalformed, match=said):
        value_score(np.array(found), np.ones((len(found), 1), dtype=np.float32))


def test_made_up_people_have_a_pace():
    """Near 0.5, 1 and 1.5 a second, the same over a recording; on both sides of the split."""
    split = load_split("synthetic:2")
    assert split.train.value_names == ("pace",)
    for side in (split.train, split.held_out):
        assert side.values.shape == (len(side), 1)
        for label in range(3):
            paces = side.values[side.labels == label]
            assert abs(paces - 0.5 * (label + 1)).max() <= 0.05 * (label + 1) + 1e-6
            assert np.ptp(paces) < 1e-6


@pytest.mark.parametrize(
    ("change", "names", "values"),
    [
        ({}, ("value",), [[0.5], [1.5], [2.5]]),
        ({"value_names": np.array(["speed"])}, ("speed",), [[0.5], [1.5], [2.5]]),
        (
            {"value": np.arange(8.0).reshape(4, 2), "value_names": np.array(["a", "b"])},
            ("a", "b"),
            [[0, 1], [2, 3], [4, 5]],
        ),
    ],
)
def test_a_file_of_windows_may_hold_values(tmp_path, change, names, values):
    """In place of labels; one value per window, or several with names."""
    np.savez(tmp_path / "x.npz", **(FILE | change))
    split = WindowFile(tmp_path / "x.npz").load_person(0)
    assert split.train.value_names == names
    assert split.train.values.tolist() == values
    assert split.train.values.dtype == np.float32
    assert len(split.held_out) == 1


def test_values_and_labels_can_stand_side_by_side(tmp_path):
    """A task takes what it learns; names come in the task's order, ignoring case."""
    both = {"label": np.array([0, 1, 0, 1]), "label_names": np.array(["x", "y"]), "value_names": np.array(["a", "b"])}
    np.savez(tmp_path / "x.npz", **(FILE | both | {"value": np.arange(8.0).reshape(4, 2)}))
    base = {"window_samples": 5, "channels": 2, "learner": "softmax"}
    labelled = Recipe.of(base | {"labels": ["y", "x"]})
    assert labelled.targets_of(labelled.load(f"npz:{tmp_path}/x.npz").train).tolist() == [1, 0, 1]
    valued = Recipe.of(base | {"labels": ["B", "a"], "target": "value", "learner": "network"})
    assert valued.targets_of(valued.load(f"npz:{tmp_path}/x.npz").train).tolist() == [[1, 0], [3, 2], [5, 4]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"value": np.arange(8.0).reshape(4, 2)}, "several values per window: name them in an array 'value_names'"),
        ({"value": np.arange(3.0)}, r"'value' is float64 of shape \(3,\)"),
        ({"value": np.array(["a"] * 4)}, "'value' is <U1"),
        ({"value": np.array([1, 2, np.nan, 4])}, "a value is NaN or infinity"),
        ({"value_names": np.array(["a", "b"])}, r"values of shape \(3, 1\); expected \(3, 2\)"),
    ],
)
def test_values_that_cannot_be_used_are_refused(tmp_path, change, said):
    np.savez(tmp_path / "x.npz", **(FILE | change))
    with pytest.raises(DataMalformed, match=said):
        WindowFile(tmp_path / "x.npz").load_person(0)


def test_values_are_not_learned_as_a_label(tmp_path):
    """Every window would have the label "unlabelled", and every model be right."""
    np.savez(tmp_path / "mine.npz", **FILE)
    with pytest.raises(DataMalformed, match=r"has values \(value\) and no labels"):
        typed("train", "--data", f"npz:{tmp_path}/mine.npz#1")
    shown = typed("train", "--look", "--data", f"npz:{tmp_path}/mine.npz")
    assert 'target = "value", window_samples = 5, channels = 2, labels = ["value"]' in " ".join(shown.split())


def test_data_without_the_tasks_values_is_refused(tmp_path):
    with pytest.raises(DataMalformed, match=r"learns values \(pace\), and this data has none"):
        Recipe.of(VALUES | {"channels": 6}).load("watch:1")
    with pytest.raises(DataMalformed, match="the task's value 'height' is not among the data's: pace"):
        Recipe.of(VALUES | {"labels": ["pace", "height"]}).load("synthetic:1")
    assert Recipe.of(VALUES | {"labels": ["tempo"]}).load("synthetic:1").train.value_names == ("tempo",)


def sensor_csv(column: str, rows: int = 400) -> str:
    """Ten seconds at 50 Hz whose value rises by 0.01 a sample."""
    lines = [f"time,x,y,z,{column}"]
    lines += [f"{row / 50:.3f},{np.sin(row / 5):.4f},0.1,0.9,{row / 100:.4f}" for row in range(rows)]
    return "\n".join(lines)


@pytest.mark.parametrize("column", ["speed", "Speed (m/s)", "value", "target"])
def test_a_csv_column_holds_the_value(tmp_path, column):
    """By the task's name, with or without a unit, or by the usual one; a window's is the mean over its samples."""
    (tmp_path / "walk.csv").write_text(sensor_csv(column, rows=800))
    recipe = Recipe.of(VALUES | {"labels": ["speed"]})
    split = recipe.load(f"csv:{tmp_path}")
    assert split.train.windows.shape[1:] == (100, 3)
    assert split.train.values[0, 0] == pytest.approx(np.mean(np.arange(100)) / 100, abs=1e-4)
    assert split.train.values[1, 0] == pytest.approx(np.mean(np.arange(25, 125)) / 100, abs=1e-4)
    assert len(split.held_out) > 0


def test_a_csv_without_the_column_is_refused_and_can_still_be_predicted(tmp_path):
    (tmp_path / "walk.csv").write_text(sensor_csv("height"))
    recipe = Recipe.of(VALUES | {"labels": ["speed"]})
    with pytest.raises(
        DataMalformed, match="no column is called 'speed', which the task learns; there are time, x, y, z"
    ):
        recipe.load(f"csv:{tmp_path}")
    samples = load_samples(str(tmp_path / "walk.csv"), recipe)
    assert samples.windows.shape == (13, 100, 3)
    with pytest.raises(DataMalformed, match="no values to compare with"):
        samples.targets("walk.csv", recipe)
    (tmp_path / "walk.csv").write_text(sensor_csv("speed"))
    assert load_samples(str(tmp_path / "walk.csv"), recipe).targets("walk.csv", recipe).shape == (13, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"learner": "softmax"}, "softmax tells labels apart; for values say learner"),
        ({"target": "label", "loss": "huber"}, "`loss` is 'huber', which is of values"),
        (
            {"loss": "hubris"},
            '`loss` is \'hubris\'; expected "squared", "absolute", "huber" or package.module:function',
        ),
        ({"target": "number"}, "`target` is 'number'"),
        ({"features": "windows", "scale_inputs": True}, 'with features = "windows" say `standardise`'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change, said):
    with pytest.raises(SettingsError, match=said):
        Recipe.of(VALUES | change)


torch_tests = pytest.mark.second


@torch_tests
@pytest.mark.parametrize("loss", [None, "squared", "absolute", "huber"])
def test_a_campaign_in_the_clear_learns_a_value(loss):
    recipe = Recipe.of(VALUES | ({"loss": loss} if loss else {}))
    people = [recipe.load(f"synthetic:{person}") for person in (1, 2, 3)]
    *_, last = plain_rounds(recipe.make_learner(), people, recipe.training, 3, recipe)
    assert last.mean("r2") > 0.9
    assert last.mean("mae") < last.mean("rmse") < 0.15


@torch_tests
def test_built_in_losses_are_those_of_the_text_books():
    """Of an error of 3: 9, 3, and 2.5 by Huber with delta 1."""
    torch = pytest.importorskip("torch")
    from crowdfl.learning.models.torch_models import built_in

    found = [
        built_in(name, values=True)(torch.tensor([[3.0]]), torch.tensor([[0.0]])).item()
        for name in (None, "squared", "absolute", "huber")
    ]
    assert found == [9.0, 9.0, 3.0, 2.5]


@torch_tests
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("number", "is not a function"),
        ("returns_float", "returns float; expected a torch tensor with one number"),
        ("returns_rows", r"returns a tensor of shape \(4, 1\); expected a torch tensor with one number"),
        ("detached", "torch cannot differentiate"),
        ("fails", r"fails\(outputs, targets\) failed: RuntimeError: no \(own_losses.py, line \d+\)"),
    ],
)
def test_a_loss_that_cannot_be_used_is_refused(name, said):
    pytest.importorskip("torch")
    place = f"tests.learning.own_losses:{name}"
    with pytest.raises(OwnCodeError, match=said):
        Recipe.of(VALUES | {"loss": place}).make_learner(loss=place)


@torch_tests
def test_a_loss_that_fails_in_training_is_named():
    pytest.importorskip("torch")
    place = "tests.learning.own_losses:late"
    trainer = LocalTrainer("synthetic:1", VALUES | {"loss": place}, loss=place)
    with pytest.raises(OwnCodeError, match=r"late\(outputs, targets\) failed: ValueError: too many rows"):
        trainer.train(trainer.learner.weights(), {}, 1)


@torch_tests
@pytest.mark.parametrize("section", [VALUES, {"labels": ["slow", "middling", "fast"], "channels": 3, "epochs": 4}])
def test_an_own_loss_trains_values_and_labels(section):
    """The usual loss, written by the user, which torch trains, gives the weights that are trained without torch."""
    pytest.importorskip("torch")
    place = "tests.learning.own_losses:" + ("half" if "target" in section else "likelihood")
    own, usual = Recipe.of(section | {"loss": place}), Recipe.of(section)
    ends = []
    for recipe, learner in ((own, own.make_learner(loss=place)), (usual, usual.make_learner())):
        split = recipe.load("synthetic:1")
        learner.train(recipe.both_inputs(split)[0], recipe.targets_of(split.train), recipe.training)
        ends.append(learner.shape.flat(learner.weights()))
    assert np.abs(ends[0] - ends[1]).max() < 1e-4


@torch_tests
def test_train_evaluate_and_predict_show_values(tmp_path):
    """Errors in place of classes; the saved model scores as it was shown."""
    pytest.importorskip("torch")
    save = tmp_path / "model.npz"
    words = ("train", "--data", "synthetic:1", "--set", "target=value", "--set", "loss=huber", "--set", "rate=0.02")
    result = json.loads(typed(*words, "--epochs", 5, "--json", "--save", save))
    assert set(result["held_out"]) == {"rmse", "mae", "r2"}
    assert set(result["values"]) == {"pace"}
    assert {"train_rmse", "rmse", "norm"} <= set(result["epochs"][-1])
    found = json.loads(typed("evaluate", save, "--data", "synthetic:1", "--json").splitlines()[-1])
    assert found["rmse"] == result["held_out"]["rmse"] == result["epochs"][-1]["rmse"]
    shown = typed("evaluate", save, "--data", "synthetic:1")
    assert f"RMSE {found['rmse']:.4g}" in shown
    lines = typed("predict", save, "--data", "synthetic:1").splitlines()
    assert lines[0] == "window,start,pace"
    assert len(lines) == 1 + found["windows"]
    predicted = json.loads(typed("predict", save, "--data", "synthetic:1", "--json"))["windows"]
    assert list(predicted[0]["values"]) == ["pace"]
    table = typed(*words, "--epochs", 2)
    assert "held-out rmse" in table
    assert "R2" in table


@torch_tests
def test_a_participant_tells_the_errors_of_its_values():
    pytest.importorskip("torch")
    trainer = LocalTrainer("synthetic:1", VALUES)
    weights, used = trainer.train(trainer.learner.weights(), {}, 1)
    assert used == len(trainer.split.train)
    assert set(trainer.evaluate(weights)) == {"rmse", "mae", "r2", "windows"}


@torch_tests
def test_several_peoples_inputs_are_scaled_by_their_own_numbers(tmp_path):
    """As each was in training; a file without the rest of the person's data is refused."""
    pytest.importorskip("torch")
    recipe = Recipe.of({"labels": ["slow", "fast"], "channels": 3, "features": "spectral", "scale_inputs": True})
    learner = recipe.make_learner()
    (tmp_path / "walk.csv").write_text(sensor_csv("label"))
    together = evaluated(recipe, learner, {spec: load_samples(spec, recipe) for spec in ("synthetic:1", "synthetic:2")})
    alone = [evaluated(recipe, learner, {spec: load_samples(spec, recipe)}) for spec in ("synthetic:1", "synthetic:2")]
    windows = [one["windows"] for one in alone]
    with pytest.raises(DataMalformed, match="scaled inputs, which needs all of a person's data: use csv:FOLDER"):
        load_samples(str(tmp_path / "walk.csv"), recipe)
    assert together["loss"] == pytest.approx(np.average([one["loss"] for one in alone], weights=windows))
