"""What the repository says of itself: the map of the protocols, README and its links, and the one version."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.version import __version__
from tests import subprocesses

ROOT = Path(__file__).parent.parent
ROWS = [
    line
    for line in (ROOT / "docs" / "protocol-map.md").read_text().splitlines()
    if line.startswith("| ") and "`" in line
]


def _resolve(dotted: str) -> object:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"no module in {dotted}")


def test_the_map_has_rows():
    """An empty page would make the other tests of this file pass."""
    assert len(ROWS) > 10


@pytest.mark.parametrize("row", ROWS)
def test_every_symbol_and_test_of_the_map_exists(row):
    """Each row names at least one of both; tests by file and, where it says so, by function."""
    symbols = re.findall(r"`(crowdfl(?:_lab)?\.[\w.]+)`", row)
    tests = re.findall(r"`((?:tests|lab/lab_tests)/[\w/]+\.py)(?:::(\w+))?`", row)
    assert symbols, row
    assert tests, row
    for symbol in symbols:
        _resolve(symbol)
    for path, function in tests:
        text = (ROOT / path).read_text()
        assert not function or re.search(rf"^def {function}\(", text, re.MULTILINE), f"{path}::{function}"


def test_what_a_newcomer_follows_is_there():
    """CONTRIBUTING.md names where each walk through the code begins, and where it passes."""
    walks = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("| follow ... |")[1].split("## ")[0]
    names = re.findall(r"`([\w.]+)`", walks)
    assert len(names) > 10
    for name in names:
        _resolve(f"crowdfl.{name}")


README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "lab" / "docs").glob("*.md")),
]


def test_there_are_examples():
    """The tests below have not lost their subject."""
    assert len(EXAMPLES) >= 1


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_the_readme_runs_as_pasted(example, tmp_path):
    command = [sys.executable, "-c", example]
    ran = subprocesses.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_is_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/crowdfl/version.py"
    said = [path for path in (ROOT / "src").rglob("*.py") if f'"{__version__}"' in path.read_text(encoding="utf-8")]
    assert [path.name for path in said] == ["version.py"]


def test_the_changelog_begins_with_this_version():
    """With a date once it is out, until then "(unreleased)"."""
    first = re.search(r"^## (\S+) \((\S+)\)$", CHANGELOG, re.MULTILINE)
    assert first is not None
    assert first[1] == __version__
    assert re.fullmatch(r"unreleased|\d{4}-\d{2}-\d{2}", first[2])


def test_the_command_says_its_version():
    assert __version__ in CliRunner().invoke(app, ["--version"]).output
