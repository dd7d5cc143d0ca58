"""Reciprocals of shared numbers: exact to 2 units, and what CSP sees of them."""

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.coins import Coins
from crowdfl.errors import LengthMismatch, WidthBudgetExceeded
from crowdfl.protocols.shares.circuits import reciprocal
from crowdfl.protocols.shares.circuits.reciprocal import ReciprocalWidths, draw_mask, span_for
from crowdfl.protocols.shares.circuits.scalars import pack, to_integers, unpack
from tests.protocols.shares.dealing import Transcript, deal_with, run, split

_BITS = 104  # of the modulus that divisors are shared in
WIDTHS = ReciprocalWidths(low=0, high=48, share=_BITS, precision=70, span=600)
RAISED = ReciprocalWidths(low=30, high=48, share=_BITS, precision=70, span=600)


def divided(widths: ReciprocalWidths, y: Sequence[int], seed: int = 1, shift: int = 0) -> tuple[list[int], Transcript]:
    """The quotients, and what was sent: by a CSP that adds a number to its share of a divisor."""

    def shifted(step: int, message: bytes) -> bytes:
        size = widths.f_bits // 8
        if step != 0 or shift == 0:
            return message
        return pack([unpack(message[:size], widths.f_bits)[0] + shift], widths.f_bits) + message[size:]

    given = deal_with(lambda cards: reciprocal.deal(cards, widths, len(y)), seed)
    shares = [to_integers(own, _BITS, index) for index, own in enumerate(split(y, _BITS, seed))]
    sp, csp, transcript = run(
        lambda divider: divider.reciprocals("test", widths, given.sp, shares[0]),
        lambda divider: divider.reciprocals("test", widths, given.csp, shares[1]),
        seed,
        csp_sends=shifted,
    )
    return [a + b for a, b in zip(sp, csp, strict=True)], transcript


def divisors(low: int) -> st.SearchStrategy[int]:
    octaves = st.integers(low, 47).flatmap(lambda bits: st.integers(1 << bits, (2 << bits) - 1))
    return st.one_of(octaves, st.sampled_from([1 << low, (1 << low) + 1, (1 << 48) - 1, 1 << 47]))


@settings(max_examples=60, deadline=None)
@given(st.lists(divisors(0), min_size=1, max_size=4), st.integers(0, 2**30))
def test_a_reciprocal_is_within_two_units(y: list[int], seed: int) -> None:
    results, _ = divided(WIDTHS, y, seed)
    assert all(abs(result - Fraction(1 << 70, value)) <= 2 for result, value in zip(results, y, strict=True))


@settings(max_examples=30, deadline=None)
@given(st.lists(divisors(30), min_size=1, max_size=3), st.integers(0, 2**30))
def test_a_reciprocal_of_large_numbers_alone_is_as_exact(y: list[int], seed: int) -> None:
    results, _ = divided(RAISED, y, seed)
    assert all(abs(result - Fraction(1 << 70, value)) <= 2 for result, value in zip(results, y, strict=True))


def test_the_shares_of_a_result_stay_within_their_bits() -> None:
    given = deal_with(lambda cards: reciprocal.deal(cards, WIDTHS, 1))
    sp, csp, _ = run(
        lambda divider: divider.reciprocals("test", WIDTHS, given.sp, [5 + (1 << _BITS)]),
        lambda divider: divider.reciprocals("test", WIDTHS, given.csp, [-(1 << _BITS)]),
    )
    assert max(abs(share) for share in (*sp, *csp)) < 1 << WIDTHS.result


def test_the_same_seeds_give_the_same_bytes() -> None:
    assert divided(WIDTHS, [77, 3])[1].sp == divided(WIDTHS, [77, 3])[1].sp
    assert divided(WIDTHS, [77, 3])[1].csp == divided(WIDTHS, [77, 3])[1].csp


