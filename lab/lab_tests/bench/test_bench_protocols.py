"""`crowdfl bench protocols`: its counts, its rows, its output."""

import json
import math
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from crowdfl_lab.bench import command, protocols
from crowdfl_lab.bench.protocols import PARTS, ProtocolSettings, bench_protocols
from crowdfl_lab.report.results import Figure, Result, Row, Target

PAPER, QUICK = ProtocolSettings(), ProtocolSettings.quick()
SMALL = replace(QUICK, prime_bits=768, insecure_test_key=True, averaging_turns=8)
KEYS = [
    "averaging_decryptions",
    "averaging_time",
    "reading",
    "smul_openings_3",
    "smul_openings_5",
    "rewards",
    "sdiv",
    "smul",
]


@pytest.fixture(scope="module")
def report() -> Result:
    """One small run for all the tests that only look."""
    return bench_protocols(SMALL)


@pytest.fixture(scope="module")
def rows(report) -> dict[str, Row]:
    """Its rows by key."""
    return {row.key: row for row in report.rows}


class TestRows:
    """What a run measures."""

    def test_every_row_holds_a_positive_number_and_judges_nothing_on_a_small_key(self, report):
        """Targets speak of the paper's setting alone."""
        assert [row.key for row in report.rows] == KEYS
        for row in report.rows:
            assert math.isfinite(row.crowdfl.value)
            assert row.crowdfl.value > 0
            assert row.met is None
        assert "INSECURE" in report.title
        assert PAPER.judged
        assert not QUICK.judged

    def test_an_average_takes_one_partial_decryption_of_each_server_per_ciphertext(self, rows):
        """Counted in a real publication, not derived."""
        row = rows["averaging_decryptions"]
        assert row.crowdfl.value == 2
        assert [(peer.name, peer.figure.value) for peer in row.peers] == [("SP", 1), ("CSP", 1)]

    def test_a_publication_costs_no_less_than_its_partial_decryptions(self, rows):
        """Whole over bare, both marked as samples; far from the target with five ciphertexts of a small key."""
        row = rows["averaging_time"]
        assert 0.5 < row.ratio < 10  # noise on a busy machine goes both ways
        assert "5 ciphertexts" in row.crowdfl.sample
        assert row.crowdfl.sample == row.peers[0].figure.sample

    @pytest.mark.parametrize("crowd", [3, 5])
    def test_operands_of_smul_are_opened_once_each(self, rows, crowd):
        """3n + 2 for the distances, and one for each number that a division guards, against 14 a participant."""
        row = rows[f"smul_openings_{crowd}"]
        assert row.crowdfl.value == row.target.at_most == (3 * crowd + 2) + (2 * crowd) + (crowd + 1)
        assert row.peers[0].figure.value == 14 * crowd

    def test_cited_figures_are_marked_and_never_judged(self, rows):
        """The authors' own hardware is not this one."""
        for key, seconds in (("sdiv", 4.06), ("smul", 0.082)):
            cited = rows[key].peers[0]
            assert cited.figure.value == seconds
            assert "cited" in cited.name
            assert rows[key].target is None

    def test_extrapolations_are_starred(self, rows):
        """One averaging of the whole model is never run, and says so."""
        assert str(rows["rewards"].peers[0].figure).endswith("*")
        assert not str(rows["rewards"].crowdfl).endswith("*")


class TestTables:
    """Figures side by side."""

    def test_the_parts_of_prirwd_make_up_the_whole(self, report, rows):
        """Nothing is counted twice, nothing is left out, and every part takes some time of SP."""
        table = report.tables[0]
        assert [name for name, *_ in table.rows] == [*PARTS, "whole"]
        assert table.rows[-1][3].value == pytest.approx(rows["rewards"].crowdfl.value)
        assert sum(share.value for *_, share in table.rows[:-1]) == pytest.approx(100)
        assert all(sp.value > 0 for _, sp, *_ in table.rows)

    def test_both_profiles_stand_side_by_side_for_every_role(self, report):
        """In `hardened` no participant decrypts; in `paper` every one does, and divides for each parameter."""
        table = report.tables[1]
        cells = {name: dict(zip(table.columns[1:], figures, strict=True)) for name, *figures in table.rows}
        assert cells["PDec"]["participant, hardened"].value == 0
        assert cells["PDec"]["participant, paper"].value == 1 + 1 / SMALL.small_parameters
        # One division a parameter, and two a participant for the rewards.
        paper_divisions = 1 + 2 * SMALL.small_crowd / SMALL.small_parameters
        assert cells["SDIV"]["SP, paper"].value == cells["SDIV"]["CSP, paper"].value == paper_divisions
        assert cells["SDIV"]["SP, hardened"].value == 2 * SMALL.small_crowd / SMALL.small_parameters
        for role in ("SP", "CSP", "participant"):
            for profile in ("hardened", "paper"):
                assert cells["time"][f"{role}, {profile}"].value > 0
                assert cells["bytes sent"][f"{role}, {profile}"].value > 0


class TestCommand:
    """`crowdfl bench protocols` on the command line."""

    def test_json_is_all_of_stdout(self, monkeypatch, report):
        """Rows, tables and the machine; progress goes to stderr."""
        monkeypatch.setattr(protocols, "bench_protocols", lambda _, say: say("measuring") or report)
        result = CliRunner().invoke(command.app, ["protocols", "--quick", "--json"])
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert [row["key"] for row in shown["rows"]] == KEYS
        assert len(shown["tables"]) == 2
        assert {"cores", "workers", "load_before"} <= shown["machine"].keys()
        assert "measuring" in result.stderr

    def test_the_table_shows_rows_and_tables(self, monkeypatch, report):
        """For people."""
        monkeypatch.setattr(protocols, "bench_protocols", lambda *_, **__: report)
        result = CliRunner().invoke(command.app, ["protocols", "--quick"], env={"COLUMNS": "240"})
        assert result.exit_code == 0, result.output
        for text in ("one SDIV", "cross terms", "participant, hardened", "INSECURE TEST KEY", "extrapolated"):
            assert text in result.stdout

    @pytest.mark.parametrize(("value", "target", "code"), [(1, True, 0), (3, True, 1), (3, False, 0)])
    def test_check_fails_on_a_missed_target_and_passes_rows_without_one(self, monkeypatch, value, target, code):
        """Rows for the record have nothing to miss."""
        row = Row("r", "r", Figure(value, ""), Target("<= 2", "crowdfl", at_most=2) if target else None)
        monkeypatch.setattr(protocols, "bench_protocols", lambda *_, **__: Result("r", "t", {}, {}, (row,)))
        assert CliRunner().invoke(command.app, ["protocols", "--check"]).exit_code == code

    def test_a_smoke_run_cannot_be_checked(self):
        """It judges nothing, so --check would always pass."""
        assert CliRunner().invoke(command.app, ["protocols", "--quick", "--check"]).exit_code == 2
