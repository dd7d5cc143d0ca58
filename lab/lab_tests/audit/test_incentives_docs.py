"""docs/incentives.md quotes the run in lab/figures, and nothing else."""

import csv
import re
from pathlib import Path

import pytest

from crowdfl_lab.audit.incentives import RULES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "incentives.md").read_text(encoding="utf-8")
RUN = list(csv.DictReader((ROOT / "lab" / "figures" / "incentives.csv").read_text(encoding="utf-8").splitlines()))
CAMPAIGNS = sorted({(row["model"], row["data"]) for row in RUN})


def worst(rows: list[dict[str, str]], rule: str) -> float:
    """The most that any number of cheaters took, by any cheat."""
    return max(float(share) for row in rows for share in row[rule].split(" / "))


@pytest.mark.parametrize(("model", "data"), CAMPAIGNS)
def test_every_campaign_is_quoted_as_it_was_measured(model, data):
    rows = [row for row in RUN if (row["model"], row["data"]) == (model, data)]
    taken = " | ".join(f"{worst(rows, rule):g}" for rule in RULES)
    assert f"\n| {model} | {data} | {taken} |\n" in PAGE


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_explained(rule):
    """In the first column of a table."""
    assert re.search(rf"^\| `{rule}` \|", PAGE, re.MULTILINE)
