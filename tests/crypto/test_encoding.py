import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto.encoding import FixedPoint
from crowdfl.errors import NotFinite


def test_the_papers_examples_floored():
    """Section 4.1: 1.2345678 is 1234567, and -1.234 is -1234000 where the paper misprints -123400."""
    assert FixedPoint(6, rounding="floor").encode([1.2345678, -1.234]).values.tolist() == [1234567, -1234000]


def test_a_decimal_that_a_double_misses_is_floored_as_it_is_printed():
    """2.07 * 10^6 is 2069999.9999999998 as doubles are multiplied."""
    assert 2.07 * 10**6 < 2_070_000
    assert FixedPoint(6, rounding="floor").encode([2.07, -2.07, 2.0700009]).values.tolist() == [
        2070000,
        -2070000,
        2070000,
    ]


@given(units=st.lists(st.integers(-16_000_000, 16_000_000)), decimals=st.integers(0, 6))
def test_every_exact_decimal_is_floored_to_itself(units, decimals):
    """A hundredth of them is off by one where a product of doubles is floored."""
    weights = [unit / 10**decimals for unit in units]
    assert FixedPoint(decimals, 1.6e7, "floor").encode(weights).values.tolist() == units


@given(weights=st.lists(st.floats(-16, 16)), decimals=st.integers(0, 6))
def test_nearest_is_at_most_half_a_unit_off(weights, decimals):
    values = FixedPoint(decimals).encode(weights).values.tolist()
    for weight, value in zip(weights, values, strict=True):
        assert abs(Fraction(weight) * 10**decimals - value) <= Fraction(1, 2) + Fraction(1, 10**6)


@given(weights=st.lists(st.floats(-16, 16)), decimals=st.integers(0, 6))
def test_floor_is_less_than_a_unit_below(weights, decimals):
    """Never above the weight, beyond the error of the double itself."""
    values = FixedPoint(decimals, rounding="floor").encode(weights).values.tolist()
    for weight, value in zip(weights, values, strict=True):
        assert -Fraction(1, 10**6) <= Fraction(weight) * 10**decimals - value < 1


@given(values=st.lists(st.integers(-16_000_000, 16_000_000)))
def test_encoded_numbers_survive_decoding(values):
    encoding = FixedPoint(6)
    assert encoding.encode(encoding.decode(np.array(values, dtype=np.int64))).values.tolist() == values


def test_decoding_divides_by_the_total():
    """A sum of weighted values becomes their average."""
    assert FixedPoint(6).decode(np.array([3_000_000, -1_500_000]), divisor=3).tolist() == [1.0, -0.5]


def test_weights_beyond_the_clip_are_clipped_and_counted():
    encoded = FixedPoint(6, clip=2.0).encode([2.0, -2.0, 2.0000001, -3.0, 1e300, 0.0])
    assert encoded.values.tolist() == [2_000_000, -2_000_000, 2_000_000, -2_000_000, 2_000_000, 0]
    assert encoded.clipped == 3


@pytest.mark.parametrize("rounding", ["nearest", "floor"])
@given(clip=st.floats(1e-6, 1e6), decimals=st.integers(0, 6), weight=st.floats(allow_nan=False, allow_infinity=False))
def test_nothing_encoded_exceeds_the_bound(rounding, clip, decimals, weight):
    """Whatever the weight; the budget relies on it."""
    encoding = FixedPoint(decimals, clip, rounding)
    values = encoding.encode([weight, clip, -clip]).values
    assert np.abs(values).max() <= encoding.bound
    assert encoding.bound - 1 < clip * 10**decimals


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_its_position(bad):
    """The first position and the count are named."""
    with pytest.raises(NotFinite, match=r"2 of 5 weights.*position 3"):
        FixedPoint().encode([0.0, 1.0, 2.0, bad, bad])


def test_any_shape_and_float_type_is_flattened():
    """Models come as matrices of single precision."""
    encoded = FixedPoint(2).encode(np.array([[0.5, -0.25], [1.0, 2.0]], dtype=np.float32))
    assert encoded.values.tolist() == [50, -25, 100, 200]
    assert encoded.values.dtype == np.int64
