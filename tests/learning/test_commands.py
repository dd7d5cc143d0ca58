"""`crowdfl train`, as typed."""

import importlib.util
import json
import tomllib

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.cli.train import sparkline
from crowdfl.errors import DataMalformed, DataMissing, LearningUnavailable, ModelMismatch, SettingsError
from crowdfl.learning.bounds import suggested_bound
from crowdfl.learning.datasets.supplied import PACES
from crowdfl.learning.models.forms import from_npz, from_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer
from tests.learning.shared import shared_file

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="Matplotlib is missing")
QUICK = ("train", "--data", "synthetic:1", "--model", "softmax", "--epochs", "6", "--set", "rate=0.05")
NORMED = "tests.learning.own_networks:Normed"


def typed(*words: object) -> str:
    """What a command prints; its error, if it has one, comes through."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_training_shows_a_curve_and_held_out_scores():
    """Made-up paces are told apart; the notes of the data are told."""
    shown = typed(*QUICK)
    assert "The data is made up." in shown
    assert "159 windows to train on, 51 held out" in shown
    assert "held-out accuracy" in shown
    assert "middling" in shown
    assert "f1 1.0000" in shown


def test_json_says_the_same_and_repeats():
    first, again, other = (json.loads(typed(*QUICK, "--json", "--set", f"seed={seed}")) for seed in (0, 0, 1))
    assert first == again != other
    assert [epoch["epoch"] for epoch in first["epochs"]] == list(range(7))
    assert first["held_out"]["accuracy"] == first["epochs"][-1]["accuracy"]
    assert first["training"] == {"epochs": 6, "batch": 32, "rate": 0.05, "seed": 0}
    assert set(first["classes"]) == set(PACES)
    assert sum(row["windows"] for row in first["classes"].values()) == first["windows"]["held_out"]


def test_a_trial_shows_its_update_norms_and_suggests_a_bound():
    result, shown = json.loads(typed(*QUICK, "--json")), typed(*QUICK)
    norms = [epoch["norm"] for epoch in result["epochs"]]
    assert result["update_norm"] == {"last": norms[-1], "largest": max(norms)}
    assert max(norms) <= result["max_norm"] <= 1.1 * max(norms)
    assert f"max_norm = {result['max_norm']:g}" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("largest", "bound"),
    [(1.0, 1.0), (1.61, 1.7), (0.0123, 0.013), (99.9, 100.0), (1234.0, 1300.0), (0.0, None), (np.nan, None)],
)
def test_the_suggested_bound_is_the_largest_norm_rounded_up(largest, bound):
    """Two digits. A trial that learnt nothing, or that diverged, suggests none."""
    assert suggested_bound([largest]) == bound


@pytest.mark.parametrize(("ending", "read"), [("npz", from_npz), ("safetensors", from_safetensors)])
def test_the_model_can_be_saved(tmp_path, ending, read):
    result = json.loads(typed(*QUICK, "--json", "--save", tmp_path / f"model.{ending}"))
    recipe = Recipe.of({"labels": list(PACES), "channels": 3, "learner": "softmax"})
    learner, held_out = recipe.make_learner(), recipe.load("synthetic:1").held_out
    learner.load(read(learner.shape, (tmp_path / f"model.{ending}").read_bytes()))
    metrics = learner.evaluate(recipe.inputs_of(held_out.windows), held_out.labels)
    assert metrics.loss == result["epochs"][-1]["loss"]
    evaluated = json.loads(
        typed("evaluate", tmp_path / f"model.{ending}", "--data", "synthetic:1", "--json").splitlines()[-1]
    )
    assert (evaluated["accuracy"], evaluated["windows"]) == (result["held_out"]["accuracy"], metrics.samples)


@needs_matplotlib
def test_the_curve_can_be_drawn(tmp_path):
    typed(*QUICK, "--plot", tmp_path / "curve.png")
    drawn = (tmp_path / "curve.png").read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert len(drawn) > 5_000


def test_a_picture_without_matplotlib_is_answered_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(LearningUnavailable, match=r"crowdfl\[plots\]"):
        typed(*QUICK, "--plot", tmp_path / "curve.png")


def test_a_task_file_says_what_to_train(tmp_path):
    task = tmp_path / "task.toml"
    section = {
        "learner": '"softmax"',
        "labels": '["fast", "slow"]',
        "channels": 3,
        "window_samples": 50,
        "epochs": 9,
        "rate": 0.05,
    }
    task.write_text("[training]\n" + "".join(f"{key} = {value}\n" for key, value in section.items()))
    result = json.loads(typed("train", "--data", "synthetic:4", "--task", task, "--epochs", 5, "--json"))
    assert list(result["classes"]) == ["fast", "slow"]
    assert (result["training"]["epochs"], result["training"]["rate"]) == (5, 0.05)


@needs_torch
def test_a_network_of_any_layers(tmp_path):
    layers = 'layers=["conv 4 9", "relu", "pool 8"]'
    command = ("train", "--data", "synthetic:1", "--set", layers, "--set", "features=flat", "--epochs", 3, "--json")
    assert json.loads(typed(*command))["parameters"] == (4 * 3 * 9 + 4) + (4 * 11 * 3 + 3)


@needs_torch
def test_an_own_module_is_run_if_it_is_named():
    result = json.loads(typed("train", "--data", "synthetic:1", "--learner", NORMED, "--epochs", 3, "--json"))
    assert result["learner"] == NORMED
    assert result["epochs"][-1]["loss"] < result["epochs"][0]["loss"]


@needs_torch
def test_a_wisdm_user_with_what_must_be_said():
    data = f"npz:{shared_file('wisdm_v1.1_crowdfl_2520x90x3.npz')}#3"
    result = json.loads(typed("train", "--data", data, "--model", "conv", "--epochs", 6, "--set", "batch=8", "--json"))
    assert result["held_out"]["accuracy"] > 0.5
    assert any("standardised" in note for note in result["notes"])


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (("--data", "phone:1"), SettingsError, "does not name any data"),
        (("--data", "csv:nowhere"), DataMissing, "not a folder"),
        (("--data", "synthetic:1", "--model", "forest"), SettingsError, "`learner` is 'forest'"),
        (("--data", "synthetic:1", "--set", "rate"), SettingsError, "KEY=VALUE"),
        (("--data", "synthetic:1", "--set", "rate=quick please"), SettingsError, "as a task file would have it"),
        (("--data", "synthetic:1", "--set", "speed=3"), SettingsError, "unknown setting `speed`"),
        (("--data", "synthetic:1", "--set", "step=3"), SettingsError, "window_samples=SAMPLES"),
        (("--data", "synthetic:1", "--save", "model.pkl"), SettingsError, r"\.safetensors or \.npz"),
        ((*QUICK[1:], "--save", "no/such/folder/model.npz"), SettingsError, "there is no folder no/such/folder"),
        (("--data", "synthetic:1", "--task", "gone.toml"), SettingsError, "no settings file"),
        (("--data", "synthetic:1", "--set", "channels=6"), DataMalformed, "let the task say channels = 3"),
        (("--data", "synthetic:1", "--set", 'labels=["reading"]'), DataMalformed, "none of the labels"),
        (("--data", "synthetic:1", "--learner", "own.py:Means"), SettingsError, "without its ending, own:Means"),
    ],
)
def test_what_cannot_be_done_is_said(words, error, said):
    with pytest.raises(error, match=said):
        typed("train", *words)


def test_a_trainer_for_another_model_is_refused_by_array():
    """Before a place is taken: here the participant would train another number of labels than the task's weights have."""
    trainer = LocalTrainer("synthetic:1", {"labels": list(PACES), "channels": 3, "learner": "softmax"})
    trainer.prepare(ModelShape(("weight", "bias"), ((27, 3), (3,))))
    with pytest.raises(ModelMismatch, match=r"'weight' has the shape \(27, 3\), the model's has \(27, 5\)"):
        trainer.prepare(ModelShape(("weight", "bias"), ((27, 5), (5,))))


