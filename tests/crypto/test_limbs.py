"""Arithmetic on limbs against Python's integers."""

from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.blocks import add_constant, from_limbs, subtract_mod, to_limbs

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
