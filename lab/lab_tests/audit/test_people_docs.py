"""docs/incentives.md and docs/poisoning.md quote the runs in lab/figures, and nothing else."""

import csv
import re
from pathlib import Path

import pytest

from crowdfl_lab.audit.incentives import RULES

ROOT = Path(__file__).parents[3]


def page_and_run(name: str) -> tuple[str, list[dict[str, str]]]:
    figures = (ROOT / "lab" / "figures" / f"{name}.csv").read_text(encoding="utf-8")
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), list(csv.DictReader(figures.splitlines()))


CHEATED, CHEATS = page_and_run("incentives")
POISONED, POISON = page_and_run("poisoning")
DATA = sorted({row["data"] for row in CHEATS})


def worst(rows: list[dict[str, str]], rule: str) -> float:
    """The most that any number of cheaters took, by any cheat."""
    return max(float(share) for row in rows for share in row[rule].split(" / "))


def taken(model: str, data: str) -> list[float]:
    rows = [row for row in CHEATS if (row["model"], row["data"]) == (model, data)]
    return [worst(rows, rule) for rule in RULES]


@pytest.mark.parametrize("data", DATA)
def test_every_campaign_with_cheaters_is_quoted_as_it_was_measured(data):
    most = " | ".join(f"{share:g}" for share in taken("softmax", data))
    assert f"\n| softmax | {data} | {most} |\n" in CHEATED


@pytest.mark.parametrize("data", DATA)
def test_a_network_differs_little(data):
    """As the page says, in place of a second table."""
    assert taken("network", data) == pytest.approx(taken("softmax", data), abs=10)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_explained(rule):
    """In the first column of a table."""
    assert re.search(rf"^\| `{rule}` \|", CHEATED, re.MULTILINE)


def quoted(data: str, attack: str) -> str:
    """By the most attackers: the bound alone, then with a reference."""
    (row,) = [
        r for r in POISON if (r["model"], r["data"], r["attack"]) == ("softmax", data, attack) and r["by"] in "06"
    ]
    return ", ".join(row[f"{rule}, 15"].lstrip("0") for rule in ("bound alone", "reference"))


@pytest.mark.parametrize("attack", ["nobody", "sign flip at the bound", "flipped labels at the bound"])
def test_every_row_with_poison_is_quoted_as_it_was_measured(attack):
    words = attack.replace("sign flip", "reversed updates")
    assert f"\n| {words} | {quoted('WISDM', attack)} | {quoted('MotionSense', attack)} |\n" in POISONED


def test_real_rounds_judged_as_the_rule_in_the_clear():
    real = [row for row in POISON if "real rounds" in row["model"]]
    assert 15 * len(real) == 90
    assert {row["differ"] for row in real} == {"0"}
    assert "In 90 rounds by all roles no verdict differed" in POISONED