@pytest.mark.parametrize("masked", [0, 1, 1 << WIDTHS.hi + 48, (1 << WIDTHS.modulus) - 1, (1 << WIDTHS.modulus) - 7])
def test_a_divisor_that_no_honest_sp_sends_is_answered_as_any_other(masked: int) -> None:
    """A false message makes CSP open this very number: it answers at the same length, and the result is 0."""
    given = deal_with(lambda cards: reciprocal.deal(cards, WIDTHS, 1))
    size, seen = WIDTHS.modulus // 8, Transcript()

    def opened_as_that(step: int, message: bytes) -> bytes:
        if step != 1:
            return message
        e = int.from_bytes(seen.sp[0], "little")
        csp = -e * int(given.csp.b.share[0]) - int(given.csp.ab.share[0])
        return ((masked - csp) % (1 << WIDTHS.modulus)).to_bytes(size, "little")

    def noted(step: int, message: bytes) -> bytes:
        sent = opened_as_that(step, message)
        seen.sp.append(sent)
        return sent

    sp, csp, transcript = run(
        lambda divider: divider.reciprocals("test", WIDTHS, given.sp, [9]),
        lambda divider: divider.reciprocals("test", WIDTHS, given.csp, [0]),
        sp_sends=noted,
    )
    assert transcript.seen("test") == [masked]
    assert [len(message) for message in transcript.csp] == [WIDTHS.f_bits // 8, size, 0]
    assert sp[0] + csp[0] == 0


def test_more_divisors_than_were_dealt_for_are_refused() -> None:
    given = deal_with(lambda cards: reciprocal.deal(cards, WIDTHS, 1))
    with pytest.raises(LengthMismatch, match="2 divisors"):
        run(
            lambda divider: divider.reciprocals("test", WIDTHS, given.sp, [1, 2]),
            lambda divider: divider.reciprocals("test", WIDTHS, given.csp, [0, 0]),
        )


def test_a_task_that_needs_longer_masks_than_can_be_computed_with_is_refused_with_the_numbers() -> None:
    span = span_for([(10_000, 100)])
    with pytest.raises(WidthBudgetExceeded, match=f"masks of {span} bits.*lower rounds"):
        ReciprocalWidths(low=0, high=100, share=160, precision=140, span=span).require_computable()


@pytest.mark.parametrize("divisions", [[(5, 47)], [(180, 84), (5, 107)], [(1, 1)]])
def test_the_width_of_masks_keeps_all_divisions_of_a_task_below_one_percent(divisions: list[tuple[int, int]]) -> None:
    """By the exact overlap of two shifted square roots of the density, not by the bound that the width comes from."""
    span, affinity = span_for(divisions), 1.0
    for count, bits in divisions:
        turn = math.pi * bits / span
        affinity *= ((1 - bits / span) * math.cos(turn) + math.sin(turn) / math.pi) ** count
    assert math.sqrt(1 - affinity**2) <= reciprocal.LEAK


def _largest_gap(first: Sequence[int], second: Sequence[int]) -> float:
    marked = sorted([(value, 1) for value in first] + [(value, -1) for value in second])
    gap = level = 0
    for _, step in marked:
        level += step
        gap = max(gap, abs(level))
    return gap / len(first)


@pytest.fixture(scope="module")
def views() -> dict[int, list[int]]:
    """What CSP sees of very different divisors, in many divisions, with masks a good deal shorter than a task's."""
    widths = ReciprocalWidths(low=0, high=41, share=_BITS, precision=60, span=4000)
    return {y: divided(widths, [y] * 1500, seed=y)[1].seen("test") for y in (1, 3, (1 << 41) - 1)}


def test_what_csp_sees_of_very_different_divisors_differs_by_no_more_than_the_bound(
    views: dict[int, list[int]],
) -> None:
    chance = 2.2 * math.sqrt(2 / 1500)  # seeds are fixed; the statistic is above this once in 10,000 seeds
    bound = math.pi * 41 / 4000
    assert _largest_gap(views[1], views[(1 << 41) - 1]) <= bound + chance
    assert _largest_gap(views[1], views[3]) <= math.pi * 2 / 4000 + chance


def test_masks_far_too_short_would_show_the_divisor() -> None:
    widths = ReciprocalWidths(low=0, high=41, share=_BITS, precision=60, span=60)
    small, large = (divided(widths, [y] * 200, seed=1)[1].seen("test") for y in (1, (1 << 41) - 1))
    assert _largest_gap(small, large) > 0.7


@pytest.mark.parametrize("prime", [2, 3, 5])
def test_what_csp_sees_does_not_tell_what_divides_the_divisor(views: dict[int, list[int]], prime: int) -> None:
    for seen in views.values():
        multiples = sum(value % prime == 0 for value in seen) / len(seen)
        assert multiples == pytest.approx(1 / prime, abs=5.5 * math.sqrt((prime - 1) / prime**2 / len(seen)))


def test_masks_have_the_density_that_the_proof_speaks_of() -> None:
    coins, lo, hi, count = Coins(bytes(32)), 100, 140, 3000
    logs = sorted(math.log2(int(draw_mask(coins, lo, hi))) for _ in range(count))
    distribution = [(x - lo) / (hi - lo) - math.sin(2 * math.pi * (x - lo) / (hi - lo)) / (2 * math.pi) for x in logs]
    gaps = [abs(value - (place + 0.5) / count) for place, value in enumerate(distribution)]
    assert max(gaps) < 2.2 / math.sqrt(count)


SHIFTED = ReciprocalWidths(low=0, high=48, share=_BITS, precision=70, span=30_000)


@pytest.mark.parametrize("seed", range(1, 6))
def test_csp_compares_a_divisor_with_a_number_of_its_choice(seed: int) -> None:
    """Conceded: one bit a division, at once and unnoticed."""
    threshold = 123_456_789
    views = [divided(SHIFTED, [y], seed, -threshold)[1].seen("test")[0] for y in (threshold - 1, threshold + 1)]
    assert [seen >> (SHIFTED.modulus - 1) for seen in views] == [1, 0]


@pytest.mark.parametrize("shift", [0, 1 << 40, 1 << (SHIFTED.f_bits - 1)])
def test_whatever_csp_adds_every_divisor_explains_what_it_sees(shift: int) -> None:
    """For each other divisor there is a mask and a remainder with which an honest SP would have sent the same."""
    (seen,) = divided(SHIFTED, [987_654_321], shift=shift)[1].seen("test")
    for y in (1, 2, 3, 10**6, 987_654_320, 987_654_322, (1 << 48) - 1):
        m = -(-seen // (y + shift))
        assert 1 << SHIFTED.lo <= m < 1 << SHIFTED.hi
        assert 0 <= m * (y + shift) - seen < m >> SHIFTED.g


def test_a_shift_that_would_show_the_mask_does_not_fit_its_message() -> None:
    """m beside y*m in one number: for that CSP must add at least as much as the product is long."""
    assert SHIFTED.lo + SHIFTED.high > SHIFTED.f_bits
    assert SHIFTED.hi + SHIFTED.f_bits < SHIFTED.modulus - 1  # and nothing of m*(y + shift) wraps
