"""Points, resuming, the report and the command."""

import json
import signal
import sys
from dataclasses import dataclass, replace

import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.errors import SettingsError
from crowdfl.lab.experiments.accuracy import spread
from crowdfl.lab.experiments.command import CATALOG
from crowdfl.lab.experiments.experiment import Experiment, ExperimentPoint, Notebook, Part, reproduce
from crowdfl.lab.experiments.published import TABLE3
from crowdfl.lab.report.plots import Picture
from crowdfl.lab.report.results import ResultTable
from tests import subprocesses
from tests.lab.experiments.running import bench, run, silent, text_of

KILLED = """
import os, signal, sys
from pathlib import Path
from crowdfl.crypto.compute import Threads
from crowdfl.lab.experiments.experiment import Bench, reproduce
from tests.lab.experiments.running import silent
from tests.lab.experiments.test_experiment import squares

reproduce([squares(dies_at=3)], Path(sys.argv[1]), Bench(Threads(1)), silent(), size="quick")
"""


@dataclass(frozen=True)
class Numbers:
    """Settings of the experiment below."""

    count: int = 5
    seed: int = 7


def squares(dies_at=None, log=None):
    """An experiment that squares numbers, and may be killed by the system at one of them."""

    def measure(i):
        if i == dies_at:
            import os

            os.kill(os.getpid(), signal.SIGKILL)
        if log is not None:
            log.append(i)
        return [{"number": i, "square": i * i}]

    def points(settings):
        return [
            ExperimentPoint("square", {"number": i, "seed": settings.seed}, lambda _, i=i: measure(i))
            for i in range(settings.count)
        ]

    def present(settings, results):
        rows = [row for rows in results for row in rows]
        table = ResultTable(
            "Squares <all>", ("number", "square"), tuple((str(r["number"]), str(r["square"])) for r in rows)
        )

        def draw(figure):
            figure.subplots().plot([r["number"] for r in rows], [r["square"] for r in rows])

        return Part(rows, (table,), (Picture("curve", "a parabola", draw),), ("a remark & more",))

    return Experiment("squares", "Squares", points, present, Numbers(9), Numbers())


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    """Killed by the system at the fourth point: the first three are not measured again."""
    done = subprocesses.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "squares").exists()
    log = []
    rows = run(squares(log=log), tmp_path)
    assert log == [3, 4]
    assert [row["square"] for row in rows] == ["0", "1", "4", "9", "16"]


def test_a_line_torn_by_a_crash_is_measured_again(tmp_path):
    """Half a line is no point, and does not spoil the next one."""
    run(squares(), tmp_path)
    (path,) = (tmp_path / "points").glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    log = []
    rows = run(squares(log=log), tmp_path)
    assert log == [4]
    assert len(rows) == 5
    log.clear()
    run(squares(log=log), tmp_path)
    assert log == []


def test_other_settings_are_other_points(tmp_path):
    """A changed seed measures anew; the old points stay."""
    run(squares(), tmp_path)
    log = []
    changed = squares(log=log)
    reproduce([changed], tmp_path, bench(), silent(), size="full")
    assert log == [5, 6, 7, 8]
    notebook = Notebook(tmp_path / "points")
    point = ExperimentPoint("square", {"number": 2, "seed": 8}, lambda _: [{"square": -1}])
    assert notebook.take(point, bench()) == [{"square": -1}]
    point = ExperimentPoint("square", {"number": 2, "seed": 7}, lambda _: [{"square": -1}])
    assert notebook.take(point, bench()) == [{"number": 2, "square": 4}]


def test_a_failed_point_is_not_kept(tmp_path):
    """Only what was finished counts as finished."""
    notebook = Notebook(tmp_path)

    def fail(_):
        raise SettingsError("no")

    with pytest.raises(SettingsError):
        notebook.take(ExperimentPoint("k", {}, fail), bench())
    assert notebook.take(ExperimentPoint("k", {}, lambda _: [{"a": 1}]), bench()) == [{"a": 1}]


def test_everything_promised_is_written(tmp_path):
    """CSV, PNG, SVG, how it was made, and a page with settings, seed, command and size; texts are escaped."""
    run(squares(), tmp_path)
    folder = tmp_path / "squares"
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "curve.svg").read_text()
    made = json.loads((folder / "made.json").read_text())
    assert made["settings"] == {"count": 5, "seed": 7}
    assert made["command"] == "crowdfl reproduce squares"
    page = (tmp_path / "report.html").read_text()
    assert "Squares &lt;all&gt;" in page
    assert "a remark &amp; more" in page
    assert 'src="data:image/png;base64,' in page
    text = text_of(tmp_path)
    assert "count 5, seed 7" in text
    assert "quick size, where full is the default" in text


def test_one_page_gathers_experiments_run_apart(tmp_path):
    """And names those that are missing."""
    run(squares(), tmp_path)
    others = [squares(), CATALOG["table6"]]
    reproduce([squares()], tmp_path, bench(), silent(), size="quick", catalog=others)
    assert "Not run yet: table6" in text_of(tmp_path)


def test_progress_is_told(tmp_path):
    """Every point is announced and finished; within a point the bench tells how far a batch is."""
    progress, seen = silent(), []

    def measure(point_bench):
        point_bench.progress(3, 4)
        seen.append([(task.description, task.completed, task.total) for task in progress.tasks])
        return [{"number": 1, "square": 1}]

    def points(settings):
        return [ExperimentPoint("square", {"number": i}, measure) for i in range(2)]

    reproduce([replace(squares(), points=points)], tmp_path, bench(), progress, size="quick")
    assert seen == [[(f"  square: number {i}", 3, 4), ("squares", i, 2)] for i in range(2)]
    assert progress.tasks[1].finished


def test_spread_is_the_sample_deviation():
    """By hand: 1, 2, 3 have the mean 2 and the deviation 1."""
    assert spread([1.0, 2.0, 3.0]) == "2.0000 ± 1.0000"
    assert spread([0.5]) == "0.5000"


def test_the_papers_mad_is_the_mean_absolute_difference_to_nn():
    """As the learning layer defines it: the paper's own five values follow from its other columns."""
    base = TABLE3["NN"]
    for name, row in TABLE3.items():
        if name != "NN":
            assert sum(abs(a - b) for a, b in zip(row[:4], base[:4], strict=True)) / 4 == pytest.approx(
                row[4], abs=6e-5
            )


class TestCommand:
    """`crowdfl reproduce`."""

    @pytest.mark.parametrize(
        "arguments", [["table9"], ["table4", "--quick", "--full"], ["table4", "--compute", "abacus"]]
    )
    def test_wrong_usage_is_named(self, arguments, tmp_path):
        """Exit code 2, nothing written."""
        result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
        assert result.exit_code == 2
        assert list(tmp_path.iterdir()) == []

    def test_it_runs_what_is_named(self, tmp_path, monkeypatch):
        """And prints its tables, what is said with them, and where the page is."""
        monkeypatch.setitem(CATALOG, "table4", squares())
        result = CliRunner().invoke(app, ["reproduce", "table4", "--quick", "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
        *shown, last = result.stdout.splitlines()
        assert last.endswith(f": {tmp_path / 'report.html'}")
        assert "Squares <all>" in shown[0]
        assert ["4", "16"] in [line.replace("│", " ").split() for line in shown]
        assert "a remark & more" in shown
        made = json.loads((tmp_path / "squares" / "made.json").read_text())
        assert made["command"] == "crowdfl reproduce squares --quick"
