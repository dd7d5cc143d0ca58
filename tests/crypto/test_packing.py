"""Packing against a reference in plain Python integers."""

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.errors import CrowdFLError, SlotOverflow, WidthError

N = mpz(2) ** 256 - 189  # odd, 256 bits; packing asks no more of it
SMALL_N = mpz(2) ** 129 + 1  # 130 bits: the number of bits is no multiple of anything
WIDTHS = [2, 3, 8, 31, 32, 33, 38, 62, 63, 64, 65, 95, 96, 97, 128, 200, 255]


def reference(packing: Packing, values: list[int]) -> list[int]:
    """T = sum of v_j * 2^(W*j) mod N, row by row."""
    rows = [values[i : i + packing.slots] for i in range(0, len(values), packing.slots)]
    return [sum(v << (packing.slot_bits * j) for j, v in enumerate(row)) % int(packing.n) for row in rows]


@st.composite
def packings(draw, moduli=(N, SMALL_N)):
    """A packing of any shape that fits its modulus."""
    n = draw(st.sampled_from(moduli))
    slot_bits = draw(st.sampled_from([w for w in WIDTHS if w < n.bit_length()]))
    slots = draw(st.integers(1, (n.bit_length() - 1) // slot_bits))
    return Packing(n, slots, slot_bits)


def values_for(packing: Packing, largest: int | None = None):
    """Lists of values up to the exact bound of a slot."""
    most = packing.bound - 1 if largest is None else min(packing.bound - 1, largest)
    return st.lists(st.integers(-most, most) | st.sampled_from([most, -most, 0, -1]), max_size=3 * packing.slots + 1)


@given(data=st.data(), packing=packings())
def test_pack_is_the_reference(data, packing):
    """And unpack brings every value back."""
    values = data.draw(values_for(packing, 2**63 - 1))
    packed = packing.pack(np.array(values, dtype=np.int64))
    assert blocks.to_ints(packed) == reference(packing, values)
    assert packed.shape == (packing.rows_for(len(values)), blocks.width_of(packing.n))
    assert packing.unpack(packed, len(values)).tolist() == values


@given(data=st.data(), packing=packings())
def test_pack_wide_is_the_reference(data, packing):
    """Values of any size that fit a slot."""
    values = data.draw(values_for(packing))
    packed = packing.pack_wide(values)
    assert blocks.to_ints(packed) == reference(packing, values)
    assert packing.unpack_wide(packed, len(values)) == values


@pytest.mark.parametrize("slot_bits", WIDTHS)
def test_full_slots_of_mixed_signs_do_not_touch_each_other(slot_bits):
    """Every pattern of extreme neighbours, at every width."""
    packing = Packing(N, min(3, 255 // slot_bits), slot_bits)
    most = packing.bound - 1
    for pattern in np.ndindex(*([3] * packing.slots)):
        values = [(-most, 0, most)[choice] for choice in pattern]
        packed = packing.pack_wide(values)
        assert blocks.to_ints(packed) == reference(packing, values)
        assert packing.unpack_wide(packed, packing.slots) == values


@pytest.mark.parametrize("slot_bits", WIDTHS)
def test_one_more_than_the_bound_is_refused(slot_bits):
    """The position of the first is named."""
    packing = Packing(N, 1, slot_bits)
    for value in (packing.bound, -packing.bound):
        with pytest.raises(SlotOverflow, match="position 2"):
            packing.pack_wide([0, packing.bound - 1, value, value])


@pytest.mark.parametrize("slot_bits", [w for w in WIDTHS if w <= 64])
def test_pack_refuses_what_pack_wide_refuses(slot_bits):
    """Both take up to the bound and no more, as far as 64-bit values reach."""
    packing = Packing(N, 1, slot_bits)
    most = packing.bound - 1
    assert packing.unpack(packing.pack(np.array([most, -most])), 2).tolist() == [most, -most]
    beyond = [v for v in (packing.bound, -packing.bound) if -(2**63) <= v < 2**63]
    for value in beyond:
        with pytest.raises(SlotOverflow, match="position 1"):
            packing.pack(np.array([0, value]))


@pytest.mark.parametrize("slot_bits", [65, 96, 97, 200])
def test_unpack_refuses_values_beyond_64_bits(slot_bits):
    """They are there, and only unpack_wide shows them."""
    packing = Packing(N, 1, slot_bits)
    inside = [2**63 - 1, -(2**63)]
    assert packing.unpack(packing.pack_wide(inside), 2).tolist() == inside
    for value in (2**63, -(2**63) - 1, 2**64 if slot_bits > 65 else 2**63 + 1):
        packed = packing.pack_wide([0, value])
        assert packing.unpack_wide(packed, 2) == [0, value]
        with pytest.raises(SlotOverflow, match="position 1"):
            packing.unpack(packed, 2)


@pytest.mark.parametrize(("slots", "slot_bits"), [(1, 20), (3, 38), (6, 42), (1, 254), (5, 50)])
def test_a_plaintext_packed_another_way_is_refused(slots, slot_bits):
    """Anything beyond the slots' reach, of either sign, and the middle of Z_N."""
    packing = Packing(N, slots, slot_bits)
    offset = sum(packing.bound << (slot_bits * j) for j in range(slots))
    highest, lowest = 2 ** (slots * slot_bits) - 1 - offset, -offset
    for t in (highest + 1, lowest - 1, int(N) // 2, -(int(N) // 2)):
        with pytest.raises(SlotOverflow, match="plaintext 1 "):
            packing.unpack_wide(blocks.from_ints([0, t % int(N)], 32), 2 * slots)
    assert packing.unpack_wide(blocks.from_ints([highest], 32), slots) == [packing.bound - 1] * slots


@pytest.mark.parametrize(("slots", "slot_bits"), [(0, 10), (1, 1), (-1, 10), (256, 1)])
def test_shapes_that_hold_nothing_are_refused(slots, slot_bits):
    """At least one slot of at least a sign and a bit."""
    with pytest.raises(WidthError):
        Packing(N, slots, slot_bits)


@pytest.mark.parametrize(("slots", "slot_bits"), [(1, 255), (5, 51), (85, 3), (127, 2)])
def test_slots_fill_n_up_to_its_last_bit(slots, slot_bits):
    """K*W = |N| - 1 fits, one slot more does not, and the refusal says the numbers."""
    packing = Packing(N, slots, slot_bits)
    values = [packing.bound - 1, 1 - packing.bound] * slots
    assert packing.unpack_wide(packing.pack_wide(values), 2 * slots) == values
    with pytest.raises(WidthError, match=f"{(slots + 1) * slot_bits} bits.*256 leaves 255"):
        Packing(N, slots + 1, slot_bits)


def test_as_many_bits_as_n_has_are_one_too_many():
    """256 bits do not fit |N| = 256."""
    with pytest.raises(WidthError):
        Packing(N, 8, 32)


@pytest.mark.parametrize(("count", "rows"), [(0, 0), (1, 1), (5, 1), (6, 2), (10, 2), (11, 3)])
def test_rows_are_rounded_up(count, rows):
    """The last plaintext may be part empty."""
    packing = Packing(N, 5, 51)
    assert packing.rows_for(count) == rows
    assert len(packing.pack(np.zeros(count, dtype=np.int64))) == rows


def test_padding_slots_are_zero():
    """Nothing but the values is in the last plaintext."""
    packing = Packing(N, 5, 51)
    packed = packing.pack(np.array([-7, 3], dtype=np.int64))
    assert packing.unpack(packed, 5).tolist() == [-7, 3, 0, 0, 0]


@pytest.mark.parametrize("unpack", ["unpack", "unpack_wide"])
def test_more_values_than_the_plaintexts_hold_are_refused(unpack):
    """A result that came back with a plaintext missing is not quietly shorter."""
    packing = Packing(N, 5, 51)
    packed = packing.pack(np.arange(10))
    with pytest.raises(CrowdFLError):
        getattr(packing, unpack)(packed, 11)


def test_packing_leaves_its_input_alone():
    """The caller's array is not touched."""
    values = np.array([-7, 3, 2], dtype=np.int64)
    Packing(N, 2, 51).pack(values)
    assert values.tolist() == [-7, 3, 2]
