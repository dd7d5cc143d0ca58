"""docs/learning.md: its code runs as it is printed, in the commands that it prints."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from crowdfl.learning.recipe import Recipe
from tests.learning.test_commands import typed
from tests.learning.test_values import sensor_csv

PAGE = (Path(__file__).parents[2] / "docs" / "learning.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With every file of the page, and nothing of them left in this process afterwards."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name, None)


def command(start: str) -> list[str]:
    """The line of the page that begins so, without its comment."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith(start))
    return line.split("  #")[0].split()[1:]


def test_the_page_has_the_three_kinds_of_code():
    """Or the tests below would try nothing."""
    assert set(FILES) == {"mynet", "mine", "mylosses"}


def test_the_learner_of_the_page_learns_and_is_evaluated(folder):
    """Four methods, from the folder that it lies in."""
    words = command("crowdfl train --data synthetic:1 --learner")
    result = json.loads(typed(*words, "--save", "model.npz", "--json"))
    assert result["learner"] == "own"
    assert result["held_out"]["accuracy"] == 1.0
    found = json.loads(typed(*command("crowdfl evaluate model.npz --data synthetic:2"), "--json"))
    assert found["windows"] > 0


@pytest.mark.second
def test_the_network_of_the_page_learns_from_whole_windows(folder):
    """A real person's, in the documented shape."""
    pytest.importorskip("torch")
    words = command("crowdfl train --data watch:3 --module")
    result = json.loads(typed(*words, "--epochs", 6, "--set", "rate=0.005", "--json"))
    assert result["learner"] == "module"
    assert result["epochs"][-1]["accuracy"] > 2 * result["epochs"][0]["accuracy"]


@pytest.mark.second
def test_the_values_of_the_page_are_learned_with_its_loss(folder):
    """From a CSV folder, by the page's own section and loss."""
    pytest.importorskip("torch")
    (section,) = re.findall(r'```toml\n(\[training\]\ntarget = "value".*?)```', PAGE, re.DOTALL)
    (folder / "task.toml").write_text(section)
    (folder / "walks").mkdir()
    (folder / "walks/one.csv").write_text(sensor_csv("speed", rows=2000))
    words = ("train", "--data", "csv:walks", "--task", "task.toml", "--json")
    usual = json.loads(typed(*words))
    assert set(usual["values"]) == {"speed"}
    own = json.loads(typed(*words, "--loss", "mylosses:asymmetric"))
    assert own["held_out"] != usual["held_out"]


def test_the_sections_of_the_page_are_tasks():
    """Each is read; what it names is a setting."""
    sections = re.findall(r"```toml\n(\[training\].*?)```", PAGE, re.DOTALL)
    recipes = [Recipe.of(tomllib.loads(section)["training"]) for section in sections]
    assert [recipe.target for recipe in recipes] == ["label", "value"]


@pytest.mark.parametrize("features", ["motion", "spectral", "flat", "windows"])
def test_the_table_of_shapes_is_right(features):
    """As the page writes them, for 100 samples of 6 channels."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f'| `"{features}"` |') and "(n," in line)
    sizes = {"window": 100, "channels": 6}
    said = re.search(r"\(n, ([^)]*)\) \|$", row)
    expected = tuple(eval(part, {}, sizes) for part in said[1].split(","))  # noqa: S307 -- our own page
    assert Recipe.of({"labels": ["a"], "features": features}).input_shape == expected
