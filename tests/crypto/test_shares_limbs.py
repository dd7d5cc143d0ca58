"""Exact arithmetic on rows of bytes against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.shares import limbs
from crowdfl.crypto.shares.expansion import expand
from crowdfl.crypto.shares.limbs import (
    add_rows,
    block_dots,
    dots,
    from_ints,
    from_words,
    subtract_rows,
    sum_rows,
    to_ints,
)
from crowdfl.errors import LengthMismatch

WIDTHS = [8, 16, 24, 40, 56, 64, 72, 128, 136, 168, 200, 320]
widths = st.sampled_from(WIDTHS)


def rows_of(label: str, *shape: int) -> np.ndarray:
    return np.frombuffer(expand(bytes(32), label.encode(), int(np.prod(shape))), dtype=np.uint8).reshape(shape)


def words_of(label: str, *shape: int) -> np.ndarray:
    return rows_of(label, *shape, 8).view(np.uint64)[..., 0]


def ints(side: np.ndarray) -> list[list[int]]:
    """Vectors of numbers of either form, as lists."""
    if side.dtype == np.uint64:
        return [[int(x) for x in vector] for vector in np.atleast_2d(side)]
    return [to_ints(vector) for vector in (side[np.newaxis] if side.ndim == 2 else side)]


def dot(a: list[int], b: list[int], bits: int) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True)) % 2**bits


@given(widths, st.lists(st.integers(-(2**330), 2**330), max_size=10))
def test_numbers_become_rows_and_come_back(bits, numbers):
    rows = from_ints(numbers, bits)
    assert rows.shape == (len(numbers), bits // 8)
    assert to_ints(rows) == [number % 2**bits for number in numbers]


@pytest.mark.parametrize("bits", WIDTHS)
def test_words_become_rows(bits):
    """With zeros behind them, or without what lies above."""
    words = words_of("words", 3, 4)
    rows = from_words(words, bits)
    assert rows.shape == (3, 4, bits // 8)
    assert to_ints(rows.reshape(12, -1)) == [int(word) % 2**bits for word in words.ravel()]


@given(widths, st.data())
def test_rows_are_added_and_subtracted(bits, data):
    """Carries and borrows that run from the first byte to the last among them."""
    number = st.one_of(
        st.integers(0, 2**bits - 1), st.sampled_from([0, 1, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits // 2)])
    )
    pairs = data.draw(st.lists(st.tuples(number, number), min_size=1, max_size=8))
    a, b = (from_ints([pair[side] for pair in pairs], bits) for side in (0, 1))
    assert to_ints(add_rows(a, b)) == [(x + y) % 2**bits for x, y in pairs]
    assert to_ints(subtract_rows(a, b)) == [(x - y) % 2**bits for x, y in pairs]


@pytest.mark.parametrize("bits", [56, 168])
def test_rows_beyond_one_piece_of_any_shape_and_order(bits):
    """More numbers than are worked on at a time; slices that are not contiguous; the shape stays."""
    count = limbs._PIECE + 3
    a, b = rows_of("a", 2, count, bits // 8 + 2)[..., 1:-1], rows_of("b", 2, count, bits // 8)
    flat = [(x, y) for x, y in zip(ints(a)[0] + ints(a)[1], ints(b)[0] + ints(b)[1], strict=True)]
    added, subtracted = add_rows(a, b), subtract_rows(a, b)
    assert added.shape == subtracted.shape == a.shape
    assert to_ints(added.reshape(-1, bits // 8)) == [(x + y) % 2**bits for x, y in flat]
    assert to_ints(subtracted.reshape(-1, bits // 8)) == [(x - y) % 2**bits for x, y in flat]


def test_adding_changes_neither_side():
    """Nor does it need to be allowed to."""
    a, b = rows_of("a", 5, 21), rows_of("b", 5, 21)
    before = a.tobytes(), b.tobytes()
    add_rows(a, b)
    assert (a.tobytes(), b.tobytes()) == before


def test_no_rows_are_added_to_no_rows():
    none = np.zeros((0, 21), dtype=np.uint8)
    assert add_rows(none, none).shape == (0, 21)
    assert from_ints([], 168).shape == (0, 21)


@given(widths, st.integers(0, 6), st.integers(1, 5))
def test_rows_are_summed_over_the_first_axis(bits, n, lanes):
    """Modulo 2^bits; no rows give zeros."""
    rows = rows_of("sum", n, lanes, bits // 8)
    assert to_ints(sum_rows(rows)) == [sum(vector[lane] for vector in ints(rows)) % 2**bits for lane in range(lanes)]


def test_many_of_the_largest_rows_are_summed():
    rows = np.full((3000, 2, 17), 255, dtype=np.uint8)
    assert to_ints(sum_rows(rows)) == [-3000 % 2**136] * 2


FORMS = ["words", "rows 7", "rows 8", "rows 21", "rows 40"]


def side_of(form: str, label: str, *shape: int) -> np.ndarray:
    return words_of(label, *shape) if form == "words" else rows_of(label, *shape, int(form.split()[1]))


@settings(deadline=None)
@given(
    st.sampled_from(FORMS),
    st.sampled_from(FORMS),
    st.sampled_from([(3, 3), (1, 3), (3, 1), (None, 3), (3, None), (None, None)]),
    st.integers(0, 9),
    widths,
)
def test_dot_products_of_every_form(left, right, counts, lanes, bits):
    """A single vector serves all; what lies above 2^bits does not matter."""
    sides = [
        side_of(form, label, *((lanes,) if count is None else (count, lanes)))
        for form, label, count in zip((left, right), "ab", counts, strict=True)
    ]
    a, b = (ints(side) for side in sides)
    n = max(len(a), len(b))
    expected = [dot(a[i % len(a)], b[i % len(b)], bits) for i in range(n)]
    assert dots(*sides, bits) == expected


@pytest.mark.parametrize("bits", [136, 168, 176])
def test_dot_products_of_the_largest_numbers_are_exact(bits):
    """4,160 lanes, every bit set: nothing is rounded."""
    rows = np.full((2, 4160, bits // 8), 255, dtype=np.uint8)
    words = np.full(4160, 2**64 - 1, dtype=np.uint64)
    assert dots(rows, rows[0], bits) == [4160 % 2**bits] * 2
    assert dots(words, rows, bits) == [-4160 * (2**64 - 1) % 2**bits] * 2
    assert dots(words, words, bits) == [4160 * (2**64 - 1) ** 2 % 2**bits]


def test_the_longest_dot_product_is_exact_and_a_longer_one_refused():
    """Sums of 2^21 largest products of limbs still fit a double."""
    words = np.full(2**21, 2**16 - 1, dtype=np.uint64)
    assert dots(words, words, 64) == [2**21 * (2**16 - 1) ** 2]
    longer = np.zeros(2**21 + 1, dtype=np.uint64)
    with pytest.raises(LengthMismatch):
        dots(longer, longer, 64)


@settings(deadline=None)
@given(
    st.sampled_from(FORMS),
    st.sampled_from(FORMS),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from([1, 3]),
)
def test_dot_products_block_by_block(left, right, sizes, other):
    """Blocks of any lengths, the last of a row shorter than the rest."""
    sides = side_of(left, "a", 3, sum(sizes)), side_of(right, "b", other, sum(sizes))
    a, b = (ints(side) for side in sides)
    ends = np.cumsum(sizes)
    found = block_dots(*sides, sizes, 168)
    assert found.shape == (3, len(sizes), 21)
    for i in range(3):
        cuts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        assert to_ints(found[i]) == [dot(a[i][cut], b[i % len(b)][cut], 168) for cut in cuts]


def test_the_blocks_of_two_rows_add_up_to_the_whole():
    """Blocks of 64 lanes and a rest, as they are dealt; the modulus is the same."""
    sizes = [64, 64, 18] * 2
    a, z = rows_of("a", 2, 292, 7), rows_of("z", 292, 21)
    for other in (a, z):
        found = block_dots(a, other, sizes, 168)
        assert [sum(to_ints(blocks)) % 2**168 for blocks in found] == dots(a, other, 168)


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 5, 3), (3, 5, 3)), ((2, 5, 3), (2, 4, 3)), ((5, 3), (4, 3)), ((0, 5, 3), (0, 5, 3)), ((0, 5, 3), (2, 5, 3))],
)
def test_vectors_that_do_not_meet_are_refused(left, right):
    with pytest.raises(LengthMismatch):
        dots(np.zeros(left, dtype=np.uint8), np.zeros(right, dtype=np.uint8), 24)


def test_blocks_that_are_not_all_lanes_are_refused():
    rows = rows_of("a", 10, 3)
    for sizes in ([4, 5], [6, 5]):
        with pytest.raises(LengthMismatch):
            block_dots(rows, rows, sizes, 24)


def test_rows_of_other_shapes_are_not_added():
    with pytest.raises(LengthMismatch):
        add_rows(rows_of("a", 3, 21), rows_of("b", 1, 21))


@pytest.mark.parametrize("side", [np.zeros((2, 3)), np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.uint8)])
def test_other_kinds_of_numbers_are_refused(side):
    """Signed ones would be taken for large ones."""
    with pytest.raises(ValueError, match="no vectors of numbers"):
        dots(side, side, 64)
