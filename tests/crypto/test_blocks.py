import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.blocks import add_constant, from_limbs, subtract_mod, to_limbs
from crowdfl.errors import LengthMismatch


@given(numbers=st.lists(st.integers(0, 2**40 - 1)))
def test_numbers_survive_a_block(numbers):
    block = blocks.from_ints(numbers, 5)
    assert block.shape == (len(numbers), 5)
    assert blocks.to_ints(block) == numbers


def test_rows_are_big_endian():
    """The first byte of a row weighs most."""
    assert blocks.from_ints([0x010203], 4).tolist() == [[0, 1, 2, 3]]


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1)), n=st.integers(2**66, 2**140))
def test_signed_integers_modulo_n(values, n):
    """N's lowest 64 bits may be smaller than what is taken off it: then its upper bytes pay."""
    for modulus in (n, (n >> 64 << 64) + 3):
        block = blocks.signed_residues(np.array(values, dtype=np.int64), modulus)
        assert blocks.to_ints(block) == [value % modulus for value in values]


def test_to_ints_reads_a_view_in_row_order():
    """A strided view is read as it is shown, not as it lies in memory."""
    block = blocks.from_ints([1, 2, 3, 4], 2)
    assert blocks.to_ints(block[::-2]) == [4, 2]


def test_from_bytes_does_not_copy():
    """The block is a window on the buffer."""
    data = bytearray(6)
    block = blocks.from_bytes(data, 3)
    data[4] = 9
    assert block.tolist() == [[0, 0, 0], [0, 9, 0]]


def test_from_bytes_refuses_a_broken_row():
    with pytest.raises(LengthMismatch, match=r"7 bytes.*3 bytes"):
        blocks.from_bytes(bytes(7), 3)


@pytest.mark.parametrize(("modulus", "width"), [(1, 1), (255, 1), (256, 2), (2**16 - 1, 2), (2**16, 3)])
def test_width_holds_the_modulus(modulus, width):
    assert blocks.width_of(modulus) == width


@given(numbers=st.lists(st.integers(0, 2**24 - 1)), bound=st.integers(0, 2**25))
def test_at_least_compares_like_integers(numbers, bound):
    numbers = [*numbers, min(max(bound - 1, 0), 2**24 - 1), min(bound, 2**24 - 1)]
    assert blocks.at_least(blocks.from_ints(numbers, 3), bound).tolist() == [x >= bound for x in numbers]


def test_blocks_of_unequal_length_do_not_go_together():
    two, three = blocks.empty(2, 4), blocks.empty(3, 9)
    assert blocks.require_rows([two, np.zeros((2, 1), dtype=np.uint8)]) == 2
    with pytest.raises(LengthMismatch, match="2, 3"):
        blocks.require_rows([two, three])


N = 2**75 + 13
residues = st.integers(0, N - 1)


@given(pairs=st.lists(st.tuples(residues, residues), max_size=10))
def test_differences_modulo_n(pairs):
    """The ends of the range meet each other too."""
    pairs = [*pairs, (0, N - 1), (N - 1, 0), (0, 0), (N - 1, N - 1)]
    left, right = (blocks.from_ints([pair[i] for pair in pairs], 10) for i in (0, 1))
    assert blocks.to_ints(subtract_mod(left, right, N)) == [(a - b) % N for a, b in pairs]


@given(values=st.lists(residues, max_size=10), constant=st.integers(-N, N))
def test_a_constant_added(values, constant):
    """Modulo the width, and it shows which sums were negative."""
    limbs, negative = add_constant(to_limbs(blocks.from_ints(values, 10), 3), constant)
    assert blocks.to_ints(from_limbs(limbs, 12)) == [(x + constant) % (1 << 96) for x in values]
    assert negative.tolist() == [x + constant < 0 for x in values]


@given(
    n=st.integers(2**70, 2**90).map(lambda n: n | 1),
    pairs=st.lists(
        st.tuples(*[st.integers(0, 2**32) | st.integers(0, 2**70) | st.sampled_from([0, 1, 2**32 - 1, 2**70 - 1])] * 2)
    ),
)
def test_products_are_modulo_n_whatever_their_factors(n, pairs):
    """Short factors go by limbs, long ones one by one: both as integers would."""
    left, right = (blocks.from_ints([pair[place] for pair in pairs], 11 - place) for place in (0, 1))
    found = blocks.products(left, right, n)
    assert found.shape == (len(pairs), blocks.width_of(n))
    assert blocks.to_ints(found) == [a * b % n for a, b in pairs]


def test_products_of_more_rows_than_a_piece(monkeypatch):
    monkeypatch.setattr(blocks, "_PIECE", 3)
    left, right = blocks.from_ints(range(250, 260), 4), blocks.from_ints(range(10), 4)
    assert blocks.to_ints(blocks.products(left, right, 2**64 + 13)) == [(250 + i) * i for i in range(10)]


def test_short_factors_become_no_integers(monkeypatch):
    monkeypatch.setattr(blocks, "to_ints", lambda _block: pytest.fail("an integer for a row"))
    left = blocks.from_ints([2**31, 7], 32)
    assert blocks.products(left, left, 2**255 + 1)[:, -1].tolist() == [0, 49]


def test_a_wider_block_holds_the_same_numbers():
    assert blocks.to_ints(blocks.widened(blocks.from_ints([1, 258], 2), 5)) == [1, 258]
