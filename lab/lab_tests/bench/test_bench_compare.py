"""`crowdfl bench compare`: its rows, its marks, its files."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crowdfl.crypto.compute import Threads
from crowdfl.errors import SettingsError
from crowdfl_lab.bench import command
from crowdfl_lab.bench.compare import run as measured
from crowdfl_lab.bench.compare.run import MemoryOfServers, memory_of_servers, target_rows
from crowdfl_lab.bench.compare.served import served_system
from crowdfl_lab.bench.compare.simulators import (
    SIMULATORS,
    Simulator,
    own_run,
    simulator_rows,
    simulator_table,
)
from crowdfl_lab.bench.compare.simulators import (
    measured as measured_simulator,
)
from crowdfl_lab.bench.compare.systems import (
    NOT_INSTALLED,
    PEERS,
    CompareSettings,
    Hardened,
    Shares,
    SimulatedCrowd,
    System,
    ask_system,
    least_of,
    paper_system,
    peer_system,
)
from crowdfl_lab.report import output
from crowdfl_lab.report.results import Figure, Result, Row

PEERS_PYTHON = Path(__file__).parents[3] / ".venv-peers/bin/python"
GPU_ROUND = Path(__file__).parents[2] / "figures" / "gpu-paper.json"
VARIANTS = ("shown", "shown_rewards", "hidden", "hidden_rewards")
SHARES = ("shares", "shares_rewards")
SMALL = replace(
    CompareSettings.quick(),
    prime_bits=768,
    insecure_test_key=True,
    parameters=600,
    slices=(3, 5),
    paper_sizes=((1, 3), (2, 3)),
    serves=False,
)
PYTHONS = {"flower": PEERS_PYTHON, "pfl": PEERS_PYTHON.parents[2] / ".venv-pfl/bin/python"}
TINY = SimulatedCrowd(50, 6, 4, 3, 0.5)
HAS_FLOWER = any(PEERS_PYTHON.parents[1].glob("lib/*/site-packages/flwr"))


@pytest.fixture(scope="module")
def systems() -> dict[str, System]:
    """One small run for all the tests that only look; its peers are not installed where it looks for them."""
    found = measured.measure_systems(SMALL, Threads(), Path("nowhere/python"), None, lambda _: None)
    return {system.key: system for system in found}


@pytest.fixture(scope="module")
def run(systems) -> Result:
    """The same run as a result."""
    return measured.compare_result(SMALL, {"cores": 1}, list(systems.values()))


@pytest.mark.second
@pytest.mark.parametrize("rewards", [False, True])
def test_a_served_row_is_of_the_same_task_through_processes(rewards):
    """Everyone's upload goes to SP over HTTPS, round after round, until it is published."""
    protocol = Shares(SMALL, rewards=rewards)
    served = served_system(SMALL, protocol, lambda _: None)
    assert served.key == protocol.key + "_served"
    assert served.figures["servers"].value == served.figures["sp"].value + served.figures["csp"].value > 0
    assert served.figures["bare"].value > 0


