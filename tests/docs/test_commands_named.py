"""Every command, option and target of `make` that a page names is one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from crowdfl.cli.main import app
from tests.docs.conftest import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "lab" / "docs").glob("*.md")),
]
CODE = re.compile(r"^ *```(?!python)\w*[^\n]*\n(.*?)^ *```|^ {4}([^\n]*)|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"(?<![\w/.@\"'-])(crowdfl|make) +((?:--)?[a-z][^\n;&)#<>`]*)")
HASHED = re.compile(r"(?:[a-z]+ )+\d")  # the beginning of what is signed or hashed: "crowdfl payment 2 TASK"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def typed(page: str) -> Iterator[tuple[str, str]]:
    """What a page has its reader type, outside Python: the program, and what follows."""
    prose = re.sub(r"^```python.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    for found in CODE.finditer(prose.replace("\\\n", " ")):
        code = next(filter(None, found.groups()), "")
        yield from ((one[1], one[2]) for one in TYPED.finditer(code) if not HASHED.match(one[2]))


def fault(program: str, line: str) -> str | None:
    """What of a line is no command, option or target."""
    first, *rest = re.split(r" \| (?![^\[]*\])", line)[0].replace("[", "").replace("]", "").split()
    if program == "make":
        return None if first in TARGETS else first
    return unknown(typer.main.get_command(app), [first, *rest])


def unknown(command: Any, words: list[str]) -> str | None:
    """Commands first, `list|show` for two of them; then options."""
    if words and hasattr(command, "list_commands") and not words[0].startswith("-"):
        names = [name for name in words[0].strip(",.:").split("|") if name]
        found = [command.get_command(None, name) for name in names]
        if None in found:
            return words[0] if words[0].islower() else None  # TASK, or $1
        return next(filter(None, (unknown(one, words[1:]) for one in found)), None)
    known = {"--help"}.union(*([*one.opts, *one.secondary_opts] for one in command.params))
    options = [word.partition("=")[0].strip(",.:'\"") for word in words if re.match(r"--?[a-z]", word)]
    return next((option for option in options if option not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_whatever_a_page_has_its_reader_type_is_there(page: Path):
    found = [(f"{program} {line}", fault(program, line)) for program, line in typed(page.read_text(encoding="utf-8"))]
    assert {line: wrong for line, wrong in found if wrong} == {}


def test_the_pages_name_many():
    """The test above has not lost its subject."""
    found = {line for page in PAGES for _, line in typed(page.read_text(encoding="utf-8"))}
    assert len(found) > 150


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("`crowdfl sp task list sp/settings.toml`", None),
        ("`crowdfl sp|csp task list|show`", None),
        ("`crowdfl task $1`", None),
        ("`crowdfl sp task lists`", "lists"),
        ("`crowdfl sp task list|shows`", "list|shows"),
        ("    crowdfl train --dat watch:0", "--dat"),
        ("```sh\n(cd x && crowdfl trains)\n```", "trains"),
        ("`make tests`", "tests"),
    ],
)
def test_what_is_not_there_is_seen(line: str, wrong: str | None):
    ((program, words),) = typed(line)
    assert fault(program, words) == wrong
