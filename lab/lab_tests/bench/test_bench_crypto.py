"""`crowdfl bench crypto`: its rows and its output; the peers; and what every benchmark shares."""

import json
import math
import stat

import pytest
from gmpy2 import mpz
from typer.testing import CliRunner

from crowdfl.crypto.paillier.kernels import FixedBase
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl_lab import timing
from crowdfl_lab.bench import command, crypto
from crowdfl_lab.bench.compare import systems
from crowdfl_lab.bench.crypto import CryptoSettings
from crowdfl_lab.bench.workload import best_window
from crowdfl_lab.report.results import Figure, Reference, Result, Row, Target
from crowdfl_lab.timing import Timing, turns

SMALL = CryptoSettings(
    parameters=500,
    prime_bits=768,
    insecure_test_key=True,
    lanes=40,
    repetitions=2,
    decryptions=4,
    decryption_turns=2,
    uploads=3,
    averaged_parameters=60,
    averaging_turns=8,
    operations=1,
    operation_turns=1,
)
ROWS = [
    "encrypt",
    "sum",
    "partial_decryption",
    "partial_decryption_two_cores",
    "memory",
    "averaging",
    "sdiv",
    "smul",
    "noise",
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


def test_all_rows_hold_numbers_in_one_json_object(monkeypatch):
    """stdout is the JSON alone; progress went to stderr. Targets speak of the paper's setting alone, and the authors' own
    hardware is not this one."""
    monkeypatch.setattr(CryptoSettings, "quick", lambda: SMALL)
    result = CliRunner().invoke(command.app, ["crypto", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    rows = {row["key"]: row for row in report["rows"]}
    assert list(rows) == ROWS
    for row in rows.values():
        assert math.isfinite(row["crowdfl"]["value"])
        assert row["crowdfl"]["value"] > 0
        assert row["met"] is None
    assert rows["averaging"]["crowdfl"]["sample"] == rows["averaging"]["peers"][0]["figure"]["sample"]
    for key, seconds in (("sdiv", 4.06), ("smul", 0.082)):
        assert rows[key]["peers"][0]["figure"]["value"] == seconds
        assert "cited" in rows[key]["peers"][0]["name"]
        assert rows[key]["target"] is None
    assert "INSECURE TEST KEY" in report["title"]
    assert {"cores", "architecture", "gmpy2", "gmp", "load_before"} <= report["machine"].keys()
    assert "partial decryption" in result.stderr


class TestPeers:
    """The other libraries, through their subprocess."""

    def test_a_peer_that_crashes_hands_on_its_complaint(self, fails):
        """Its whole stderr is in the error, the last line in the table."""
        with pytest.raises(systems.PeerUnavailable, match=r"exit code 7: first line\n\[broken\] peer"):
            systems.ask_peer(fails, "phe", {"parameters": 500})
        assert str(Reference("phe", missing="first\nlast")) == "phe: last"

    @pytest.mark.parametrize(
        ("prints", "complaint"),
        [("oops", "no JSON"), ("[]", "does not fit"), ('{"version": "1"}', "does not fit"), (None, "did not run")],
    )
    def test_an_answer_that_does_not_fit_is_refused(self, fails, prints, complaint):
        """Nothing is read out of what a peer should not have said; a file that cannot run is no traceback."""
        fails.write_text("not a program" if prints is None else f"#!/bin/sh\necho '{prints}'\n")
        with pytest.raises(systems.PeerUnavailable, match=complaint):
            systems.ask_peer(fails, "tenseal", {"parameters": 500})


@pytest.mark.parametrize(
    ("ratio", "options", "code"),
    [
        (1.0, ["--check"], 1),
        (1.0, [], 0),
        (3.0, ["--check"], 0),
        (None, ["--check"], 1),
        (3.0, ["--check", "--quick"], 2),
    ],
)
def test_check_turns_a_missed_or_unproven_target_into_exit_code_1(monkeypatch, ratio, options, code):
    """Without --check a missed target is only shown; a smoke run judges nothing."""
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