class TestRows:
    """What a run measures."""

    def test_every_system_has_a_row_and_every_figure_is_a_positive_number(self, run, systems):
        """Both totals, rewards on and off, the paper, three peers that are absent and say so, and no protection at all."""
        assert list(systems) == [*VARIANTS, *SHARES, "shares_reference", "paper", *PEERS, "plain"]
        for system in systems.values():
            assert all(math.isfinite(f.value) and f.value > 0 for f in system.figures.values()), system.name
            assert system.missing or system.words["reads"]
        for peer in PEERS:
            assert systems[peer].cells(["ahead", "before"]) == (NOT_INSTALLED, "")
            assert not systems[peer].figures
        assert "INSECURE" in run.title
        paper = CompareSettings()
        assert (paper.parameters, paper.participants, paper.dropped) == (277_006, 36, 11)

    def test_what_was_not_measured_whole_is_marked_with_its_sample(self, systems):
        """The servers' slices and all times of `paper`; a participant is measured at full size. The columns agree."""
        for variant in VARIANTS:
            figures = systems[variant].figures
            for column in ("sp", "csp", "servers", "dropped"):
                assert "5 ciphertexts" in figures[column].sample
                assert str(figures[column]).endswith("*")
            assert not any(figures[c].sample for c in ("ahead", "before", "after", "upload", "download"))
            assert figures["servers"].value == pytest.approx(figures["sp"].value + figures["csp"].value)
            assert figures["dropped"].value < figures["servers"].value
        exact = {column for column, figure in systems["paper"].figures.items() if not figure.sample}
        assert exact == {"upload", "download"}
        assert not systems["plain"].samples

    def test_rounds_of_shares_are_measured_whole(self, systems):
        """No star; what only this profile has is there, and checks make uploads longer."""
        plain, paid = (systems[key] for key in SHARES)
        assert not plain.samples + paid.samples
        assert (plain.figures["exchanges"].value, paid.figures["exchanges"].value) == (2, 6)
        assert "dealt" not in plain.figures
        assert paid.figures["dealt"].value > 0
        assert plain.figures["upload"].value < paid.figures["upload"].value
        assert max(found.figures["off"].value for found in (plain, paid)) < 2e-6

    def test_what_paper_sends_is_its_ciphertexts_and_one_frame(self, systems):
        """Two ciphertexts a parameter and one of samples go up, as many come down, and two of the reward."""
        wide = 4 * SMALL.prime_bits // 8
        for column, count in (("upload", 2 * 600 + 1), ("download", 2 * 600 + 2)):
            assert 0 < systems["paper"].figures[column].value - count * wide < 500

    def test_a_round_of_paper_that_was_measured_whole_has_no_star(self, tmp_path):
        """Its figures are the file's; of another size it is refused."""
        found = json.loads(GPU_ROUND.read_text())
        path = tmp_path / "round.json"
        path.write_text(json.dumps(found))
        with pytest.raises(SettingsError, match=r"round\.json holds a round of other sizes"):
            paper_system(SMALL, Threads(1), path)
        path.write_text(json.dumps(found | {"settings": {name: getattr(SMALL, name) for name in found["settings"]}}))
        measured_whole = paper_system(SMALL, Threads(1), path)
        assert measured_whole.name == "paper, rewards on, one NVIDIA H200"
        assert not measured_whole.samples
        assert set(measured_whole.figures) == {"before", "after", "upload", "download", "servers", "off"}
        stages = {name: clock["value"] for name, *_, clock in found["tables"][0]["rows"]}
        servers = sum(stages[stage] for stage in ("average", "distances", "pay"))
        assert servers - 1 < measured_whole.figures["servers"].value < servers + stages["read"]
        (off,) = (part["off"] for part in found["parts"] if part["part"] == "read")
        assert measured_whole.figures["off"].value == off

    def test_a_fast_backend_is_measured_whole(self):
        """No star on the servers' figures."""
        variant = Hardened(SMALL, hidden=False, rewards=True)
        system = variant.system(variant.device(), *variant.whole_servers(Threads(1)), "elsewhere")
        assert system.key == "shown_rewards_elsewhere"
        assert "elsewhere" in system.name
        assert not any(system.figures[column].sample for column in ("sp", "csp", "servers"))
        assert system.figures["csp"].value > 0


def system(key: str, kind: str, **seconds: float) -> System:
    """A row of made-up figures."""
    figures = {column: Figure(value, "s") for column, value in seconds.items()}
    return System(key, key, figures, {"kind": kind})


class TestTargets:
    """What `shares` promises, judged by made-up figures."""

    def rows(self, flower: System, grown: float = 1e6) -> dict[str, Row]:
        numbers = {
            "servers": 0.1,
            "before": 0.01,
            "after": 0.01,
            "upload": 1e6,
            "dropped": 0.1,
            "exchanges": 2,
            "floor": 0.02,
            "plain": 0.05,
        }
        ours = [system(key, "crowdfl", **numbers) for key in SHARES]
        memory = MemoryOfServers("without checks", 1_000, 50, {"SP": Figure(grown, "B")})
        return {row.key: row for row in target_rows([*ours, flower], [memory])}

    def test_every_target_of_a_better_run_is_met_and_of_a_worse_one_is_missed(self):
        """Beside SecAgg+, and by itself."""
        slow = system("flower", "peer", servers=2.0, before=0.1, after=0.1, upload=2e6)
        assert {row.met for row in self.rows(slow).values() if row.target} == {True}
        fast = system("flower", "peer", servers=0.2, before=0.02, after=0.02, upload=1e6)
        found = self.rows(fast, grown=7e7)
        paid = {f"shares_rewards_{column}" for column in ("servers", "before", "after", "upload")}
        bare = {"shares_servers", "shares_upload", "memory_sp_without_checks"}
        assert {key for key, row in found.items() if row.met is False} == paid | bare
        assert [found[f"shares_{one}"].ratio for one in ("plain", "floor")] == [pytest.approx(2), pytest.approx(5)]

    def test_of_a_peers_runs_each_time_is_the_least(self):
        """What it says of sizes and of itself is of the first."""
        answers = [{"server": 2.0, "before": 0.1, "off": 1.0}, {"server": 1.0, "before": 0.3, "off": 2.0}]
        assert least_of(answers) == {"server": 1.0, "before": 0.1, "off": 1.0}

    def test_without_flower_its_rows_say_so(self):
        row = self.rows(System("flower", "Flower", missing=NOT_INSTALLED))["shares_servers"]
        assert row.met is None
        assert NOT_INSTALLED in str(row.peers[0])

    def test_the_memory_of_both_servers_is_measured_in_processes_of_their_own(self):
        tiny = replace(SMALL, parameters=100, memory_crowd=4, memory_lanes=256)
        found = memory_of_servers(tiny, lambda _: None, rewards=True)
        assert set(found.grown) == {"SP", "CSP"}
        assert all(figure.value > 0 for figure in found.grown.values())


