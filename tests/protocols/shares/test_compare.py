"""Comparing shared numbers with dealt keys."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.shares.expansion import Stream
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.circuits.program import CSP, SP, CspSide, SpSide
from crowdfl.protocols.shares.circuits.scalars import added
from crowdfl.protocols.shares.dealing.correlations import Cards, CspCards, KgcCards, SpCards

_SIDES = SpSide(), CspSide()


def _servers(deal, seed: int = 1):
    """What `deal` gives to SP, to CSP and to KGC."""
    seeds = seed.to_bytes(32, "little"), (seed + 5000).to_bytes(32, "little")
    kgc = KgcCards(Stream(seeds[0], b"t"), Stream(seeds[1], b"t"))
    known, files = deal(kgc), [b"".join(file) for file in kgc.files()]
    sp, csp = SpCards(Stream(seeds[0], b"t"), files[0]), CspCards(Stream(seeds[1], b"t"), files[1])
    return deal(sp), deal(csp), known


def _opened(dealt: Sequence[compare.Comparison], places: list[int], numbers: list[int], split: int) -> list[int]:
    shares = [[number - split for number in numbers], [split] * len(numbers)]
    return added(*(compare.masked(dealt[side], places, shares[side]) for side in (SP, CSP)), dealt[0].mask.bits)


def _in_interval(bits: int, numbers: list[int], bound: int, seed: int = 1, split: int = 77) -> list[int]:
    count = len(numbers)
    dealt = _servers(lambda cards: compare.deal(cards, count, bits), seed)
    places = list(range(count))
    opened = _opened(dealt, places, numbers, split)
    answers = [compare.less_than(side, dealt[side.index], places, opened, bound) for side in _SIDES]
    return (answers[SP] ^ answers[CSP]).tolist()


def test_every_number_of_eight_bits_is_told_from_every_bound() -> None:
    numbers = list(range(256))
    for bound in (1, 2, 100, 127, 128, 129, 254, 255):
        assert _in_interval(8, numbers, bound, seed=bound) == [int(number < bound) for number in numbers]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 2**136 - 1), min_size=1, max_size=5), st.integers(1, 2**136 - 1), st.integers(1, 999))
def test_wide_numbers_are_compared_exactly(numbers: list[int], bound: int, seed: int) -> None:
    assert _in_interval(136, numbers, bound, seed) == [int(number < bound) for number in numbers]


@pytest.mark.parametrize("bits", [8, 64, 136])
def test_the_edges_of_the_interval_are_exact(bits: int) -> None:
    half = 1 << (bits - 1)
    numbers = [0, 1, half - 1, half, half + 1, 2 * half - 1]
    assert _in_interval(bits, numbers, half) == [1, 1, 1, 0, 0, 0]


def test_places_choose_the_dealt_material() -> None:
    dealt = _servers(lambda cards: compare.deal(cards, 9, 64))
    places, numbers = [8, 2, 5], [3, 4, 1 << 63]
    opened = _opened(dealt, places, numbers, 5)
    answers = [compare.less_than(side, dealt[side.index], places, opened, 4) for side in _SIDES]
    assert (answers[SP] ^ answers[CSP]).tolist() == [1, 0, 0]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.booleans()), min_size=1, max_size=8), st.integers(1, 999))
def test_a_gated_comparison_is_the_and_with_a_shared_bit(cases: list[tuple[int, bool]], seed: int) -> None:
    count = len(cases)
    dealt = _servers(lambda cards: compare.deal_gated(cards, count, 64), seed)
    places = list(range(count))
    opened = _opened([one.plain for one in dealt], places, [number for number, _ in cases], 12345)
    gate = np.array([bit for _, bit in cases], dtype=np.uint8) ^ dealt[SP].flips ^ dealt[CSP].flips
    answers = [compare.gated_less_than(side, dealt[side.index], places, opened, 1 << 63, gate) for side in _SIDES]
    assert (answers[SP] ^ answers[CSP]).tolist() == [int(number < 1 << 63 and bit) for number, bit in cases]


def test_a_servers_share_of_an_answer_tells_nothing_of_the_number() -> None:
    """Of 400 numbers, all inside and all outside, CSP's own shares are ones about half of the time."""
    for bound in (1, 1 << 63):
        dealt = _servers(lambda cards: compare.deal(cards, 400, 64), 3)
        places = list(range(400))
        opened = _opened(dealt, places, [5] * 400, 1)
        ones = [int(compare.less_than(side, dealt[side.index], places, opened, bound).sum()) for side in _SIDES]
        assert all(120 < count < 280 for count in ones)  # eight standard deviations


def test_what_is_opened_does_not_depend_on_the_number_but_through_its_mask() -> None:
    dealt = _servers(lambda cards: compare.deal(cards, 1, 64))
    assert _opened(dealt, [0], [9], 1)[0] - _opened(dealt, [0], [4], 1)[0] in (5, 5 - (1 << 64))
    assert dealt[2].mask.share[0] == (dealt[SP].mask.share[0] + dealt[CSP].mask.share[0]) % (1 << 64)


def test_seeds_and_keys_are_not_printed() -> None:
    def deal(cards: Cards) -> compare.Comparison:
        return compare.deal(cards, 1, 64)

    dealt = _servers(deal)
    assert "seeds" not in repr(dealt[SP])
    assert str(dealt[SP].mask.share[0]) not in repr(dealt[SP])
