"""Numbers shared modulo a power of two: conversions, products, openings."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.protocols.shares.circuits.program import Half
from crowdfl.protocols.shares.circuits.reciprocal import Divider
from crowdfl.protocols.shares.circuits.scalars import (
    SPARE,
    Group,
    Masked,
    modulus_for,
    open_groups,
    open_masked,
    to_integers,
    truncate,
    widen,
)
from tests.protocols.shares.dealing import joined, run, split

_BITS = 104
numbers = st.lists(st.integers(-(1 << 55), 1 << 55), min_size=1, max_size=5)


def _split(values: list[int], seed: int) -> list[tuple[int, list[int]]]:
    return list(enumerate(split(values, _BITS, seed)))


@given(numbers, st.integers(0, 2**30))
def test_shares_become_shares_over_the_integers_and_of_other_moduli(values: list[int], seed: int) -> None:
    shares = _split(values, seed)
    whole = [to_integers(own, _BITS, index) for index, own in shares]
    assert [a + b for a, b in zip(*whole, strict=True)] == values
    for bits in (64, 256):
        sp, csp = (widen(own, _BITS, bits, index) for index, own in shares)
        assert joined(sp, csp, bits) == values


@given(numbers, st.integers(0, 60), st.integers(0, 2**30))
def test_truncation_rounds_up_or_down_and_is_exact_where_nothing_is_to_be_rounded(
    values: list[int], shift: int, seed: int
) -> None:
    shares = _split(values, seed)
    results = [truncate(own, shift, _BITS, index) for index, own in shares]
    for result, value in zip((a + b for a, b in zip(*results, strict=True)), values, strict=True):
        assert result in (value >> shift, -(-value >> shift))


@given(st.integers(0, 1 << 200))
def test_a_modulus_leaves_the_spare_bits(bound: int) -> None:
    bits = modulus_for(bound)
    assert bits % 8 == 0
    assert bound << (SPARE + 1) <= 1 << bits


@given(st.integers(-(1 << 40), 1 << 40), st.integers(-(1 << 40), 1 << 40), st.integers(0, 2**30))
def test_products_of_numbers_opened_under_masks(x: int, y: int, seed: int) -> None:
    values, masks = _split([x, y], seed), split([12345, 678], _BITS, seed + 1)
    forms = split([12345 * 678, 12345**2], _BITS, seed + 2)

    def program(index: int) -> Callable[[Divider], Half[list[int]]]:
        def half(divider: Divider) -> Half[list[int]]:
            opened = yield from open_masked(divider.side, values[index][1], masks[index], _BITS)
            both, square = opened.product(0, 1, index), opened.product(0, 0, index)
            return [opened.share(0, index), both + forms[index][0], square + forms[index][1]]

        return half

    sp, csp, transcript = run(program(0), program(1))
    assert joined(sp, csp, _BITS) == [x, x * y, x * x]
    assert transcript.exchanges == 1


def test_groups_of_several_moduli_are_opened_in_one_exchange() -> None:
    def half(divider: Divider) -> Half[list[list[int]]]:
        groups: list[Group] = [([200, 7], 8), ([], 16), ([-1], 24)]
        return (yield from open_groups(divider.side, groups))

    sp, csp, transcript = run(half, half)
    assert sp == csp == [[400 % 256, 14], [], [(1 << 24) - 2]]
    assert transcript.exchanges == 1


def test_a_number_without_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="2 numbers under 1 masks"):
        Masked([1, 2], [3])
