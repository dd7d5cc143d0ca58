"""The two-sample tests: they reject where they must, and do not where they must not."""

import numpy as np
import pytest

from crowdfl_lab.audit.finding import HARDENED, PAPER, Verdict
from crowdfl_lab.audit.headroom import LEVEL, SHORTENED, chi_square, compare, kolmogorov_smirnov, tell_apart


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
    """A shift for one test, a ripple for the other."""
    a = rng.random(400)
    assert kolmogorov_smirnov(a, rng.random(400) ** 1.5) < 1e-4
    assert chi_square(a, (np.round(rng.random(400) * 8) / 8) % 1.0) < 1e-8


def test_a_conceded_gap_counts_for_nothing(rng):
    """Up to the bound, and no further."""
    a, b = rng.random(2000), 0.1 + rng.random(2000)
    assert kolmogorov_smirnov(a, b) < 1e-6
    assert kolmogorov_smirnov(a, b, allowed=0.1) > 0.05
    assert kolmogorov_smirnov(a, b + 0.3, allowed=0.1) < 1e-6


def test_many_tests_are_corrected_for(rng):
    """The least of twenty p-values is multiplied by their number."""
    views = [{f"s{i}": rng.random(100) for i in range(10)} for _ in range(2)]
    outcome = compare(views[0], views[1])
    assert outcome.tests == 20
    assert outcome.corrected == min(1.0, 20 * outcome.p_value)


@pytest.mark.parametrize(("subject", "rounds"), [(PAPER, 16), pytest.param(SHORTENED, 32, marks=pytest.mark.second)])
def test_views_are_told_apart_where_they_must(subject, rounds):
    """So the test can tell; of 16 rounds of the second it cannot, once in a hundred times."""
    finding = tell_apart(subject, rounds)
    assert finding.verdict is Verdict.BROKEN
    assert finding.error < LEVEL


@pytest.mark.second
def test_views_of_hardened_are_not_told_apart():
    """By any of the tests, at the same level."""
    assert tell_apart(HARDENED, rounds=16).verdict is Verdict.GUESS
