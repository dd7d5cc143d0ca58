"""docs/experiments.md quotes the results that lie beside it, and nothing else."""

import csv
import json
import re
from pathlib import Path

import pytest

from crowdfl.experiments.catalog import CATALOG
from crowdfl.experiments.frame import spread

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = sorted(path.name for path in (DOCS / "experiments").iterdir())


@pytest.fixture(scope="module")
def page():
    """The page, lines joined."""
    return " ".join((DOCS / "experiments.md").read_text().split())


def table3():
    """Rows of the committed table 3."""
    return list(csv.DictReader((DOCS / "experiments" / "table3" / "table3.csv").read_text().splitlines()))


@pytest.mark.parametrize("scheme", ["NN", "FedAvg_1", "FedAvg_5"])
def test_table_3_is_quoted_as_it_is(page, scheme):
    """Mean and deviation of each quoted row, computed again from the CSV."""
    rows = [r for r in table3() if r["scheme"] == scheme and r["of"] != "pair"]
    for split in {r["split"] for r in rows}:
        for column in ("accuracy", "f1", "mad"):
            values = [r[column] for r in rows if r["split"] == split]
            if all(values):
                assert spread([float(v) for v in values]) in page


def test_the_committed_prifedavg_equals_fedavg(page):
    """In every digit that is printed; and the page quotes them."""
    _, plain, encrypted = (r for r in table3() if r["of"] == "pair")
    for column in ("accuracy", "precision", "recall", "f1", "mad"):
        assert f"{float(plain[column]):.4f}" == f"{float(encrypted[column]):.4f}"
        assert f"{float(plain[column]):.4f}" in page


def test_nn_is_at_least_as_accurate_as_the_papers():
    """0.7778."""
    found = [float(r["accuracy"]) for r in table3() if r["scheme"] == "NN" and r["of"] != "pair"]
    assert len(found) == 3
    assert min(found) >= 0.7778


@pytest.mark.parametrize("name", RESULTS)
def test_committed_results_say_how_they_were_made(name, page):
    """A known experiment, by a command that names it, under a real key; linked from the page; no folder of any machine."""
    made = json.loads((DOCS / "experiments" / name / "made.json").read_text())
    assert made["command"].startswith(f"crowdfl reproduce {name}")
    assert name in CATALOG
    assert '"insecure_test_key": true' not in json.dumps(made)
    assert f"experiments/{name}/" in page
    for path in (DOCS / "experiments" / name).iterdir():
        assert not re.search(r"/(home|root|tmp|work)/", path.read_text())