class TestPeers:
    """Other people's code, where it is installed."""

    @pytest.mark.skipif(not HAS_FLOWER, reason="the peers are not installed: make peers")
    @pytest.mark.parametrize("peer", list(PEERS))
    def test_a_peer_averages_right_and_is_measured(self, peer):
        """A whole round by its own code; with 30% dropped, its average is that of the rest."""
        system = ask_system(PEERS_PYTHON, peer, replace(SMALL, parameters=300))
        assert system.figures["off"].value < 1e-4
        assert all(system.figures[column].value > 0 for column in ("before", "after", "upload", "download", "servers"))
        assert bool(system.samples) == (peer == "phe")
        assert not system.missing

    def test_flowers_words_follow_from_what_was_found(self):
        """Whether seeds are folded is looked at in the installed package, not taken for granted."""
        facts = {"shares": 5, "seed_folded_to_32_bits": False}
        took = {"version": "1", "before": 1, "after": 1, "server": 2, "server_dropped": 6}
        took |= {"upload": 10, "download": 10, "off": 0.0, "facts": facts}
        plain = peer_system("flower", took, SMALL).words
        folded = peer_system("flower", took | {"facts": facts | {"seed_folded_to_32_bits": True}}, SMALL).words
        assert "32 bits" in folded["reads"]
        assert "32 bits" not in plain["reads"]
        assert "2 s become 6 s" in plain["drop"]
        assert "fewer than 3 of 5" in plain["drop"]


def simulator(key: str, seconds: float | None) -> Simulator:
    """A row of a made-up figure; without one, it is not installed."""
    each = {} if seconds is None else {TINY.parameters: Figure(seconds, "s")}
    return Simulator(key, key, "1", each, "" if each else "not installed: make it")


class TestSimulators:
    """`crowdfl.simulate` beside others'."""

    @pytest.mark.parametrize("engine", ["crowd", "roles"])
    def test_both_engines_are_measured_beside_training_and_end_at_the_known_model(self, engine):
        found = own_run(engine, TINY)
        assert found["off"] < 1e-6
        assert found["each"] > found["training"] > 0

    def test_one_is_asked_in_a_process_of_its_own(self):
        found = measured_simulator("crowd", Path("nowhere"), [TINY])
        assert not found.missing
        assert found.version
        assert found.each[TINY.parameters].value > 0

    @pytest.mark.parametrize("peer", list(SIMULATORS))
    def test_a_peer_is_measured_where_it_is_installed_and_says_so_where_it_is_not(self, peer):
        found = measured_simulator(peer, PYTHONS[peer], [TINY])
        if not found.each:
            assert "make" in found.missing
        else:
            assert found.version
            assert found.each[TINY.parameters].value > 0

    def test_a_target_is_met_or_missed_and_others_stand_beside_it(self):
        for taken, met in ((0.4, True), (0.6, False)):
            found = [
                simulator("crowd", taken),
                simulator("roles", 4.0),
                simulator("pfl", 0.1),
                simulator("flower", None),
            ]
            (row,) = simulator_rows(found, [TINY])
            assert (row.met, row.ratio) == (met, pytest.approx(taken / 4))
            assert "not installed" in str(row.peers[-1])
            table = simulator_table(found, [TINY])
            assert [len(cells) for cells in table.rows] == [len(table.columns)] * 4


def test_the_command_prints_what_the_run_gave_and_files_hold_it(run, systems, monkeypatch, tmp_path):
    """`--json` alone on stdout. A page with every system, a picture in two forms."""
    asked = {}

    def bench(setting, **options):
        asked.update(options, setting=setting)
        return run

    monkeypatch.setattr(measured, "bench_compare", bench)
    done = CliRunner().invoke(command.app, ["compare", "--quick", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["title"] == run.title
    assert asked["setting"] == CompareSettings.quick()
    written = {path.suffix: path for path in output.write_files(run, tmp_path / "out")}
    found = json.loads(written[".json"].read_text())
    assert [each["key"] for each in found["systems"]] == list(systems)
    page = written[".md"].read_text()
    assert all(f"| {each.name} |" in page for each in systems.values())
    assert " \\* |" in page
    assert {".png", ".svg"} <= set(written)
