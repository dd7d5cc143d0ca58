"""`crowdfl bench scale --profile shares`: its points, its fits, its way to a million."""

import json

import pytest
from typer.testing import CliRunner

from crowdfl_lab.bench import command
from crowdfl_lab.bench.scale import shares_run
from crowdfl_lab.bench.scale.growth import ScalePoint
from crowdfl_lab.bench.scale.shares_plan import ShareRates, fits, plan_table
from crowdfl_lab.bench.scale.shares_run import SharesScaleSettings, measure_shares, shares_scale_result
from crowdfl_lab.report.results import Figure

SMALL = SharesScaleSettings(parameters=(100, 2_000), uploads=3, crowds=(5, 20), crowd_parameters=50, rewarded=(4,))


@pytest.fixture(scope="module")
def points() -> list[ScalePoint]:
    """One small run for all the tests that only look."""
    return measure_shares(SMALL)


def test_every_point_has_the_time_and_memory_of_both_servers(points):
    """Everyone's upload is in the average, or the run itself fails."""
    assert [(p.axis, p.x) for p in points] == [
        ("parameters", 100),
        ("parameters", 2_000),
        ("participants", 5),
        ("participants", 20),
        ("rewarded", 4),
        ("sketched", 2_000),
    ]
    for point in points:
        names = ("SP: add", "SP: publish", "CSP: round", "SP: memory, working", "CSP: memory, working", "upload")
        assert all(point.figures[name].value > 0 for name in names)
        assert point.counts["requests"] == (13 if point.axis in ("rewarded", "sketched") else 2)
    assert points[-1].figures["KGC: deal"].value > 0
    assert points[-1].figures["dealt"].value > points[0].figures["upload"].value


def test_files_hold_the_run_and_the_command_prints_it(points, monkeypatch):
    """Exponents of three axes and the plan."""
    result = shares_scale_result({}, SMALL, points)
    monkeypatch.setattr(shares_run, "bench_scale_shares", lambda *_, **__: result)
    done = CliRunner().invoke(command.app, ["scale", "--profile", "shares", "--quick", "--json"])
    found = json.loads(done.stdout)
    assert set(found["exponents"]) == {"parameters", "participants", "rewarded"}
    assert found["exponents"]["participants"]["stored uploads"] == pytest.approx(1)
    assert any("the manifest" in row for row in found["plan"])


@pytest.mark.parametrize("words", [["scale"], ["load"]])
def test_another_profile_is_refused_by_name(words):
    """Before anything is measured."""
    done = CliRunner().invoke(command.app, [*words, "--profile", "paper"])
    assert done.exit_code == 2
    assert "'paper'" in done.output


def point(axis: str, x: int, crowd: int, parameters: int, **seconds: float) -> ScalePoint:
    """A made-up one."""
    counts = {"parameters": parameters, "longest": 200 * crowd}
    names = {"SP_add": "SP: add", "SP_publish": "SP: publish", "SP_reward": "SP: reward", "CSP": "CSP: round"}
    figures = {names[name]: Figure(value, "s") for name, value in seconds.items()}
    memory = {f"{role}: memory, working": Figure(1_000 * crowd, "B") for role in ("SP", "CSP")}
    return ScalePoint(axis, x, crowd, counts, figures | memory)


def made_up() -> list[ScalePoint]:
    """SP takes 1 us and CSP 2 us a parameter of an upload, 1 ms and 2 ms an upload, 5 ms and 7 ms a reward.

    Lanes take 3 us and 4 us a parameter.
    """
    return [
        point("parameters", 10_000_000, 10, 10_000_000, SP_add=90, SP_publish=10, CSP=200),
        point("participants", 1_000, 1_000, 100, SP_add=1.1, SP_publish=0, CSP=2.2),
        point("rewarded", 100, 100, 100, SP_add=0.1, SP_publish=0, SP_reward=0.5, CSP=0.92),
        point("sketched", 10_000_000, 10, 10_000_000, SP_add=90, SP_publish=10, SP_reward=300.05, CSP=600.07),
    ]


def test_rates_are_recovered():
    """What a parameter costs is told from what an upload costs."""
    rates = ShareRates.of(made_up())
    assert rates.entry == {"SP": pytest.approx(1e-6), "CSP": pytest.approx(2e-6)}
    assert rates.person == {"SP": pytest.approx(1e-3), "CSP": pytest.approx(2e-3)}
    assert rates.reward == {"SP": pytest.approx(5e-3), "CSP": pytest.approx(7e-3)}
    assert rates.sketch == {"SP": pytest.approx(3e-6), "CSP": pytest.approx(4e-6)}
    assert (rates.listed, rates.memory["SP"]) == (200, 1_000)


def test_every_number_of_the_plan_has_its_formula_and_follows():
    """Spot checks by hand."""
    rows = {name: (formula, value) for name, formula, value in plan_table(made_up()).rows}
    assert rows["uploads stored and received"][1] == "1.94 TB"
    assert rows["SP's cores within an hour, average"][1] == "78"  # a million times 277 ms and 1 ms
    assert rows["the manifest"][1] == "200 MB"
    assert all(formula for formula, _ in rows.values())


def test_a_million_fits_64_bits_with_short_updates_alone():
    """The first thing that ends."""
    assert not fits(1_000_000, 5.0)
    assert fits(1_000, 5.0)
