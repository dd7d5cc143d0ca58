"""Slots never bleed: what is done to packed plaintexts within the budget is done to each slot alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.vector import combine, encrypt


@st.composite
def packed_sums(draw):
    """A slot width, and terms with signed weights whose weighted sum stays within a slot."""
    slot_bits = draw(st.sampled_from([4, 20, 31, 32, 33, 51, 64, 85, 127]))
    slots = draw(st.integers(1, 255 // slot_bits))
    weights = draw(st.lists(st.integers(-6, 6).filter(bool), min_size=1, max_size=4))
    bound = 2 ** (slot_bits - 1) - 1
    most = bound // sum(abs(w) for w in weights)
    extremes = st.sampled_from([most, -most, 0])
    value = st.integers(-most, most) | extremes
    rows = draw(st.lists(st.lists(value, min_size=slots, max_size=slots), min_size=len(weights), max_size=len(weights)))
    return slots, slot_bits, weights, rows


@given(case=packed_sums())
def test_weighted_sums_of_packed_plaintexts(wide_keys, case):
    """Additions, subtractions and multiples under encryption, then unpacked."""
    slots, slot_bits, weights, rows = case
    packing = Packing(wide_keys.public.n, slots, slot_bits)
    total = wide_keys.encrypt([0])
    for weight, row in zip(weights, rows, strict=True):
        term = encrypt(wide_keys.randomizers, packing.pack_wide(row)).scale(abs(weight))
        total = total + term if weight > 0 else total - term
    residues = combine(*(total.partial_decrypt(share) for share in wide_keys.shares))
    expected = [sum(w * row[j] for w, row in zip(weights, rows, strict=True)) for j in range(slots)]
    assert packing.unpack_wide(residues, slots) == expected


@given(case=packed_sums(), slot=st.integers(0, 62))
def test_changing_one_slot_changes_no_other(wide_keys, case, slot):
    """From its lowest to its highest value, with any neighbours."""
    slots, slot_bits, _, rows = case
    packing = Packing(wide_keys.public.n, slots, slot_bits)
    slot %= slots
    for value in (packing.bound - 1, 1 - packing.bound, 0, -1):
        row = list(rows[0])
        row[slot] = value
        assert packing.unpack_wide(packing.pack_wide(row), slots) == row


@given(values=st.lists(st.integers(-(2**37) + 1, 2**37 - 1), max_size=60))
def test_both_ways_to_pack_agree(wide_keys, values):
    """Machine words and big integers give the same plaintexts, and read each other's."""
    packing = Packing(wide_keys.public.n, 6, 38)
    words, wide = packing.pack(np.array(values, dtype=np.int64)), packing.pack_wide(values)
    assert np.array_equal(words, wide)
    assert packing.unpack(wide, len(values)).tolist() == packing.unpack_wide(words, len(values)) == values
