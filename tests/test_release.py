"""The version is said once, and what tells people about it agrees."""

import re
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.version import __version__

ROOT = Path(__file__).parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_is_in_one_place():
    """pyproject.toml reads it where the package does."""
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
