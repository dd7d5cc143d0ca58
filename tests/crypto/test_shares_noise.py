"""Discrete Gaussian noise: its probabilities, the same numbers everywhere, no float on the way."""

import ast
import hashlib
import inspect
import math

import numpy as np
import pytest
from scipy import stats

from crowdfl.crypto.shares import noise
from crowdfl.crypto.shares.noise import LARGEST_SIGMA, discrete_gaussian
from crowdfl.errors import WidthError

SEED = bytes(range(32))


def chances(sigma):
    """By y, from the definition."""
    weights = {y: math.exp(-y * y / (2 * sigma * sigma)) for y in range(-40 * sigma, 40 * sigma + 1)}
    total = math.fsum(weights.values())
    return {y: weight / total for y, weight in weights.items()}


@pytest.mark.parametrize("sigma", [1, 2, 3, 10])
def test_small_noise_has_the_exact_probabilities(sigma):
    drawn = discrete_gaussian(SEED, b"small", sigma, 200_000)
    expected = {y: chance * len(drawn) for y, chance in chances(sigma).items() if chance * len(drawn) >= 10}
    seen = [np.count_nonzero(drawn == y) for y in expected]
    rest = len(drawn) - sum(seen), len(drawn) - sum(expected.values())
    statistic = sum((n - e) ** 2 / e for n, e in zip([*seen, rest[0]], [*expected.values(), rest[1]], strict=True))
    assert stats.chi2.sf(statistic, len(expected)) > 1e-6


@pytest.mark.parametrize("sigma", [1 << 10, 187_500, LARGEST_SIGMA])
def test_large_noise_has_the_moments_and_tails_of_a_gaussian(sigma):
    drawn = discrete_gaussian(SEED, b"large", sigma, 200_000) / sigma
    assert abs(drawn.mean()) < 5 / math.sqrt(len(drawn))
    assert abs((drawn**2).mean() - 1) < 5 * math.sqrt(2 / len(drawn))
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    for far in (2, 3, 4):
        chance = 2 * stats.norm.sf(far)
        assert abs(np.count_nonzero(np.abs(drawn) > far) - chance * len(drawn)) < 6 * math.sqrt(chance * len(drawn)) + 1


def test_the_same_seed_gives_the_same_noise_and_another_context_other_noise():
    """To the byte on every machine: these were drawn on x86_64."""
    drawn = discrete_gaussian(SEED, b"vector", 187_500, 10_000)
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest() == EXPECTED
    assert not np.array_equal(drawn, discrete_gaussian(SEED, b"another", 187_500, 10_000))
    assert drawn[:5].tolist() == discrete_gaussian(SEED, b"vector", 187_500, 10_000)[:5].tolist()


EXPECTED = "1e920db36161d1699e14e3729986ee931f69de1d4f2e8b67869b5da20a9ed871"


def test_no_float_decides_a_sample():
    """Neither a literal, nor a division, nor a type with fractions stands in the sampler."""
    tree = ast.parse(inspect.getsource(noise))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Div)]
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, float)]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
    }
    assert not names & {"float", "float32", "float64", "exp", "log", "sqrt", "true_divide", "math", "random"}


@pytest.mark.parametrize("sigma", [0, -1, LARGEST_SIGMA + 1])
def test_noise_beyond_what_whole_numbers_hold_is_refused(sigma):
    with pytest.raises(WidthError, match="standard deviation"):
        discrete_gaussian(SEED, b"", sigma, 1)


def test_no_noise_is_drawn_for_no_entries():
    assert len(discrete_gaussian(SEED, b"", 5, 0)) == 0
