"""`crowdfl bench crypto`: its rows, its peers, its output."""

import json
import math
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdfl.errors import PeerUnavailable
from crowdfl_lab import timing
from crowdfl_lab.bench import command, crypto
from crowdfl_lab.bench.crypto import CryptoSettings, bench_crypto
from crowdfl_lab.bench.peers import ask as peers
from crowdfl_lab.report.results import Figure, Reference, Result, Row, Target
from crowdfl_lab.timing import Timing, turns

PEERS = Path(__file__).parents[3] / ".venv-peers/bin/python"
SMALL = CryptoSettings(
    parameters=500,
    prime_bits=256,
    insecure_test_key=True,
    repetitions=2,
    decryptions=4,
    decryption_turns=2,
    uploads=3,
    phe_sample=3,
)
KEYS = [
    "encrypt_fresh",
    "encrypt_from_pool_one_core",
    "encrypt_from_pool_all_cores",
    "upload_with_rewards",
    "upload_without_rewards",
    "sum",
    "partial_decryption",
    "partial_decryption_two_cores",
    "memory",
]
needs_peers = pytest.mark.skipif(not PEERS.exists(), reason="the peers are not installed: make peers")


def small_report(*, ratio: float | None) -> Result:
    """A run of one row that wants a ratio of at least 2."""
    row = Row("r", "r", Figure(1, "s"), Target(">= 2", "ratio", at_least=2), (Reference("p", missing="gone"),), ratio)
    return Result("r", "t", {"cores": 1}, {}, (row,))


