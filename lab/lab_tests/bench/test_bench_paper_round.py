"""`crowdfl bench gpu --profile paper`: a whole round in parts, on threads with a small key; stopped, it goes on."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.crypto.compute import Threads
from crowdfl.errors import ProtocolError, SettingsError
from crowdfl_lab.bench import paper_round
from crowdfl_lab.bench.paper_round import PaperRound, PaperRoundSettings, bench_paper_round

SMALL = replace(PaperRoundSettings.quick(), parameters=5, prime_bits=768, insecure_test_key=True)
PARTS = [
    "keys",
    *(f"encrypt p00{n}" for n in range(3)),
    "average",
    "read",
    *(f"distance p00{n}" for n in range(3)),
    "pay",
]


def call(folder, **more):
    return bench_paper_round(SMALL, Threads(1), folder, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A round that was stopped after every part but the last, and within one."""
    folder = tmp_path_factory.mktemp("paper")
    for missing in range(len(PARTS) - 1, 0, -1):
        assert call(folder, seconds=0.0) == missing
        if missing == 5:  # killed while it wrote
            with (folder / "parts.jsonl").open("a") as stream:
                stream.write('{"part": "read", "sta')
    return folder


def test_a_round_in_parts_is_the_round(folder, capsys):
    """Average and rewards are compared with those in the clear; nothing is done twice."""
    said = []
    result = call(folder, say=said.append)
    assert said == ["pay, 10 of 10"]
    assert [entry["part"] for entry in result.data["parts"]] == PARTS
    (row,) = result.rows
    (table,) = result.tables
    assert [name for name, *_ in table.rows] == ["encrypt", "average", "read", "distances", "pay"]
    for name, *work, clock in table.rows:
        assert 0 < sum(figure.value for figure in work) <= clock.value, name
    assert row.crowdfl.value == pytest.approx(sum(clock.value for *_, clock in table.rows))
    assert row.met is None  # a smoke run
    assert PaperRoundSettings().judged
    assert (folder / "keys.json").stat().st_mode & 0o077 == 0
    assert call(folder, say=said.append).rows[0].crowdfl == row.crowdfl
    assert len(said) == 1


def test_parts_of_two_people_at_a_time(tmp_path):
    """By processes of their own; one that was asked to stop finishes what it began."""
    assert call(tmp_path, at_a_time=2, seconds=0.0) == 9
    said = []
    result = call(tmp_path, at_a_time=2, say=said.append)
    assert [line.split(",")[0] for line in said] == PARTS[1:]
    assert {entry["part"] for entry in result.data["parts"]} == set(PARTS)
    assert [name for name, *_ in result.tables[0].rows] == ["encrypt", "average", "read", "distances", "pay"]
    assert all(entry["wall"] > 0 for entry in result.data["parts"])


def test_another_round_in_its_folder_is_refused(folder):
    with pytest.raises(SettingsError, match="other settings"):
        PaperRound(replace(SMALL, participants=4), Threads(1), folder)


def test_a_part_that_may_not_end_in_time_does_not_begin(tmp_path, monkeypatch):
    """By the longest of its stage so far."""
    said = []
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(paper_round.time, "monotonic", lambda: float(next(clock)))
    assert call(tmp_path, seconds=250.0, say=said.append) == 7
    assert said == ["keys, 1 of 10", "encrypt p000, 2 of 10", "encrypt p001, 3 of 10"]


@pytest.mark.parametrize("oracle", ["fedavg", "plain_rewards"])
def test_a_wrong_result_ends_the_benchmark(tmp_path, monkeypatch, oracle):
    real = getattr(paper_round, oracle)
    monkeypatch.setattr(paper_round, oracle, lambda *given: real(*given) * 1.01)
    with pytest.raises(ProtocolError, match="off by"):
        call(tmp_path)


def test_the_command_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(PaperRoundSettings, "quick", classmethod(lambda cls: SMALL))
    line = ["bench", "gpu", "--profile", "paper", "--quick", "--compute", "threads", "--state", str(tmp_path / "s")]
    stopped = CliRunner().invoke(app, [*line, "--seconds", "0"])
    assert stopped.exit_code == 75
    assert "9 parts are missing: run the same command again" in stopped.output
    done = CliRunner().invoke(app, [*line, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"][0]["key"] == "round_paper"
