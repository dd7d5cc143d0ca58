"""Points, resuming, the report and the command."""

import io
import json
import signal
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress
from tests import subprocesses
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.errors import DataMissing, SettingsError
from crowdfl_lab.experiments.accuracy import spread
from crowdfl_lab.experiments.command import CATALOG, changed
from crowdfl_lab.experiments.experiment import Experiment, ExperimentPoint, Notebook, Part, reproduce
from crowdfl_lab.experiments.federated import named_data
from crowdfl_lab.report.plots import Picture
from crowdfl_lab.report.results import ResultTable
from crowdfl_lab.wisdm_set import SET_FILE
from lab_tests.experiments.running import bench, run, silent, text_of

KILLED = """
import sys
from pathlib import Path
from crowdfl_lab.experiments.experiment import reproduce
from lab_tests.experiments.running import bench, silent
from lab_tests.experiments.test_experiment import squares

reproduce([squares(dies_at=3)], Path(sys.argv[1]), bench(), silent(), size="quick")
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
        return {
            i: ExperimentPoint("square", {"number": i, "seed": settings.seed}, lambda _, i=i: measure(i))
            for i in range(settings.count)
        }

    def present(_settings, found):
        rows = [row for rows in found.values() for row in rows]
        cells = tuple((str(r["number"]), str(r["square"])) for r in rows)

        def draw(figure):
            figure.subplots().plot([r["number"] for r in rows], [r["square"] for r in rows])

        table = ResultTable("Squares <all>", ("number", "square"), cells)
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


def test_a_torn_line_is_measured_again_and_other_settings_are_other_points(tmp_path):
    """Half a line is no point, and does not spoil the next one; the full size measures what the quick one has not."""
    run(squares(), tmp_path)
    (path,) = (tmp_path / "points").glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    log = []
    assert len(run(squares(log=log), tmp_path)) == 5
    reproduce([squares(log=log)], tmp_path, bench(), silent(), size="full")
    assert log == [4, 5, 6, 7, 8]
    notebook = Notebook(tmp_path / "points")
    for seed, found in ((8, [{"square": -1}]), (7, [{"number": 2, "square": 4}])):
        point = ExperimentPoint("square", {"number": 2, "seed": seed}, lambda _: [{"square": -1}])
        assert notebook.take(point, bench()) == found


def test_a_failed_point_is_not_kept(tmp_path):
    """Only what was finished counts as finished."""
    notebook = Notebook(tmp_path)

    def fail(_):
        raise SettingsError("no")

    with pytest.raises(SettingsError):
        notebook.take(ExperimentPoint("k", {}, fail), bench())
    assert notebook.take(ExperimentPoint("k", {}, lambda _: [{"a": 1}]), bench()) == [{"a": 1}]


def test_everything_promised_is_written(tmp_path):
    """CSV, PNG, SVG, how it was made, and a page with settings, command and size, which names what is missing."""
    run(squares(), tmp_path)
    folder = tmp_path / "squares"
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "curve.svg").read_text()
    made = json.loads((folder / "made.json").read_text())
    assert made["settings"] == {"count": 5, "seed": 7}
    assert made["command"] == "crowdfl reproduce squares"
    page, text = (tmp_path / "report.html").read_text(), text_of(tmp_path)
    assert "Squares &lt;all&gt;" in page
    assert 'src="data:image/png;base64,' in page
    for part in ("a remark & more", "count 5, seed 7", "quick size, where full is the default", "Not run yet: table3"):
        assert part in text


def test_progress_is_told(tmp_path):
    """Every point is announced and finished; within a point the bench tells how far a batch is."""
    progress, seen = silent(), []

    def measure(point_bench):
        point_bench.progress(3, 4)
        seen.append([(task.description, task.completed, task.total) for task in progress.tasks])
        return [{"number": 1, "square": 1}]

    points = {i: ExperimentPoint("square", {"number": i}, measure) for i in range(2)}
    reproduce([replace(squares(), points=lambda _: points)], tmp_path, bench(), progress, size="quick")
    assert seen == [[(f"  square: number {i}", 3, 4), ("squares", i, 2)] for i in range(2)]
    assert progress.tasks[1].finished


def test_progress_without_a_terminal_is_a_line_for_each_step(tmp_path):
    log = io.StringIO()
    reproduce([squares()], tmp_path, bench(), Progress(console=Console(file=log), disable=True), size="quick")
    lines = log.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[3].startswith("squares: 4 of 5, square: number 3")


def test_spread_is_the_sample_deviation():
    """By hand: 1, 2, 3 have the mean 2 and the deviation 1."""
    assert spread([1.0, 2.0, 3.0]) == "2.0000 ± 1.0000"
    assert spread([0.5]) == "0.5000"


class TestCommand:
    """`crowdfl reproduce`."""

    def test_it_runs_what_is_named(self, tmp_path, monkeypatch):
        """And prints its tables, what is said with them, and where the page is."""
        monkeypatch.setitem(CATALOG, "table4", squares())
        result = CliRunner().invoke(app, ["reproduce", "table4", "--quick", "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
        *shown, page, last = result.stdout.splitlines()
        assert page.endswith(f": {tmp_path / 'report.html'}")
        assert last == f"the paper's claims: {tmp_path / 'claims.md'}"
        assert "| open |" in (tmp_path / "claims.md").read_text()
        assert "Squares <all>" in shown[0]
        assert ["4", "16"] in [line.replace("│", " ").split() for line in shown]
        assert "a remark & more" in shown
        made = json.loads((tmp_path / "squares" / "made.json").read_text())
        assert made["command"] == "crowdfl reproduce squares --quick"

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (["table9"], "table9: not an experiment"),
            (["table4", "--quick", "--full"], "exclude each other"),
            (["table4", "--compute", "abacus"], "abacus: not a backend"),
            (["table4", "--rounds", "3"], "table4 does not use --rounds"),
            (["table3", "fig3", "--dropout", "0.3"], "table3 does not use --dropout"),
            (["fig3", "--lanes", "64"], "fig3 does not use --lanes"),
            (["table3", "--profile", "plain"], "plain: not a profile"),
            (["fig3", "--dropout", "1.5"], "share of the people"),
            (["claims", "--out", "nowhere"], "nothing is stored in nowhere"),
        ],
    )
    def test_wrong_usage_and_an_option_that_is_not_used_are_refused_by_name(self, arguments, named, tmp_path):
        """Before anything is looked for or written."""
        result = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path), *arguments], env={"COLUMNS": "200"})
        assert result.exit_code == 2
        assert named in " ".join(result.output.replace("│", " ").split())
        assert list(tmp_path.iterdir()) == []

    def test_missing_data_says_in_one_line_what_to_download_and_run(self, tmp_path, monkeypatch):
        """The default is a folder of the clone."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("CROWDFL_DATA", raising=False)
        result = CliRunner().invoke(app, ["reproduce", "table3"])
        assert isinstance(result.exception, DataMissing)
        message = str(result.exception)
        assert message.startswith("there is no data/wisdm_v1.1_crowdfl_2520x90x3.npz: run `crowdfl wisdm fetch data`")
        assert "\n" not in message
        assert "crowdfl wisdm build data/WISDM_ar_v1.1_raw.txt data" in message
        assert list(tmp_path.iterdir()) == []

    def test_options_and_data_are_in_the_key_and_in_what_is_said(self, tmp_path):
        """One rate of dropouts on six people with two windows each; another number of rounds is measured anew."""
        data = tmp_path / "six.npz"
        _write_windows(data, 6)
        words = ["reproduce", "fig3", "--data", str(data), "--hidden", "2", "--dropout", "0.4", "--profile", "shares"]
        for rounds in ("1", "2"):
            result = CliRunner().invoke(app, [*words, "--rounds", rounds, "--out", str(tmp_path)])
            assert result.exit_code == 0, result.output
        made = json.loads((tmp_path / "fig3" / "made.json").read_text())
        assert made["command"] == "crowdfl reproduce fig3 --rounds 2 --hidden 2 --dropout 0.4 --profile shares"
        learn, label = made["settings"]["learn"], named_data(str(data)).label
        assert (learn["rounds"], learn["hidden"], learn["data"], learn["people"]) == (2, 2, label, 6)
        points = (tmp_path / "points" / "encrypted-run.jsonl").read_text().splitlines()
        assert len(points) == 2 * 2
        assert all(label in line for line in points)

    def test_all_takes_each_option_where_it_is_used(self):
        """And leaves it out elsewhere."""
        experiments = {each.name: each for each in changed(["all"], {"rounds": 3, "lanes": 256})}
        assert list(experiments) == list(CATALOG)
        assert experiments["table3"].full.learn.rounds == experiments["fig7"].quick.paid.learn.rounds == 3
        assert {run.lanes for run in experiments["fig4"].quick.runs} == {experiments["fig6"].full.lanes} == {256}
        assert experiments["table4"] == CATALOG["table4"]


