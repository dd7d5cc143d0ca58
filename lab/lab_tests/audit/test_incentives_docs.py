"""docs/incentives.md quotes the runs that lie beside it, and nothing else."""

import re
from pathlib import Path

import pytest

from crowdfl_lab.audit.incentives.campaign import CHEATS
from crowdfl_lab.audit.incentives.report import RULES

DOCS = Path(__file__).parents[3] / "docs"
RUNS = sorted((DOCS / "figures").glob("incentives*.md"))
PAGE = (DOCS / "incentives.md").read_text(encoding="utf-8")


def tables(text: str) -> list[str]:
    """Every table, from its first row to its last."""
    return [table.strip() for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)]


def test_every_measured_table_is_one_of_a_run():
    """Those of rules and cheats apart, which measure nothing."""
    measured = [table for run in RUNS for table in tables(run.read_text(encoding="utf-8"))]
    quoted = [table for table in tables(PAGE) if re.search(r"\| \d", table)]
    assert len(quoted) >= 6
    assert [table.partition("\n")[0] for table in quoted if table not in measured] == []


@pytest.mark.parametrize("name", [*(cheat.name for cheat in CHEATS), *(f"`{rule}`" for rule in RULES)])
def test_every_cheat_and_rule_is_explained(name):
    """In the first column of a table."""
    assert f"\n| {name} |" in PAGE


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_runs_say_how_they_were_made(run):
    """By which command; no folder of any machine; linked or shown on the page."""
    text = run.read_text(encoding="utf-8")
    assert text.startswith("# A run of `crowdfl audit incentives")
    assert not re.search(r"/(home|root|tmp|work)/", text)
    assert f"figures/{run.stem}." in PAGE
