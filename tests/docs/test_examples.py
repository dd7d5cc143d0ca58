"""Every example runs as it stands: scripts in an empty folder, the notebook in a kernel of its own."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests import subprocesses
from tests.docs.conftest import ROOT

pytestmark = pytest.mark.second

EXAMPLES = ROOT / "examples"
NOTEBOOK, WHOLE_PATH = EXAMPLES / "first_steps.ipynb", EXAMPLES / "whole_path.ipynb"
PRINTED = {
    "dropouts_and_rewards.py": "lee: 12.00",
    "lora.py": "712 of 8,844 parameters are sent",
    "lora_servers.py": "base_model.model.query.lora_A.weight",
    "many_people.py": "largest error of the common slope: 0.1",
    "own_data.py": "accuracy",
    "own_rule.py": "NOT PRIVATE",
    "partition.py": "person-10      179",
    "pay_by_distance.py": "distance: ada ",
    "quickstart.py": "largest error of a weight: 0.15",
    "sklearn_functions.py": "    5             8    0.9",
    "to_servers.py": "5 people have joined",
    "torch_state_dict.py": "accuracy",
    "watch_and_resume.py": "by person: {'round': ",
}
EXECUTE = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def run(folder: Path, *words: object) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *words]
    ran = subprocesses.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def test_every_example_is_listed_and_run():
    """A new one needs a line here and in the README beside it. docs/organisations.md runs the one that needs an invitation."""
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == {*PRINTED, "join.py"}
    assert "\n  python examples/join.py " in (ROOT / "docs" / "organisations.md").read_text(encoding="utf-8")
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    others = [path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__" and path.suffix != ".md"]
    assert [name for name in others if f"({name})" not in listed] == []


@pytest.mark.parametrize("script", sorted(PRINTED))
def test_a_script_runs(script, tmp_path):
    assert PRINTED[script] in run(tmp_path, EXAMPLES / script)


def shown_by(notebook: Path, folder: Path) -> list[dict[str, str]]:
    """What the cells of a notebook show, by its kind; no error among it."""
    run(folder, "-c", EXECUTE, notebook, folder / "done.ipynb")
    cells = json.loads((folder / "done.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    found = [output.get("data", {"text/plain": output.get("text", "")}) for output in outputs]
    return [{kind: "".join(text) for kind, text in one.items()} for one in found]


def test_the_notebook_runs_and_shows_its_results_as_tables(tmp_path):
    shown = shown_by(NOTEBOOK, tmp_path)
    tables = [data["text/html"] for data in shown if data.get("text/html", "").startswith("<table>")]
    assert [html.count("<tr>") for html in tables] == [1 + 5, 1 + 3]  # a head, and a row for each round
    assert all("<th>error</th>" in html for html in tables)
    assert sum("image/png" in data for data in shown) == 1
    assert any("'eve': Decimal('7.2')" in data.get("text/plain", "") for data in shown)


def test_a_notebook_goes_the_whole_path(tmp_path):
    """From a simulation over servers of its own to what everyone was paid, with pictures of how far it is."""
    shown = shown_by(WHOLE_PATH, tmp_path)
    html = [data["text/html"] for data in shown if "text/html" in data]
    text = [data.get("text/plain", "") for data in shown]
    simulated, followed = (one for one in html if one.startswith("<svg"))
    for picture in (simulated, followed):
        assert "3 of 3 rounds are over" in picture
        assert picture.count("<polyline") == 1  # the error of each round
    assert any("KGC, SP and CSP listen" in one for one in text)
    assert any("largest difference of a weight: 0.0\n" in one for one in text)
    (report,) = (one for one in html if "What was paid" in one)
    assert "5 people have joined" in report
    assert report.count(">108.00 EUR<") >= 3  # paid in, offered, claimed
    assert any("paid: 21.6" in one for one in html)
    assert any('purpose = "Fit a line"' in one for one in text)


@pytest.mark.parametrize("notebook", [NOTEBOOK, WHOLE_PATH], ids=lambda path: path.name)
def test_a_notebook_is_kept_without_outputs(notebook):
    """What a run has left is not for the repository: it changes each time."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code" and cell["outputs"]] == []
