"""`crowdfl bench protocols`: its counts, its rows, its table."""

import math
from dataclasses import replace

import pytest

from crowdfl_lab.bench.protocols import ProtocolSettings, bench_protocols
from crowdfl_lab.report.results import Result, Row

SMALL = replace(ProtocolSettings.quick(), prime_bits=768, insecure_test_key=True, averaging_turns=8)


@pytest.fixture(scope="module")
def report() -> Result:
    """One small run for all the tests that only look."""
    return bench_protocols(SMALL)


@pytest.fixture(scope="module")
def rows(report) -> dict[str, Row]:
    """Its rows by key."""
    return {row.key: row for row in report.rows}


def test_every_row_holds_a_positive_number_and_judges_nothing_on_a_small_key(report, rows):
    """Targets speak of the paper's setting alone."""
    assert list(rows) == ["averaging_decryptions", "averaging_time", "reading", "rewards", "sdiv", "smul"]
    assert all(math.isfinite(row.crowdfl.value) and row.crowdfl.value > 0 and row.met is None for row in report.rows)
    assert "INSECURE" in report.title
    assert (ProtocolSettings().judged, SMALL.judged) == (True, False)


def test_an_average_takes_one_partial_decryption_of_each_server_per_ciphertext(rows):
    """Counted in a real publication, not derived."""
    row = rows["averaging_decryptions"]
    assert row.crowdfl.value == 2
    assert [(peer.name, peer.figure.value) for peer in row.peers] == [("SP", 1), ("CSP", 1)]


def test_a_publication_costs_no_less_than_its_partial_decryptions(rows):
    """Whole over bare, both marked as samples; far from the target with five ciphertexts of a small key."""
    row = rows["averaging_time"]
    assert 0.5 < row.ratio < 10  # noise on a busy machine goes both ways
    assert "5 ciphertexts" in row.crowdfl.sample
    assert row.crowdfl.sample == row.peers[0].figure.sample


def test_operands_of_smul_are_opened_once_each(rows):
    """3n + 2 for the distances, and one for each number that a division guards; one averaging is extrapolated."""
    row, n = rows["rewards"], SMALL.participants
    assert row.note.endswith(f"CSP opened {(3 * n + 2) + (3 * n + 1)} operands and guards of SMUL")
    assert str(row.peers[0].figure).endswith("*")
    assert not str(row.crowdfl).endswith("*")


def test_cited_figures_are_marked_and_never_judged(rows):
    """The authors' own hardware is not this one."""
    for key, seconds in (("sdiv", 4.06), ("smul", 0.082)):
        assert rows[key].peers[0].figure.value == seconds
        assert "cited" in rows[key].peers[0].name
        assert rows[key].target is None


def test_both_profiles_stand_side_by_side_for_every_role(report):
    (table,) = report.tables
    names = {f"{role}, {profile}" for role in ("SP", "CSP", "participant") for profile in ("hardened", "paper")}
    assert set(table.columns[1:]) == names
    assert all(figure.value > 0 for _, *figures in table.rows for figure in figures)
