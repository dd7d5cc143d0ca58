"""lab/docs/experiments.md quotes the results in lab/figures, and nothing else."""

import csv
import json
import re
from pathlib import Path

import pytest

from crowdfl_lab.experiments.accuracy import spread
from crowdfl_lab.experiments.command import CATALOG

LAB = Path(__file__).parents[2]
FIGURES = LAB / "figures"
_SHOWN = [("", "0"), ("8.0", "2"), ("4.0", "2"), ("2.0", "2"), ("1.0", "2"), ("1.0", "1")]  # epsilon, servers
RESULTS = sorted(path.parent.relative_to(FIGURES) for path in (FIGURES / "experiments").rglob("made.json"))


@pytest.fixture(scope="module")
def page():
    return " ".join((LAB / "docs" / "experiments.md").read_text().split())


def table3(folder="experiments/table3"):
    """Rows of a committed table 3."""
    return list(csv.DictReader((FIGURES / folder / "table3.csv").read_text().splitlines()))


def check_quoted(page, rows, columns):
    """Mean and deviation of each split's rows, computed again, stand on the page."""
    assert rows
    for split in {r["split"] for r in rows}:
        for column in columns:
            values = [r[column] for r in rows if r["split"] == split]
            assert not all(values) or spread([float(v) for v in values]) in page


@pytest.mark.parametrize("scheme", ["NN", "FedAvg_1", "FedAvg_5"])
def test_table_3_is_quoted_as_it_is(page, scheme):
    check_quoted(page, [r for r in table3() if r["scheme"] == scheme and not r["of"]], ("accuracy", "f1", "mad"))


@pytest.mark.parametrize("recipe", ["spectral", "spectral, FedAvgM", "spectral, FedAdam"])
def test_recipes_are_quoted_as_they_are(page, recipe):
    """Also that encryption changes none of their digits."""
    rows = [r for r in table3() if r["recipe"] == recipe]
    check_quoted(page, [r for r in rows if r["scheme"] == "FedAvg_5" and r["of"] == "recipe"], ("accuracy", "f1"))
    plain, encrypted = (r for r in rows if r["of"] == "recipe pair")
    for column in ("accuracy", "precision", "recall", "f1"):
        assert f"{float(plain[column]):.4f}" == f"{float(encrypted[column]):.4f}"
    assert f"{float(encrypted['accuracy']):.4f}" in page


@pytest.mark.parametrize(
    ("folder", "profile"),
    [("experiments/table3", "hardened"), ("experiments/table3", "shares"), ("experiments/full-size/table3", None)],
)
def test_the_committed_prifedavg_equals_fedavg(page, folder, profile):
    """In every digit that is printed; and the page quotes them."""
    _, plain, encrypted = (r for r in table3(folder) if r["of"] == "pair" and r.get("profile") == profile)
    for column in ("accuracy", "precision", "recall", "f1", "mad"):
        assert f"{float(plain[column]):.4f}" == f"{float(encrypted[column]):.4f}"
        assert f"{float(plain[column]):.4f}" in page


@pytest.mark.parametrize("model", ["spectral", "motion"])
def test_what_noise_costs_is_quoted_as_it_is(model):
    """Means over the seeds, row by row."""
    text = (LAB / "docs" / "experiments.md").read_text()
    rows = list(csv.DictReader((FIGURES / "experiments/privacy/privacy.csv").read_text().splitlines()))
    shown = re.findall(rf"^\| `{model}`, \d+ \| ([\d,]+) \| (.*) \|$", text, re.MULTILINE)
    assert len(shown) >= 3
    for people, cells in shown:
        for (epsilon, servers), cell in zip(_SHOWN, cells.split(" | "), strict=True):
            found = [
                float(row["accuracy"])
                for row in rows
                if (row["model"], row["epsilon"], row["servers"]) == (model, epsilon, servers)
                and row["people"] == people.replace(",", "")
            ]
            assert cell.strip() == (f"{sum(found) / len(found):.3f}" if found else "")


def test_nn_is_at_least_as_accurate_as_the_papers():
    """0.7778."""
    found = [float(r["accuracy"]) for r in table3() if r["scheme"] == "NN" and not r["of"]]
    assert len(found) == 3
    assert min(found) >= 0.7778


@pytest.mark.parametrize("folder", RESULTS, ids=str)
def test_committed_results_say_how_they_were_made(folder, page):
    """A known experiment, by a command that names it, under a real key; linked from the page; no folder of any machine."""
    made = json.loads((FIGURES / folder / "made.json").read_text())
    assert folder.name in CATALOG
    assert made["command"].startswith(f"crowdfl reproduce {folder.name}")
    assert '"insecure_test_key": true' not in json.dumps(made)
    assert f"{folder}/" in page
    for path in (FIGURES / folder).iterdir():
        assert not re.search(r"/(home|root|tmp|work)/", path.read_text())
