"""WideInts against Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.paillier.packing import WideInts

numbers = st.lists(st.integers(-(2**130), 2**130), max_size=12)
some = st.lists(st.integers(-(2**70), 2**70), min_size=6, max_size=6)
naturals = st.lists(st.integers(0, 2**100 - 1), max_size=8)


@given(values=numbers)
def test_integers_come_back(values):
    """Signs and zero included."""
    assert WideInts.of(values).to_ints() == values


@given(values=numbers, constant=st.integers(-(2**150), 2**150))
def test_a_constant_added(values, constant):
    """Of either sign and any length."""
    assert WideInts.of(values).plus(constant).to_ints() == [x + constant for x in values]


@given(values=naturals, width=st.integers(13, 20))
def test_blocks_of_bytes(values, width):
    """Big-endian rows of an even or odd number of bytes, there and back."""
    block = blocks.from_ints(values, width)
    wide = WideInts.from_block(block)
    assert wide.to_ints() == values
    assert np.array_equal(wide.to_block(width), block)


@given(values=st.lists(st.integers(-(2**98) + 1, 2**98 - 1), max_size=8), bits=st.integers(99, 140))
def test_fields_in_twos_complement(values, bits):
    """A field ends at any bit."""
    size = -(-bits // 32)
    fields = WideInts.of(values).to_fields(size)
    words = [sum(int(limb) << (32 * j) for j, limb in enumerate(row)) for row in fields.tolist()]
    assert words == [x % (1 << (32 * size)) for x in values]
    fields[:, -1] &= np.uint64((1 << ((bits - 1) % 32 + 1)) - 1)
    assert WideInts.from_fields(fields, bits).to_ints() == values


@given(values=numbers)
def test_residues(values):
    """Negative numbers wrap around n."""
    n = 2**160 + 7
    assert blocks.to_ints(WideInts.of(values).residues(n, 21)) == [x % n for x in values]


@given(values=numbers, bound=st.integers(1, 2**131))
def test_beyond_a_bound(values, bound):
    """The bound itself is beyond."""
    edges = [*values, bound, -bound, bound - 1, 1 - bound]
    assert WideInts.of(edges).beyond(bound).tolist() == [abs(x) >= bound for x in edges]


@given(left=some, right=some, rows=st.sampled_from([1, 2, 3]))
def test_inner_products_and_columns(left, right, rows):
    """Row by row, one row for all, and the sums of columns, exactly."""
    size = 6 // rows
    table = [left[i * size : (i + 1) * size] for i in range(rows)]
    other = [right[i * size : (i + 1) * size] for i in range(rows)]
    wide = WideInts.of(left)
    dots = [sum(a * b for a, b in zip(x, y, strict=True)) for x, y in zip(table, other, strict=True)]
    assert wide.inner_products(WideInts.of(right), rows) == dots
    totals = [sum(column) for column in zip(*table, strict=True)]
    columns = wide.columns(rows)
    assert columns.to_ints() == totals
    assert wide.inner_products(columns, rows) == [sum(a * t for a, t in zip(x, totals, strict=True)) for x in table]


@pytest.mark.parametrize("value", [2**112 - 1, -(2**112)])
def test_long_rows_are_summed_without_rounding(value):
    """The largest limbs, as many as a sum of floats takes at once and more."""
    count = 2**20 + 3
    wide = WideInts(np.repeat(WideInts.of([value]).limbs, count, axis=0))
    assert wide.inner_products(wide, 1) == [count * value * value]


def test_the_numbers_do_not_show():
    """They may be masks."""
    assert "12345" not in repr(WideInts.of([12345]))
