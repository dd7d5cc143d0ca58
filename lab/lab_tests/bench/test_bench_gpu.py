"""`crowdfl bench gpu`: its rows and its output, on threads with a small key."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier import pctd
from crowdfl.errors import BackendUnavailable, ProtocolError
from crowdfl_lab.bench import command, gpu
from crowdfl_lab.bench.gpu import GpuSettings, bench_gpu
from crowdfl_lab.report.results import Result

SMALL = replace(
    GpuSettings.quick(), parameters=60, lanes=8, prime_bits=768, insecure_test_key=True, numbers=8, key_bits=(256,)
)


@pytest.fixture(scope="module")
def report() -> Result:
    return bench_gpu(SMALL, Threads(2))


def test_rows_and_stages(report):
    """Every target has a row, judged in the paper's setting alone."""
    assert [row.key for row in report.rows] == ["decryptions", "speedup", "round", "round_exact"]
    assert all(row.crowdfl.value > 0 and row.met is None for row in report.rows)
    assert GpuSettings().judged
    assert "INSECURE" in report.title
    stages, batches = report.tables
    assert all(figure.value > 0 for _, *figures in batches.rows for figure in figures)
    assert len(batches.rows) == 7
    assert [name for name, *_ in stages.rows] == list(gpu.STAGES)
    total = sum(figures[0].value for _, *figures in stages.rows)
    assert total == pytest.approx(report.rows[2].crowdfl.value)


def test_a_backend_that_computes_something_else_is_noticed():
    """A figure of wrong results is no figure."""

    class Wrong(Threads):
        def map(self, kernel, *blocks, out=None, progress=None):
            return np.zeros((len(blocks[0]), kernel.out_width), dtype=np.uint8)

    with pytest.raises(ProtocolError, match="not those of one core"):
        gpu.decryption_rows(SMALL, pctd.keygen(64, insecure_test_key=True), Wrong(1))


def test_wrong_rewards_are_noticed():
    """By exact distances they must be those in the clear."""
    with pytest.raises(ProtocolError, match="off by"):
        gpu.reward_error([1_000_000, 2_000_000], np.array([1_000_000.0, 2_100_000.0]), exact=True)


def test_the_command_prints_json(monkeypatch, report):
    """And takes its backend by name."""
    monkeypatch.setattr(gpu, "bench_gpu", lambda setting, backend, say: report)
    done = CliRunner().invoke(app, ["bench", "gpu", "--quick", "--json", "--compute", "threads"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["machine"]["backend"] == "threads"


def test_without_a_gpu_the_command_says_so(monkeypatch):
    """A named error, not a traceback."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendUnavailable):
        command.gpu(quick=True, compute="cuda")
