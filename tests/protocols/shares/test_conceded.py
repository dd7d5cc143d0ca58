"""What a server that deviates gets from a round's rewards: attacks that work, as conceded in docs/security.md, and where
they end."""

from fractions import Fraction

import pytest

from crowdfl.protocols.shares import rules
from crowdfl.protocols.shares.circuits import reciprocal
from crowdfl.protocols.shares.circuits.reciprocal import ReciprocalWidths
from crowdfl.protocols.shares.circuits.scalars import pack, to_integers, unpack
from crowdfl.protocols.shares.rule_widths import RuleWidths
from tests.protocols.shares.dealing import Given, deal_with, joined, run, split
from tests.protocols.shares.scoring import SmallRound, computed, dot, plain_rewards, plain_weights, scores_of, scripted
from tests.protocols.shares.scoring import widths_for as widths_of

BUDGET = 100_000_000
_BITS = 104
DIVISION = ReciprocalWidths(low=0, high=48, share=_BITS, precision=70, span=30_000)
_EMPTY = [0] * 12


def lanes(*rows: list[int]) -> list[list[int]]:
    return [[*row, *_EMPTY] for row in rows]


def _added(message: bytes, bits: int, place: int, number: int) -> bytes:
    """A message with a number added to one of those at its beginning."""
    size = bits // 8
    piece = message[place * size : (place + 1) * size]
    return message[: place * size] + pack([unpack(piece, bits)[0] + number], bits) + message[(place + 1) * size :]


# ---- a division ------------------------------------------------------------------------------------------------------


def _seen_of(y: int, shift: int, seed: int = 1) -> int:
    """What CSP sees of a divisor to whose share it has added a number."""
    given = deal_with(lambda cards: reciprocal.deal(cards, DIVISION, 1), seed)
    shares = [to_integers(own, _BITS, index) for index, own in enumerate(split([y], _BITS, seed))]
    _, _, transcript = run(
        lambda divider: divider.reciprocals("test", DIVISION, given.sp, shares[0]),
        lambda divider: divider.reciprocals("test", DIVISION, given.csp, shares[1]),
        seed,
        csp_sends=lambda step, message: _added(message, DIVISION.f_bits, 0, shift) if step == 0 else message,
    )
    (seen,) = transcript.seen("test")
    return seen


@pytest.mark.parametrize("seed", range(1, 6))
def test_csp_compares_a_divisor_with_a_number_of_its_choice(seed: int) -> None:
    """One bit a division, at once and unnoticed."""
    threshold = 123_456_789
    signs = [_seen_of(y, -threshold, seed) >> (DIVISION.modulus - 1) for y in (threshold - 1, threshold + 1)]
    assert signs == [1, 0]


