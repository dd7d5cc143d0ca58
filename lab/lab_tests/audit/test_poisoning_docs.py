"""docs/poisoning.md quotes the run in lab/figures."""

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "poisoning.md").read_text(encoding="utf-8")
RUN = list(csv.DictReader((ROOT / "lab" / "figures" / "poisoning.csv").read_text(encoding="utf-8").splitlines()))


def quoted(data: str, attack: str) -> str:
    """By the most attackers: the bound alone, then with a reference."""
    (row,) = [r for r in RUN if (r["model"], r["data"], r["attack"]) == ("softmax", data, attack) and r["by"] in "06"]
    return ", ".join(row[f"{rule}, 15"].lstrip("0") for rule in ("bound alone", "reference"))


@pytest.mark.parametrize(
    ("words", "attack"),
    [
        ("nobody", "nobody"),
        ("reversed updates at the bound", "sign flip at the bound"),
        ("flipped labels at the bound", "flipped labels at the bound"),
    ],
)
def test_every_row_is_quoted_as_it_was_measured(words, attack):
    assert f"\n| {words} | {quoted('WISDM', attack)} | {quoted('MotionSense', attack)} |\n" in PAGE


def test_real_rounds_judged_as_the_rule_in_the_clear():
    real = [row for row in RUN if "real rounds" in row["model"]]
    assert 15 * len(real) == 90
    assert {row["differ"] for row in real} == {"0"}
    assert "In 90 rounds by all roles no verdict differed" in PAGE
