"""docs/incentives.md quotes the run in lab/figures, and nothing else."""

import csv
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from crowdfl_lab.audit.incentives import REFERENCE, RULES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "incentives.md").read_text(encoding="utf-8")
RUN = list(csv.DictReader((ROOT / "lab" / "figures" / "incentives.csv").read_text(encoding="utf-8").splitlines()))
DATA = sorted({row["data"] for row in RUN})


def worst(rows: list[dict[str, str]], rule: str) -> float:
    """The most that any number of cheaters took, by any cheat."""
    return max(float(share) for row in rows for share in row[rule].split(" / "))


def taken(model: str, data: str, rules: Iterable[str] = RULES) -> list[float]:
    rows = [row for row in RUN if (row["model"], row["data"]) == (model, data)]
    return [worst(rows, rule) for rule in rules]


@pytest.mark.parametrize("data", DATA)
def test_every_campaign_is_quoted_as_it_was_measured(data):
    most = " | ".join(f"{share:g}" for share in taken("softmax", data))
    assert f"\n| softmax | {data} | {most} |\n" in PAGE


@pytest.mark.parametrize("data", DATA)
def test_a_network_differs_little(data):
    """As the page says, in place of a second table."""
    measured = [rule for rule in RULES if rule != REFERENCE]
    assert taken("network", data, measured) == pytest.approx(taken("softmax", data, measured), abs=10)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_explained(rule):
    """In the first column of a table."""
    assert re.search(rf"^\| `{rule}` \|", PAGE, re.MULTILINE)