@pytest.fixture
def fails(tmp_path):
    """A peers' interpreter that dies with a complaint."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho first line >&2\necho [broken] peer >&2\nexit 7\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


class TestRows:
    """Rows and their targets."""

    def test_a_bound_is_met_by_itself(self):
        """At least and at most both include the bound."""
        assert Target("", "ratio", at_least=200).met_by(200)
        assert not Target("", "ratio", at_least=200).met_by(199.9)
        assert Target("", "ratio", at_most=4).met_by(4)
        assert not Target("", "ratio", at_most=4).met_by(4.01)

    def test_a_target_looks_at_the_ratio_or_at_our_own_figure(self):
        """The same numbers, judged by the one or the other."""
        by_ratio = Row("r", "r", Figure(0.5, "s"), Target("", "ratio", at_most=0.4), ratio=0.3)
        by_figure = Row("r", "r", Figure(0.5, "s"), Target("", "crowdfl", at_most=0.4), ratio=0.3)
        assert by_ratio.met is True
        assert by_figure.met is False

    def test_nothing_is_said_without_a_ratio_or_outside_the_targets_setting(self):
        """An absent peer and a smoke run leave a row unjudged, neither met nor missed."""
        target = Target("", "ratio", at_least=1)
        assert Row("r", "r", Figure(1, "s"), target).met is None
        assert Row("r", "r", Figure(1, "s"), target, ratio=5, judged=False).met is None

    @pytest.mark.parametrize(
        ("figure", "shown"),
        [
            (Figure(0.0000425, "s"), "42.5 µs"),
            (Figure(7_092_276, "B"), "7.09 MB"),
            (Figure(1.5, "s", "3 values"), "1.5 s *"),
            (Figure(0, "B"), "0 B"),
        ],
    )
    def test_figures_are_shown_with_a_unit_and_a_star_for_samples(self, figure, shown):
        """What was not measured whole is marked."""
        assert str(figure) == shown

    def test_only_the_papers_setting_is_judged(self):
        """A smaller model or an insecure key says nothing about the targets, and the title says so."""
        assert CryptoSettings().judged
        assert not CryptoSettings.quick().judged
        assert "INSECURE" in SMALL.title
        assert "no target is judged" in SMALL.title

    def test_variants_take_turns(self):
        """A B A B, so that a disturbance falls on both."""
        calls = []
        times = turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
        assert calls == ["a", "b", "a", "b"]
        assert len(times["a"].seconds) == 2
        assert (Timing((3, 1, 2)).median, Timing((3, 1, 2)).minimum) == (2, 1)


class TestQuickRun:
    """A smoke run, end to end."""

    def test_all_rows_hold_numbers_in_one_json_object(self):
        """stdout is the JSON alone; progress went to stderr."""
        result = CliRunner().invoke(command.app, ["crypto", "--quick", "--no-peers", "--json"])
        assert result.exit_code == 0, result.output
        report = json.loads(result.stdout)
        assert [row["key"] for row in report["rows"]] == KEYS
        for row in report["rows"]:
            assert math.isfinite(row["crowdfl"]["value"])
            assert row["crowdfl"]["value"] > 0
            assert row["met"] is None
        assert {"cores", "architecture", "gmpy2", "gmp", "load_before"} <= report["machine"].keys()
        assert "partial decryption" in result.stderr

    def test_missing_peers_leave_a_message_and_the_other_rows(self, monkeypatch, tmp_path):
        """The table names the command that installs them."""
        monkeypatch.setattr(CryptoSettings, "quick", lambda: SMALL)
        result = CliRunner().invoke(
            command.app, ["crypto", "--quick", "--peers", str(tmp_path / "none")], env={"COLUMNS": "200"}
        )
        assert result.exit_code == 0, result.output
        assert "phe: not installed: make peers" in result.stdout
        assert "TenSEAL: not installed: make peers" in result.stdout
        assert "INSECURE TEST KEY" in result.stdout

    def test_peers_left_out_say_so(self):
        """No ratio, and the reason in its place."""
        rows = {row.key: row for row in bench_crypto(SMALL).rows}
        assert rows["encrypt_fresh"].peers == (Reference("phe", missing=peers.LEFT_OUT),)
        assert rows["encrypt_fresh"].ratio is None
        assert rows["partial_decryption"].ratio > 0


class TestPeers:
    """The other libraries, through their subprocess."""

    @needs_peers
    def test_every_ratio_is_there_with_the_peers(self):
        """phe's figures are marked as samples, TenSEAL's are measured whole."""
        report = bench_crypto(SMALL, python=PEERS)
        assert all(row.ratio is not None and row.ratio > 0 for row in report.rows)
        tenseal, phe = report.rows[3].peers
        assert (phe.figure.sample, tenseal.figure.sample) == ("3 values", "")
        assert report.versions["phe"].startswith("1.")

    def test_a_peer_that_crashes_hands_on_its_complaint(self, fails):
        """Its whole stderr is in the error, the last line in the table."""
        with pytest.raises(PeerUnavailable, match=r"exit code 7: first line\n\[broken\] peer"):
            peers.ask_peer(fails, "crypto", "phe", {"parameters": 500})
        assert str(Reference("phe", missing="first\nlast")) == "phe: last"

    @pytest.mark.parametrize(
        ("prints", "complaint"),
        [("oops", "no JSON"), ("[]", "not an object"), ('{"version": "1"}', "does not fit")],
    )
    def test_an_answer_that_does_not_fit_is_refused(self, fails, prints, complaint):
        """Nothing is read out of what a peer should not have said."""
        fails.write_text(f"#!/bin/sh\necho '{prints}'\n")
        with pytest.raises(PeerUnavailable, match=complaint):
            peers.ask_peer(fails, "crypto", "tenseal", {"parameters": 500})

    def test_a_file_that_cannot_run_is_an_unavailable_peer(self, tmp_path):
        """Not a traceback."""
        (tmp_path / "python").write_text("not a program")
        with pytest.raises(PeerUnavailable, match="did not run"):
            peers.ask_peer(tmp_path / "python", "crypto", "phe", {"parameters": 500})


class TestCheck:
    """Exit codes."""

    @pytest.mark.parametrize(
        ("ratio", "options", "code"),
        [
            (1.0, ["--check"], 1),
            (1.0, [], 0),
            (3.0, ["--check"], 0),
            (None, ["--check"], 1),
            (None, ["--check", "--no-peers"], 0),
        ],
    )
    def test_check_turns_a_missed_or_unproven_target_into_exit_code_1(self, monkeypatch, ratio, options, code):
        """Without --check a missed target is only shown; a peer left out on purpose is no failure."""
        monkeypatch.setattr(crypto, "bench_crypto", lambda *_, **__: small_report(ratio=ratio))
        assert CliRunner().invoke(command.app, ["crypto", *options]).exit_code == code

    def test_a_smoke_run_cannot_be_checked(self):
        """It judges nothing, so --check would always pass."""
        assert CliRunner().invoke(command.app, ["crypto", "--quick", "--check"]).exit_code == 2


def test_the_peak_is_of_this_program_and_not_below_what_it_has_now():
    """A peak taken over from a larger parent would hide all growth."""
    assert 0 < timing.current_bytes() <= timing.peak_bytes()
