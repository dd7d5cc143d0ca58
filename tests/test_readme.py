"""What README shows runs as it stands."""

import re
import sys
from pathlib import Path

import pytest

from tests import subprocesses

ROOT = Path(__file__).parent.parent
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
    """In a fresh interpreter, in another folder."""
    command = [sys.executable, "-c", example]
    ran = subprocesses.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    """Every relative link names a file that is there."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