class TestNamedData:
    """What `--data` takes."""

    def test_a_file_a_folder_and_a_spec_are_the_same_data_by_their_bytes(self, tmp_path):
        """The label has no path in it, and changes with the contents."""
        path = tmp_path / SET_FILE
        _write_windows(path, 4)
        found = [named_data(text) for text in (str(path), str(tmp_path), f"npz:{path}")]
        assert len({each.label for each in found}) == 1
        assert str(tmp_path) not in found[0].label
        assert [len(each.source.people) for each in found] == [4] * 3
        _write_windows(path, 5)
        assert named_data(str(path)).label != found[0].label

    def test_crowds_are_opened_and_single_persons_refused(self, tmp_path):
        """Also data with fewer than three people."""
        assert len(named_data("watch:").source.people) == 10
        for text in ("watch:3", "npz:somewhere.npz#7"):
            with pytest.raises(SettingsError, match="names one person"):
                named_data(text)
        path = tmp_path / "two.npz"
        _write_windows(path, 2)
        with pytest.raises(SettingsError, match="at least 3"):
            named_data(f"npz:{path}")


def _write_windows(path, people):
    user = np.repeat(np.arange(people), 2)
    arrays = {"windows": np.zeros((len(user), 4, 3)), "label": user % 2, "user": user}
    np.savez(path, **arrays, train=np.arange(len(user)) % 2 == 0, label_names=np.array(["a", "b"]))
