"""Rounds that are logged in other programs, as those programs read them; rows as a DataFrame."""

import sys

import numpy as np
import pandas
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

import crowdfl
from crowdfl.errors import PackageMissing
from crowdfl.joining import JoinedRound, JoinResult
from tests.simulate.lines import START, evaluate, people, train

UNCHECKED = {"check": "none"}


def run(on_round=None):
    return crowdfl.simulate(
        train, evaluate, people(), rounds=3, initial=START, progress=False, on_round=on_round, **UNCHECKED
    )


@pytest.fixture(scope="module")
def result():
    return run()


def test_tensorboard_shows_every_number_of_every_round(tmp_path):
    """By its own reader, while rounds go on too: what a round has is on disk before the next begins."""
    log, seen = crowdfl.trackers.tensorboard(tmp_path), []

    def on_round(done):
        assert log(done) is None  # it stops nothing
        board = EventAccumulator(str(tmp_path)).Reload()
        seen.append([point.step for point in board.Tensors("loss")])

    rows = run(on_round).rows()
    assert seen == [[1], [1, 2], [1, 2, 3]]
    board = EventAccumulator(str(tmp_path)).Reload()
    assert set(board.Tags()["tensors"]) == rows[0].keys() - {"round"}
    for name in ("loss", "participants", "bytes_up"):
        points = [float(make_ndarray(point.tensor_proto)) for point in board.Tensors(name)]
        assert points == pytest.approx([row[name] for row in rows], rel=1e-6)


def test_mlflow_keeps_every_number_of_every_round_in_its_local_store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("GIT_PYTHON_REFRESH", "quiet")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow

    place = (tmp_path / "runs").as_uri()
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(place)
    try:
        with mlflow.start_run() as active:
            rows = run(crowdfl.trackers.mlflow()).rows()
        client = mlflow.MlflowClient(place)
        assert client.get_run(active.info.run_id).data.metrics.keys() == rows[0].keys() - {"round"}
        points = client.get_metric_history(active.info.run_id, "loss")
        assert [(point.step, point.value) for point in points] == [(row["round"], row["loss"]) for row in rows]
    finally:
        mlflow.set_tracking_uri(before)


def test_weights_and_biases_logs_every_round(tmp_path, monkeypatch):
    """Without a network, into a file of its own; where it is installed, which the tests' environment leaves out."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")
    rows = run(crowdfl.trackers.wandb(mode="offline", dir=tmp_path, project="lines")).rows()
    wandb.finish()
    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    told = written.read_bytes()
    assert all(name.encode() in told for name in rows[0].keys() - {"round"})
    assert all(repr(row["loss"]).encode() in told for row in rows)


@pytest.mark.parametrize("module", ["tensorboard.summary", "mlflow", "wandb"])
def test_without_its_package_a_tracker_says_what_to_install(module, tmp_path, monkeypatch):
    name = module.partition(".")[0]
    monkeypatch.setitem(sys.modules, module, None)
    given = [tmp_path] if name == "tensorboard" else []
    with pytest.raises(PackageMissing, match=rf"trackers.{name}` needs a package: `pip install 'crowdfl\[{name}\]'`"):
        getattr(crowdfl.trackers, name)(*given)


def test_a_package_that_lacks_one_of_its_own_says_so_itself(monkeypatch, tmp_path):
    (tmp_path / "wandb.py").write_text("import not_there")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(ModuleNotFoundError, match="not_there"):
        crowdfl.trackers.wandb()


def test_rows_are_a_data_frame(result):
    """Of whoever joins too, where a round may lack what others have."""
    frame = result.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["round"]) == [1, 2, 3]
    assert list(frame["loss"]) == [row["loss"] for row in result.rows()]
    joined = JoinResult(
        "task", "me", "finished", (JoinedRound(1, 40, {"loss": 0.25}), JoinedRound(2)), [], None
    ).frame()
    assert np.isnan(joined["loss"][1])


def test_without_pandas_it_says_what_to_install(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PackageMissing, match=r"crowdfl\[pandas\]"):
        result.frame()
