"""Plaintexts are integers: an integer of any type is the same plaintext, and nothing else is rounded into one."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.blocks import from_ints
from crowdfl.crypto.paillier import pctd, vector
from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import FreshRandomizers
from crowdfl.errors import FormatError, NotAnInteger
from crowdfl.protocols.party import KeyedParty
from tests.fuzz.trial import scaled

KEYS = pctd.keygen(64, insecure_test_key=True)
PUBLIC = KEYS.public
SOURCE = FreshRandomizers(PUBLIC)
ONE = PUBLIC.encrypt(1)
ONES = vector.CipherVector.of([ONE], PUBLIC)
PARTY = KeyedParty("somebody", PUBLIC)
PACKING = Packing(PUBLIC.n, 2, 40)
BUDGET = WidthBudget(512, 1, 5, 10, 2.0, 3, 2)

ENTRIES: dict[str, Callable[[Any], object]] = {
    "encrypt": PUBLIC.encrypt,
    "residue": PUBLIC.residue,
    "signed": PUBLIC.signed,
    "ciphertext": PUBLIC.ciphertext,
    "scale": lambda k: ONE * k,
    "scale a vector": ONES.scale,
    "scale each": lambda k: ONES.scale_each([k]),
    "encrypt a vector": lambda m: vector.encrypt(SOURCE, [m]),
    "residues": lambda m: vector.residues([m], PUBLIC),
    "a block": lambda m: from_ints([m], PUBLIC.plaintext_bytes),
    "encrypt as a party": lambda m: PARTY.encrypt([m]),
    "scale as a party": lambda k: PARTY.scale(ONES, k),
    "scale each as a party": lambda k: PARTY.scale_each(ONES, [k]),
    "pack": lambda m: PACKING.pack([m]),
    "pack an array": lambda m: PACKING.pack(np.array([m])),
    "pack a wide one": lambda m: PACKING.pack_wide([m]),
    "weigh": lambda m: BUDGET.weigh(np.array([m]), 1),
    "count samples": lambda m: BUDGET.weigh(np.array([1]), m),
    "add a plaintext": lambda m: PARTY.add_plain(ONES, [m]),
}
INTEGER_TYPES = (int, mpz, np.int64, np.int32)
_floats = st.floats() | st.integers(-(2**50), 2**50).map(float)  # whole ones too: 2.0 is not an integer
NOT_INTEGERS = st.one_of(
    _floats,
    _floats.map(np.float64),
    st.floats(width=32).map(np.float32),
    st.decimals(),
    st.integers(-9, 9).map(Decimal),
    st.fractions(),
    st.integers(-9, 9).map(Fraction),
    st.text(max_size=5),
    st.integers(-9, 9).map(str),
    st.binary(max_size=5),
    st.booleans(),
    st.booleans().map(np.bool_),
    st.none(),
    st.complex_numbers(),
    st.integers(-9, 9).map(gmpy2.mpfr),
    st.integers(-9, 9).map(gmpy2.mpq),
)


@settings(max_examples=scaled(20))
@given(value=NOT_INTEGERS)
def test_what_is_not_an_integer_is_refused_wherever_plaintexts_enter(value):
    """By name, and without repeating the value, which may be somebody's."""
    refusal = r"^expected an integer, not a \w+: encode other values as integers first$"
    for entry, enter in ENTRIES.items():
        with pytest.raises(NotAnInteger, match=refusal):
            pytest.fail(f"{entry} took {enter(value)!r}")


@given(m=st.integers(-(2**31), 2**31 - 1), k=st.integers(-1000, 1000))
def test_integers_of_every_type_are_the_same_plaintext(m, k):
    """Python's, NumPy's and gmpy2's."""
    decrypt = KEYS.private.decrypt
    for kind in INTEGER_TYPES:
        c, v = PUBLIC.encrypt(kind(m)), vector.encrypt(SOURCE, [kind(m)])
        assert decrypt(c) == decrypt(v[0]) == m
        assert decrypt(c * kind(k)) == decrypt(v.scale(kind(k))[0]) == decrypt(v.scale_each([kind(k)])[0]) == m * k
        assert decrypt(PARTY.add_plain(v, [kind(k)])[0]) == m + k
        assert PACKING.unpack(PACKING.pack([kind(m), kind(k)]), 2).tolist() == [m, k]
        assert PACKING.unpack_wide(PACKING.pack_wide([kind(m), kind(k)]), 2) == [m, k]


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.uint16])
def test_an_array_of_other_numbers_is_not_a_block_of_plaintexts(kind):
    """Its memory would be read as bytes of plaintexts that nobody meant."""
    numbers = np.ones((1, PUBLIC.plaintext_bytes), dtype=kind)
    with pytest.raises(FormatError, match="plaintext residues are rows"):
        vector.encrypt(SOURCE, numbers)
    with pytest.raises(FormatError, match="plaintext residues are rows"):
        ONES.add_plain(numbers)


def test_known_residues_that_are_not_below_n_are_not_added():
    with pytest.raises(FormatError, match="below N"):
        ONES.add_plain(vector.residues([PUBLIC.n], PUBLIC))
