"""Figures 5, 6 and 7: timed at tiny sizes."""

from dataclasses import replace

import pytest

from crowdfl_lab.experiments.federated import Keys, LearnSettings, ProfileRun
from crowdfl_lab.experiments.figure7 import FIG_7, RewardSettings
from crowdfl_lab.experiments.rewards import FIG_4, PaidSettings
from crowdfl_lab.experiments.times import FIG_5, FIG_6, ClockSettings, Sweeps, clock_points
from lab_tests.experiments.running import KEY, run, text_of

CLOCK = ClockSettings(
    hidden=(1, 1000),
    hardened=(20, 60),
    shares=(40, 200),
    paper=(1, 2),
    ppfdl=(1, 2),
    crowd=3,
    crowds=(3, 4),
    lanes=20,
    repetitions=3,
    **KEY,
)
PAID = PaidSettings(
    LearnSettings(epochs=2, rounds=2, people=3),
    (ProfileRun("hardened", 1, lanes=20), ProfileRun("shares", 1, lanes=128)),
    keys=Keys(**KEY),
)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder: the figures share their points."""
    return tmp_path_factory.mktemp("clocks")


@pytest.fixture(scope="module")
def fig5(out):
    return run(replace(FIG_5, quick=CLOCK), out)


@pytest.fixture(scope="module")
def fig6(out, fig5):
    return run(replace(FIG_6, quick=CLOCK), out)


@pytest.fixture(scope="module")
def fig7(out, fig6):
    return run(replace(FIG_7, quick=RewardSettings(PAID, CLOCK)), out)


def test_training_and_encrypting_take_longer_for_larger_models(fig5):
    """A thousand times as many hidden units, which no noise hides; encryption is timed for every scheme."""
    first = [float(r["train, first"]) for r in fig5 if r["hidden"]]
    assert first[1] > first[0] > 0
    encrypting = {(r["scheme"], r["parameters"]): float(r["encrypt"]) for r in fig5 if r["encrypt"]}
    assert all(seconds > 0 for seconds in encrypting.values())
    assert {scheme for scheme, _ in encrypting} == {"hardened", "shares", "paper", "PPFDL"}


def test_slopes_and_the_extrapolation_follow_from_the_points(fig6):
    """Through two points the line is exact: computed here by hand."""
    points = {
        int(r["parameters"]): float(r["average"]) for r in fig6 if r["scheme"] == "PPFDL" and r["participants"] == "3"
    }
    fit = next(r for r in fig6 if (r["scheme"], r["phase"], r["fit over"]) == ("PPFDL", "average", "parameters"))
    slope = points[2] - points[1]
    assert float(fit["slope"]) == pytest.approx(slope)
    if slope > 0:  # it is, but for a disturbance
        assert float(fit["extrapolated to 277,006"]) == pytest.approx(points[1] + slope * 277_005)


def test_ppfdl_averages_slower_than_paper(fig6):
    """2n SMUL more per parameter: the paper's finding, over the whole sweep."""
    seconds = {
        scheme: sum(float(r["average"]) for r in fig6 if r["scheme"] == scheme and r["average"])
        for scheme in ("PPFDL", "paper")
    }
    assert seconds["PPFDL"] > seconds["paper"]


def test_the_small_share_is_fast_and_shown_as_insecure(fig6, out):
    """Timed for `paper` alone."""
    small = [r for r in fig6 if r["decrypt, small"]]
    assert {r["scheme"] for r in small} == {"paper"}
    assert sum(float(r["decrypt, small"]) for r in small) < sum(float(r["decrypt"]) for r in small)
    assert "INSECURE: the small share" in text_of(out)
    assert "INSECURE: paper, small share" in (out / "fig6" / "fig6.svg").read_text()


def test_rewards_are_timed_and_listed(fig7, out):
    """Per person and round, from the encrypted run; the times of both profiles."""
    assert len([r for r in fig7 if r["participant"]]) == 2 * 3 * 2
    assert {r["scheme"] for r in fig7 if r["reward"] and r["scheme"]} == {"hardened", "shares", "paper"}
    text = text_of(out)
    assert "Paper: PriFedAvg and PriRwd together take about as long as PPFDL's averaging." in text
    assert "who earn above the mean in round 1" in text
    assert (out / "fig7" / "fig7a-shares.png").exists()


def test_figures_share_their_points(out, fig7):
    """Every round was timed once: two sizes and two crowds that meet in one, for four schemes."""
    assert len(clock_points(CLOCK)) == 4 * 3
    assert len((out / "points" / "timed-round.jsonl").read_text().splitlines()) == 4 * 3


def test_a_sweep_is_sorted_and_a_single_point_makes_no_line():
    """Rows in any order."""
    rows = [{"scheme": "paper", "parameters": p, "participants": 3, "average": float(p)} for p in (2, 1)]
    sweeps = Sweeps(CLOCK, rows, ("average",))
    assert [r["parameters"] for r in sweeps.of("paper", "parameters")] == [1, 2]
    assert [f["fit over"] for f in sweeps.fits()] == ["parameters"]


def test_extrapolations_are_marked(out, fig7):
    """In tables and words."""
    assert "at 277,006 parameters, s (* extrapolated)" in text_of(out)
    assert "Hollow marks and starred figures are extrapolations" in text_of(out)


def test_a_falling_line_is_not_extrapolated():
    """Noise, or a cost that does not grow: either way it leads nowhere, and no ratio is made of it."""
    rows = [
        {"scheme": scheme, "parameters": p, "participants": 3, "average": seconds}
        for scheme, line in (("paper", (2.0, 1.0)), ("PPFDL", (4.0, 7.0)))
        for p, seconds in zip((1, 2), line, strict=True)
    ]
    sweeps = Sweeps(CLOCK, rows, ("average",))
    assert [line["extrapolated to 277,006"] for line in sweeps.fits()] == [None, pytest.approx(1 + 3 * 277_006)]
    assert sweeps.times([("PPFDL", "average")], ("paper", "average")).startswith("an unknown number")
    assert sweeps.times([("PPFDL", "average"), ("PPFDL", "average")], ("PPFDL", "average")) == "2 times"


def test_figure_7_takes_each_of_its_parts_at_that_parts_default_size():
    """The run of figure 4 as quick as there, the sweeps of figures 5 and 6 as full: what they measured is used again."""
    settings = FIG_7.settings(FIG_7.default)
    assert settings.paid == FIG_4.settings(FIG_4.default)
    assert settings.clock == FIG_5.settings(FIG_5.default) == FIG_6.settings(FIG_6.default)
    assert FIG_7.settings("quick").clock == FIG_5.quick
    assert FIG_7.settings("full") == FIG_7.full
