"""docs/learning.md: its sections of task files are tasks, and its shapes are right."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from crowdfl.learning.recipe import Recipe
from tests.learning.test_commands import typed
from tests.learning.test_values import sensor_csv

PAGE = (Path(__file__).parents[2] / "docs" / "learning.md").read_text()
SECTIONS = re.findall(r"```toml\n(\[training\].*?)```", PAGE, re.DOTALL)


def test_the_sections_of_the_page_are_tasks():
    """Each is read; what it names is a setting."""
    recipes = [Recipe.of(tomllib.loads(section)["training"]) for section in SECTIONS]
    assert [recipe.target for recipe in recipes] == ["label", "value"]


@pytest.mark.second
def test_the_values_of_the_page_are_learned(tmp_path):
    """From a CSV folder, by the page's own section."""
    pytest.importorskip("torch")
    (tmp_path / "task.toml").write_text(SECTIONS[1])
    (tmp_path / "walks").mkdir()
    (tmp_path / "walks/one.csv").write_text(sensor_csv("speed", rows=2000))
    found = json.loads(typed("train", "--data", f"csv:{tmp_path}/walks", "--task", tmp_path / "task.toml", "--json"))
    assert set(found["values"]) == {"speed"}


@pytest.mark.parametrize("features", ["motion", "spectral", "flat", "windows"])
def test_the_table_of_shapes_is_right(features):
    """As the page writes them, for 100 samples of 6 channels."""
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f'| `"{features}"` |') and "(n," in line)
    sizes = {"window": 100, "channels": 6}
    said = re.search(r"\(n, ([^)]*)\) \|$", row)
    expected = tuple(eval(part, {}, sizes) for part in said[1].split(","))  # noqa: S307 -- our own page
    assert Recipe.of({"labels": ["a"], "features": features}).input_shape == expected