def test_a_data_set_is_shown():
    assert "middling" in typed("train", "--look", "--data", "synthetic:3")
    found = json.loads(typed("train", "--look", "--data", "synthetic:3", "--json"))
    assert len(found["people"]) == 10
    assert found["windows"] == [
        {"person": "synthetic-4", "window": [100, 3], "train": [53] * 3, "held_out": [17] * 3},
    ]


def test_what_a_task_must_say_about_a_data_set_is_shown(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    told = typed("train", "--look", "--data", "synthetic:3")
    line = 'window_samples = 100, channels = 3, labels = ["slow", "middling", "fast"]'
    assert line in told
    assert Recipe.of(tomllib.loads(f"training = {{{line}}}")["training"]).load("synthetic:3")
    assert {"synthetic-4", "middling"} <= set(told.split())


def test_a_whole_file_is_shown(tmp_path):
    marks = {"train": np.array([True, False]), "label_names": np.array(["a"])}
    np.savez(tmp_path / "w.npz", windows=np.zeros((2, 3, 1)), label=np.zeros(2), user=np.array([4, 5]), **marks)
    found = json.loads(typed("train", "--look", "--data", f"npz:{tmp_path / 'w.npz'}", "--json"))
    assert [(row["person"], row["train"], row["held_out"]) for row in found["windows"]] == [
        ("4", [1], [0]),
        ("5", [0], [1]),
    ]


def test_a_sparkline_runs_from_low_to_high():
    assert sparkline([0, 1, 2, 7]) == "▁▂▃█"
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert sparkline([0.0, 7.0, float("inf"), float("nan")]) == "▁█??", "training that has diverged is shown, too"
    assert sparkline([float("nan")]) == "?"


def test_looking_at_data_takes_no_option_of_training():
    result = CliRunner().invoke(app, ["train", "--look", "--data", "synthetic:3", "--epochs", "2"])
    assert isinstance(result.exception, SettingsError)
    assert "leave out every option but --data and --json" in str(result.exception)
