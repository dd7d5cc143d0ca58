"""The number theory behind the attacks."""

from fractions import Fraction

import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from crowdfl_lab.audit.keys import factor_with
from crowdfl_lab.audit.masks import common_divisor_near
from crowdfl_lab.audit.readings import fraction_behind

numbers = st.integers(1, 2**60)


@given(x=numbers, y=numbers, r=st.integers(2**400, 2**401), e=numbers)
def test_a_masked_quotient_shows_its_fraction(x, y, r, e):
    """x/y modulo 1 comes out of (r*x + y*e) / (r*y), for any e that is small beside r."""
    assert fraction_behind(r * x + y * e, r * y) == Fraction(x % y, y)


@given(x=st.integers(0, 2**800), y=st.integers(2**799, 2**800))
def test_an_arbitrary_quotient_has_no_short_fraction(x, y):
    """Unless it is one: what is found is really that close."""
    found = fraction_behind(x, y)
    assert found is None or abs(Fraction(x % y, y) - found) * found.denominator**2 < Fraction(1, 2**60)


def test_a_multiple_of_lambda_factors():
    """And a number that is none does not."""
    p, q = 1_000_003, 1_000_039
    assert sorted(factor_with(mpz(p * q), 7 * (p - 1) * (q - 1)) or ()) == [p, q]
    assert factor_with(mpz(p * q), (p - 1) * (q - 1) + 1) is None
    assert factor_with(mpz(p * q), 0) is None


@pytest.mark.parametrize("noise", [8, 24])
def test_an_approximate_common_divisor_is_found(noise):
    """Eight multiples, each a little short."""
    y = (1 << 90) + 12345
    multiples = [y * ((1 << 60) + 999 * k * k + 7) - (k * 31 % (1 << noise)) for k in range(8)]
    assert common_divisor_near(multiples, noise) == y


def test_one_multiple_has_no_common_divisor():
    """A lattice needs two."""
    assert common_divisor_near([12345], 1) is None
