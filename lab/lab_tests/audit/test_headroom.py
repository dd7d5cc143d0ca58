"""The analytic check passes as built and catches a budget that is too short; the two-sample tests reject where they must, and
not where they must not."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from crowdfl.protocols.hardened.shape import reward_widths
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings
from crowdfl_lab.audit.finding import HARDENED, PAPER, Verdict
from crowdfl_lab.audit.headroom import (
    LEVEL,
    SHORTENED,
    DivisorBound,
    check_headroom,
    chi_square,
    compare,
    divisor_bounds,
    kolmogorov_smirnov,
    openings,
    tell_apart,
)
from crowdfl_lab.audit.masks import attack_repeated_divisor

WIDTHS = reward_widths(TaskSettings(profile="hardened"), 277_006)
HIDDEN = width_budget(TaskSettings(profile="hardened", total="hidden", lanes=0), 277_006, 40)
ROWS = openings(WIDTHS.budget, WIDTHS) + openings(HIDDEN, None)
MASKS = ("lane + r", "average, dithered", "sums + R modulo N", "operand + a modulo N", "reward + m modulo N")
UNIFORM = (*MASKS[2:], "guards of")
DIVISIONS = ("dividend of", "divisor of")
DIVIDED = ("weights", "rewards", "2^k / Y")


def totals(rows, names) -> dict[str, float]:
    """log2 of the distance over the task, of the rows whose names start so."""
    return {row.name: row.total for row in rows if row.name.startswith(names)}


def test_every_kind_of_opening_is_there_and_keeps_sigma_bits_over_the_task():
    """Shown with rewards, and hidden. What is masked modulo N is hidden perfectly, whatever CSP has made of it."""
    kinds = {f"{kind} {name}" for kind in DIVISIONS for name in DIVIDED}
    assert {row.name for row in ROWS} == {
        *MASKS,
        "divisor of counts",
        *kinds,
        *(f"guards of {name} modulo N" for name in DIVIDED),
    }
    assert set(totals(ROWS, UNIFORM).values()) == {-inf}
    assert all(row.total <= -40 for row in ROWS)
    assert all(row.each <= -37 for row in ROWS if row.name.startswith(DIVISIONS))  # at most 8 * 2^-sigma each


@pytest.mark.parametrize("missing", [1, 8])
def test_a_mask_a_few_bits_short_is_caught(missing):
    """Even a single bit, where the budget has none to spare."""
    narrow = replace(WIDTHS, budget=replace(WIDTHS.budget, sigma=40 - missing))
    assert totals(openings(narrow.budget, narrow), MASKS[0])["lane + r"] > -40
    verdicts = {f.attack: f.verdict for f in check_headroom(narrow.budget, narrow, 40)}
    assert verdicts["headroom: lane + r"] is Verdict.BROKEN


def test_a_short_dither_is_caught():
    assert totals(openings(replace(HIDDEN, sigma=38), None), MASKS[1])["average, dithered"] > -40


def test_divisor_bounds_are_stated_per_task():
    """One for every kind of division, over all rounds and participants; an advantage is at most one."""
    bounds = {bound.name: bound for bound in divisor_bounds(WIDTHS.budget, WIDTHS) + divisor_bounds(HIDDEN, None)}
    assert {name: bound.distinct for name, bound in bounds.items()} == {
        "counts": 360,
        "weights": 180,
        "rewards": 5,
        "2^k / Y": 5,
    }
    assert all(bound.span > 590 for bound in bounds.values())
    assert bounds["2^k / Y"].worst < 0.05
    assert DivisorBound("y", span=100, ybits=50, distinct=10).worst == 1.0


def test_repeated_divisors_fall_only_when_each_division_masks_anew():
    """By lattice with short remainders, by range with long ones, and not at all as built."""
    found = attack_repeated_divisor()
    assert [finding.verdict for finding in found] == [Verdict.BROKEN, Verdict.BROKEN, Verdict.GUESS]
    assert found[0].recovered.endswith("the divisor")  # or a few times it
    assert "no common divisor" in found[1].recovered


@pytest.fixture
def rng() -> np.random.Generator:
    """The same numbers every time."""
    return np.random.default_rng(4)


def test_equal_distributions_pass(rng):
    """p-values of true nulls are spread out: about one in twenty below 0.05, and none tiny."""
    pairs = [rng.random((2, 200)) for _ in range(300)]
    for test in (kolmogorov_smirnov, chi_square):
        values = np.array([test(a, b) for a, b in pairs])
        assert 0.01 < np.mean(values < 0.05) < 0.10
        assert values.min() > 1e-5


def test_different_distributions_are_told_apart(rng):
    """A shift for one test, a ripple for the other; a conceded gap counts for nothing, up to the bound and no further."""
    a, b = rng.random(400), rng.random(400)
    assert kolmogorov_smirnov(a, b**1.5) < 1e-4
    assert chi_square(a, (np.round(b * 8) / 8) % 1.0) < 1e-8
    a, b = rng.random(2000), 0.1 + rng.random(2000)
    assert kolmogorov_smirnov(a, b) < 1e-6
    assert kolmogorov_smirnov(a, b, allowed=0.1) > 0.05
    assert kolmogorov_smirnov(a, b + 0.3, allowed=0.1) < 1e-6


def test_many_tests_are_corrected_for(rng):
    """The least of twenty p-values is multiplied by their number."""
    first, second = ({f"s{i}": rng.random(100) for i in range(10)} for _ in range(2))
    least = min(test(first[name], second[name]) for name in first for test in (kolmogorov_smirnov, chi_square))
    _, corrected, tests = compare((first, second), {})
    assert (tests, corrected) == (20, min(1.0, 20 * least))


@pytest.mark.parametrize(
    ("subject", "rounds", "verdict"),
    [(PAPER, 16, Verdict.BROKEN), (SHORTENED, 8, Verdict.BROKEN), (HARDENED, 8, Verdict.GUESS)],
)
def test_views_are_told_apart_where_they_must_and_nowhere_else(subject, rounds, verdict):
    """So the test can tell."""
    finding = tell_apart(subject, rounds)
    assert finding.verdict is verdict
    assert (finding.error < LEVEL) == (verdict is Verdict.BROKEN)
