"""What noise costs in privacy, against exact sums and against another program."""

import json
import math
from pathlib import Path

import pytest

from crowdfl import accounting

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/accounting.json").read_text())


@pytest.mark.parametrize("case", VECTORS["ours"], ids=lambda case: f"rho {case['rho']}")
def test_the_formula_against_fifty_digits(case):
    epsilon = accounting.epsilon_of(case["rho"], case["delta"])
    assert epsilon == pytest.approx(case["epsilon"], rel=1e-9, abs=1e-9)
    assert accounting.log_delta(case["rho"], case["epsilon"]) == pytest.approx(case["log_delta"], abs=1e-6)


@pytest.mark.parametrize("case", VECTORS["oracle"], ids=lambda case: f"z {case['z']}, {case['rounds']} rounds")
def test_no_less_than_the_exact_cost_and_hardly_more_than_by_renyi_orders(case):
    """By dp-accounting."""
    ours = accounting.epsilon_of(case["rounds"] / (2 * case["z"] ** 2), case["delta"])
    assert case["exact"] <= ours <= 1.01 * case["renyi"]


def test_the_least_noise_is_enough_and_hardly_more():
    for length, rounds, epsilon in [(10_000, 20, 8.0), (65_536, 5, 1.0), (3, 2, 4.0)]:
        sigma = accounting.least_sigma(length, rounds, epsilon, 1e-5, 1 << 24)
        assert accounting.is_enough(sigma, length, rounds, epsilon, 1e-5)
        assert not accounting.is_enough(sigma - 2, length, rounds, epsilon, 1e-5)
        assert math.exp(accounting.log_delta(accounting.rho_of(length, sigma, rounds), epsilon)) <= 0.9e-5
    assert accounting.least_sigma(65_536, 10**6, 0.001, 1e-5, 1 << 24) is None
