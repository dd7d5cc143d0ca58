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
NOTEBOOK = EXAMPLES / "first_steps.ipynb"
PRINTED = {
    "dropouts_and_rewards.py": "lee: 12.00",
    "lora.py": "712 of 8,844 parameters are sent",
    "many_people.py": "largest error of the common slope: 0.1",
    "own_data.py": "accuracy",
    "own_rule.py": "NOT PRIVATE",
    "partition.py": "person-10      179",
    "quickstart.py": "largest error of a weight: 0.15",
    "sklearn_learner.py": "round 3: accuracy",
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
    """A new one needs a line here and in the folder's README. The tutorial runs the one that needs an invitation."""
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == {*PRINTED, "join.py"}
    assert "\n  python examples/join.py " in (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    others = [path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__" and path.suffix != ".md"]
    assert [name for name in others if f"({name})" not in listed] == []


@pytest.mark.parametrize("script", sorted(PRINTED))
def test_a_script_runs(script, tmp_path):
    assert PRINTED[script] in run(tmp_path, EXAMPLES / script)


def test_the_notebook_runs_and_shows_its_results_as_tables(tmp_path):
    run(tmp_path, "-c", EXECUTE, NOTEBOOK, tmp_path / "done.ipynb")
    cells = json.loads((tmp_path / "done.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    shown = [output["data"] for output in outputs if "data" in output]
    tables = ["".join(data["text/html"]) for data in shown if "text/html" in data]
    assert [html.count("<tr>") for html in tables] == [1 + 5, 1 + 3]  # a head, and a row for each round
    assert all("<th>error</th>" in html for html in tables)
    assert sum("image/png" in data for data in shown) == 1
    assert any("'eve': Decimal('7.2')" in "".join(data.get("text/plain", "")) for data in shown)
    assert not [output for output in outputs if output["output_type"] == "error"]


def test_the_notebook_is_kept_without_outputs():
    """What a run has left is not for the repository: it changes each time."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code" and cell["outputs"]] == []