@pytest.mark.parametrize("shift", [0, 1 << 40, 1 << (DIVISION.f_bits - 1)])
def test_whatever_csp_adds_every_divisor_explains_what_it_sees(shift: int) -> None:
    """For each other divisor there is a mask and a remainder with which an honest SP would have sent the same."""
    seen = _seen_of(987_654_321, shift)
    for y in (1, 2, 3, 10**6, 987_654_320, 987_654_322, (1 << 48) - 1):
        m = -(-seen // (y + shift))
        assert 1 << DIVISION.lo <= m < 1 << DIVISION.hi
        assert 0 <= m * (y + shift) - seen < m >> DIVISION.g


def test_a_shift_that_would_show_the_mask_does_not_fit_its_message() -> None:
    """m beside y*m in one number: for that CSP must add at least as much as the product is long."""
    assert DIVISION.lo + DIVISION.high > DIVISION.f_bits
    assert DIVISION.hi + DIVISION.f_bits < DIVISION.modulus - 1  # and nothing of m*(y + shift) wraps


# ---- gate ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["sp", "csp"])
@pytest.mark.parametrize(("above", "is_paid"), [(-1, False), (0, False), (1, True)])
def test_a_shifted_comparison_shows_one_bit_in_a_reward(server: str, above: int, is_paid: bool) -> None:
    """The last participant goes against the others, and its second gate is open: T = -9000 is told by what opens the first."""
    small = SmallRound(lanes([100, 0, 0, 0], [100, 0, 0, 0], [-45, 0, 0, 0]), [1, 1, 1])

    def meddle(given: Given) -> None:
        getattr(given, server)[1].rule.direction.mask.share[2] += 9000 + above

    assert computed(widths_of("gate"), small, BUDGET)[0][2] == 0
    paid, _ = computed(widths_of("gate"), small, BUDGET, meddle=meddle)
    assert (paid[2] > 0) == is_paid


def _force(given: Given, widths: RuleWidths, wanted: list[bool]) -> None:
    """CSP adds so much to what is compared that the answer is its own."""
    gates = given.csp[1].rule
    for slot, is_open in enumerate(wanted):
        sign = 1 if is_open else -1
        gates.direction.mask.share[slot] += sign * widths.agreement // 2
        gates.others.mask.share[slot] += sign * widths.agreement**2 // 2


def test_csp_with_a_paid_participant_reads_one_count_of_samples_off_that_participants_own_reward() -> None:
    """All gates shut but the victim's and the accomplice's: the rest of the budget is the victim's share."""
    widths = widths_of("gate")
    small = SmallRound(lanes([100, 0, 0, 0], [0, 90, 0, 0], [-45, 0, 0, 0], [7, 7, 0, 0]), [13, 37, 5, 11])
    paid, _ = computed(widths, small, BUDGET, meddle=lambda given: _force(given, widths, [True, True, False, False]))
    accomplice = small.samples[0]
    assert paid[2:] == [0, 0]
    assert round(accomplice * (BUDGET - 4) / paid[0] - accomplice) == small.samples[1]


def test_before_a_reward_is_known_csp_has_seen_no_divisor_of_gate() -> None:
    small = SmallRound(lanes([100, 0, 0, 0], [100, 1, 0, 0], [90, 0, 0, 0]), [1, 2, 3])
    assert computed(widths_of("gate"), small, BUDGET)[1].view.entries == []


# ---- agreement and distance ------------------------------------------------------------------------------------------


def _rewards_with_a_shifted_sum(widths: RuleWidths, small: SmallRound, direction: list[int]) -> list[int]:
    """A server that adds a vector to its share of the opened sum E turns B_i into <u_i, U + vector>."""
    given = scripted(widths)
    sp, csp = scores_of(given, widths, small)
    shifted = [whole + extra for whole, extra in zip(small.total, direction, strict=True)]
    for i, own in enumerate(small.lanes):
        csp.B[i] = (csp.B[i] + dot(own, direction)) % (1 << widths.R)
    object.__setattr__(csp, "UU", csp.UU + dot(shifted, shifted) - dot(small.total, small.total))
    first, second, _ = run(
        lambda divider: rules.rewards(divider, widths, given.sp[1], sp, BUDGET),
        lambda divider: rules.rewards(divider, widths, given.csp[1], csp, BUDGET),
    )
    return joined(first, second, 128)


def test_with_agreement_rewards_show_one_lane_of_every_upload() -> None:
    """A linear function of its choice, to as many digits as a reward has, when rewards are claimed."""
    widths = widths_of("agreement", square=10**20)
    small = SmallRound(lanes([100, 3, 0, 0], [200, -5, 0, 0], [321, 4, 0, 0]), [1, 1, 1])
    paid = _rewards_with_a_shifted_sum(widths, small, [10**12, 0, 0, 0, *_EMPTY])
    read = [Fraction(amount * 100, paid[0]) for amount in paid]
    assert [round(value, 4) for value in read] == [100, 200, 321]


def test_with_distance_rewards_show_the_distance_from_any_point() -> None:
    """Weights are then 1 / (distance from a point of its choice)."""
    widths = widths_of("distance", epsilon_units=1, square=10**20)
    small = SmallRound(lanes([100, 0, 0, 0], [0, 100, 0, 0], [50, 50, 0, 0]), [1, 1, 1])
    away = [3 * 100 - whole for whole in small.total[:1]] + [-whole for whole in small.total[1:]]
    paid = _rewards_with_a_shifted_sum(widths, small, away)
    moved = [
        Fraction(1, 9 * sum((x - c) ** 2 for x, c in zip(u, [100, *[0] * 15], strict=True)) + 9 + 1)
        for u in small.lanes
    ]
    expected = plain_rewards(moved, BUDGET)
    assert all(abs(mine - other) < 3 for mine, other in zip(paid, expected, strict=True))


@pytest.mark.parametrize(("rule", "divisions"), [("agreement", 1), ("distance", 4)])
def test_before_rewards_are_known_csp_has_seen_one_masked_number_for_each_division(rule: str, divisions: int) -> None:
    small = SmallRound(lanes([100, 0, 0, 0], [100, 1, 0, 0], [90, 0, 0, 0]), [1, 2, 3])
    widths = widths_of(rule)
    paid, transcript = computed(widths, small, BUDGET)
    assert sum(len(values) for _, values in transcript.view.entries) == divisions
    assert sum(paid) > sum(plain_rewards(plain_weights(widths, small), BUDGET)) - 3
