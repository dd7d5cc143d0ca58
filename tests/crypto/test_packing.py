"""Packing against a reference in plain Python integers."""

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.crypto import blocks
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.vector import combine, encrypt
from crowdfl.crypto.paillier.wide_ints import WideInts
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
    packing = Packing(N, 1, slot_bits)
    for value in (packing.bound, -packing.bound):
        with pytest.raises(SlotOverflow, match="position 2"):
            packing.pack_wide([0, packing.bound - 1, value, value])


@pytest.mark.parametrize("slot_bits", [w for w in WIDTHS if w <= 64])
def test_pack_refuses_what_pack_wide_refuses(slot_bits):
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


@pytest.mark.parametrize("unpack", ["unpack", "unpack_wide"])
def test_more_values_than_the_plaintexts_hold_are_refused(unpack):
    """A result that came back with a plaintext missing is not quietly shorter."""
    packing = Packing(N, 5, 51)
    packed = packing.pack(np.arange(10))
    with pytest.raises(CrowdFLError):
        getattr(packing, unpack)(packed, 11)


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


numbers = st.lists(st.integers(-(2**130), 2**130), max_size=12)
some = st.lists(st.integers(-(2**70), 2**70), min_size=6, max_size=6)
naturals = st.lists(st.integers(0, 2**100 - 1), max_size=8)


@given(values=numbers, constant=st.integers(-(2**150), 2**150))
def test_a_constant_added(values, constant):
    assert WideInts.of(values).plus(constant).to_ints() == [x + constant for x in values]


@given(values=naturals, width=st.integers(13, 20))
def test_blocks_of_bytes(values, width):
    block = blocks.from_ints(values, width)
    wide = WideInts.from_block(block)
    assert wide.to_ints() == values
    assert np.array_equal(wide.to_block(width), block)


@given(values=st.lists(st.integers(-(2**98) + 1, 2**98 - 1), max_size=8), bits=st.integers(99, 140))
def test_fields_in_twos_complement(values, bits):
    size = -(-bits // 32)
    fields = WideInts.of(values).to_fields(size)
    words = [sum(int(limb) << (32 * j) for j, limb in enumerate(row)) for row in fields.tolist()]
    assert words == [x % (1 << (32 * size)) for x in values]
    fields[:, -1] &= np.uint64((1 << ((bits - 1) % 32 + 1)) - 1)
    assert WideInts.from_fields(fields, bits).to_ints() == values


@given(values=numbers)
def test_residues(values):
    n = 2**160 + 7
    assert blocks.to_ints(WideInts.of(values).residues(n, 21)) == [x % n for x in values]


@given(values=numbers, bound=st.integers(1, 2**131))
def test_beyond_a_bound(values, bound):
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
    assert "12345" not in repr(WideInts.of([12345]))
