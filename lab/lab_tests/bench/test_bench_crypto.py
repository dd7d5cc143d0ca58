"""`crowdfl bench crypto`: its rows, its peers, its output; and what every benchmark shares."""

import json
import math
import stat
from pathlib import Path

import pytest
from gmpy2 import mpz
from typer.testing import CliRunner

from crowdfl.crypto.paillier.kernels import FixedBase
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl_lab import timing
from crowdfl_lab.bench import command, crypto, peers
from crowdfl_lab.bench.crypto import CryptoSettings, bench_crypto
from crowdfl_lab.bench.workload import best_window
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


@pytest.fixture
def fails(tmp_path):
    """A peers' interpreter that dies with a complaint."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho first line >&2\necho [broken] peer >&2\nexit 7\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


class TestRows:
    """Rows and their targets."""

    @pytest.mark.parametrize(
        ("target", "met"),
        [
            (Target("", "ratio", at_least=0.3), True),
            (Target("", "ratio", at_most=0.29), False),
            (Target("", "crowdfl", at_most=0.5), True),
            (Target("", "crowdfl", at_most=0.4), False),
        ],
    )
    def test_a_target_looks_at_the_ratio_or_at_our_own_figure(self, target, met):
        """A bound is met by itself."""
        assert Row("r", "r", Figure(0.5, "s"), target, ratio=0.3).met is met

    def test_nothing_is_said_without_a_ratio_or_outside_the_targets_setting(self):
        """An absent peer and a smoke run leave a row unjudged, neither met nor missed."""
        target = Target("", "ratio", at_least=1)
        assert Row("r", "r", Figure(1, "s"), target).met is None
        assert Row("r", "r", Figure(1, "s"), target, ratio=5, judged=False).met is None
        assert CryptoSettings().judged
        assert not CryptoSettings.quick().judged

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


class TestRun:
    """A small run, end to end."""

    def test_all_rows_hold_numbers_in_one_json_object(self, monkeypatch, tmp_path):
        """stdout is the JSON alone; progress went to stderr. Missing peers leave a message and the other rows."""
        monkeypatch.setattr(CryptoSettings, "quick", lambda: SMALL)
        words = ["crypto", "--quick", "--peers", str(tmp_path / "none"), "--json"]
        result = CliRunner().invoke(command.app, words)
        assert result.exit_code == 0, result.output
        report = json.loads(result.stdout)
        assert [row["key"] for row in report["rows"]] == KEYS
        for row in report["rows"]:
            assert math.isfinite(row["crowdfl"]["value"])
            assert row["crowdfl"]["value"] > 0
            assert row["met"] is None
        assert report["rows"][0]["peers"][0]["missing"] == peers.NOT_INSTALLED
        assert report["rows"][0]["ratio"] is None
        assert "INSECURE TEST KEY" in report["title"]
        assert {"cores", "architecture", "gmpy2", "gmp", "load_before"} <= report["machine"].keys()
        assert "partial decryption" in result.stderr

    @pytest.mark.skipif(not PEERS.exists(), reason="the peers are not installed: make peers")
    def test_every_ratio_is_there_with_the_peers(self):
        """phe's figures are marked as samples, TenSEAL's are measured whole."""
        report = bench_crypto(SMALL, python=PEERS)
        assert all(row.ratio is not None and row.ratio > 0 for row in report.rows)
        tenseal, phe = report.rows[3].peers
        assert (phe.figure.sample, tenseal.figure.sample) == ("3 values", "")
        assert report.versions["phe"].startswith("1.")


class TestPeers:
    """The other libraries, through their subprocess."""

    def test_a_peer_that_crashes_hands_on_its_complaint(self, fails):
        """Its whole stderr is in the error, the last line in the table."""
        with pytest.raises(peers.PeerUnavailable, match=r"exit code 7: first line\n\[broken\] peer"):
            peers.ask_peer(fails, "crypto", "phe", {"parameters": 500})
        assert str(Reference("phe", missing="first\nlast")) == "phe: last"

    @pytest.mark.parametrize(
        ("prints", "complaint"),
        [("oops", "no JSON"), ("[]", "does not fit"), ('{"version": "1"}', "does not fit"), (None, "did not run")],
    )
    def test_an_answer_that_does_not_fit_is_refused(self, fails, prints, complaint):
        """Nothing is read out of what a peer should not have said; a file that cannot run is no traceback."""
        fails.write_text("not a program" if prints is None else f"#!/bin/sh\necho '{prints}'\n")
        with pytest.raises(peers.PeerUnavailable, match=complaint):
            peers.ask_peer(fails, "crypto", "tenseal", {"parameters": 500})


@pytest.mark.parametrize(
    ("ratio", "options", "code"),
    [
        (1.0, ["--check"], 1),
        (1.0, [], 0),
        (3.0, ["--check"], 0),
        (None, ["--check"], 1),
        (None, ["--check", "--no-peers"], 0),
        (3.0, ["--check", "--quick"], 2),
    ],
)
def test_check_turns_a_missed_or_unproven_target_into_exit_code_1(monkeypatch, ratio, options, code):
    """Without --check a missed target is only shown; a peer left out on purpose is no failure; a smoke run judges nothing."""
    row = Row("r", "r", Figure(1, "s"), Target(">= 2", "ratio", at_least=2), (Reference("p", missing="gone"),), ratio)
    monkeypatch.setattr(crypto, "bench_crypto", lambda *_, **__: Result("r", "t", {"cores": 1}, {}, (row,)))
    assert CliRunner().invoke(command.app, ["crypto", *options]).exit_code == code


def test_variants_take_turns():
    """A B A B, so that a disturbance falls on both."""
    calls = []
    times = turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b", "a", "b"]
    assert len(times["a"].seconds) == 2
    assert (Timing((3, 1, 2)).median, Timing((3, 1, 2)).minimum) == (2, 1)


def test_the_peak_is_of_this_program_and_not_below_what_it_has_now():
    """A peak taken over from a larger parent would hide all growth."""
    assert 0 < timing.current_bytes() <= timing.peak_bytes()


@pytest.mark.parametrize("bits", [32, 2048, 16384])
@pytest.mark.parametrize("count", [1, 10**4, 10**7])
def test_best_window_is_the_cheapest_that_fits(bits, count):
    """No other window that fits in 64 MiB takes fewer multiplications; where none fits, it is 1."""
    public = PublicKey(mpz(2) ** bits - 1, mpz(2), insecure_test_key=True)  # nobody will decrypt under it

    def cost(window: int) -> tuple[bool, int]:
        table = FixedBase(public.h_s, public.n_squared, public.exponent_bits, window)
        return table.table_bytes > 64 * 2**20, table.digits * (2**window + count)

    best = best_window(public, count)
    assert best == 1 or cost(best) == min(cost(window) for window in range(2, 15))
