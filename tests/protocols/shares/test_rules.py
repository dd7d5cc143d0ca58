"""The rule `distance`: both servers' halves against the rule in the clear."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.errors import LengthMismatch, WidthBudgetExceeded
from crowdfl.learning import oracle
from crowdfl.protocols.shares import rules
from tests.protocols.shares.dealing import Transcript
from tests.protocols.shares.scoring import (
    RoundScores,
    SmallRound,
    computed,
    dot,
    plain_rewards,
    plain_weights,
    weighed,
    widths_for,
)

BUDGET = 123_456_789
_NORM = 1000
_LANES = 16
_REST = [0] * 12  # lanes that an example leaves empty
_PARTICIPANTS = 6


@st.composite
def rounds(draw: st.DrawFn) -> SmallRound:
    """Three to all participants, any slots, updates up to the bound, one sample to the most."""
    n = draw(st.integers(3, _PARTICIPANTS))
    largest = _NORM // 4  # of an entry: sixteen of them make the norm
    entries = st.lists(st.integers(-largest, largest), min_size=_LANES, max_size=_LANES)
    samples = draw(st.lists(st.one_of(st.integers(1, 50), st.sampled_from([1, 50])), min_size=n, max_size=n))
    common = draw(entries)
    updates = [draw(st.one_of(entries, st.just(common), st.just([0] * _LANES))) for _ in samples]
    lanes = [[s * entry for entry in update] for s, update in zip(samples, updates, strict=True)]
    slots = sorted(draw(st.permutations(range(_PARTICIPANTS)))[:n])
    return SmallRound(lanes, samples, slots)


def require_rewards(paid: list[int], expected: list[Fraction], budget: int) -> None:
    """Each within 2 millionths, the sum within the promise."""
    assert all(abs(mine - other) < 2 for mine, other in zip(paid, expected, strict=True))
    assert all(mine == 0 for mine, other in zip(paid, expected, strict=True) if other == 0)
    assert min(paid) >= 0
    assert sum(paid) <= budget
    assert sum(paid) >= budget - 2 * len(paid)


@settings(max_examples=25, deadline=None)
@given(rounds(), st.integers(0, 2**30))
def test_weights_are_those_of_the_rule_to_the_last_place(small: SmallRound, seed: int) -> None:
    widths = widths_for()
    scale = 1 << widths.distance_precision
    for mine, exact, s in zip(weighed(widths, small, seed), plain_weights(widths, small), small.samples, strict=True):
        assert abs(mine - exact * scale) <= 2 * s**3


@settings(max_examples=45, deadline=None)
@given(rounds(), st.sampled_from([0, 1, 3, 7, 1000, BUDGET, 10**9]), st.integers(0, 2**30))
def test_rewards_are_those_of_the_rule(small: SmallRound, budget: int, seed: int) -> None:
    widths = widths_for()
    paid, _ = computed(widths, small, budget, seed)
    require_rewards(paid, plain_rewards(plain_weights(widths, small), budget), budget)


def _equal(samples: list[int]) -> SmallRound:
    return SmallRound([[s * 3, s * 4, 0, 0, *_REST] for s in samples], samples)


@pytest.mark.parametrize("n", [3, _PARTICIPANTS])
def test_equal_updates_with_one_sample_beside_the_most_are_paid_by_their_samples(n: int) -> None:
    samples = [1, *[50] * (n - 1)]
    widths = widths_for()
    small = _equal(samples)
    paid, _ = computed(widths, small, BUDGET)
    require_rewards(paid, plain_rewards(plain_weights(widths, small), BUDGET), BUDGET)
    assert paid[1] == pytest.approx(50 * paid[0], rel=1e-4)


def test_updates_at_the_bound_in_one_entry_fit_the_widths() -> None:
    lanes = [[50 * _NORM, 0, 0, 0, *_REST]] * 5 + [[-50 * _NORM, 0, 0, 0, *_REST]]
    small = SmallRound(lanes, [50] * 6)
    widths = widths_for()
    paid, _ = computed(widths, small, BUDGET)
    require_rewards(paid, plain_rewards(plain_weights(widths, small), BUDGET), BUDGET)


def test_the_rule_takes_as_many_exchanges_as_planned() -> None:
    """Before rewards are known CSP has seen one masked number for each division."""
    small = SmallRound([[3, 0, 0, 0, *_REST], [2, 1, 0, 0, *_REST], [4, 0, 1, 0, *_REST]], [1, 1, 1])
    transcript = computed(widths_for(), small, BUDGET)[1]
    assert transcript.exchanges == 7
    assert sum(len(values) for _, values in transcript.view.entries) == 4


def test_distance_pays_as_the_papers_equation() -> None:
    """Lanes that are the update itself: what is left of the difference is rounding."""
    generator = np.random.default_rng(14)
    samples = [1, 7, 20, 50]
    updates = generator.integers(-250, 250, size=(4, _LANES))
    lanes = [[s * int(entry) for entry in update] for s, update in zip(samples, updates, strict=True)]
    paid, _ = computed(widths_for(floor_units=10), SmallRound(lanes, samples), BUDGET)
    expected = oracle.rewards(list(updates), samples, BUDGET - 4, epsilon=10)
    assert np.allclose(paid, expected, rtol=1e-9, atol=2)


def test_with_distance_a_shifted_sum_shows_the_distance_from_any_point() -> None:
    """Conceded: CSP adds a vector to the opened sum, B_i is then <u_i, U + vector>, and weights 1 / (distance from there)."""
    widths = widths_for(floor_units=1, square=10**20)
    small = SmallRound([[*row, 0, 0, *_REST] for row in ([100, 0], [0, 100], [50, 50])], [1, 1, 1])
    point = [100, *[0] * (len(small.total) - 1)]
    shifted = [3 * x for x in point]
    away = [new - old for new, old in zip(shifted, small.total, strict=True)]

    def meddle(csp: RoundScores) -> None:
        for i, own in enumerate(small.lanes):
            csp.B[i] = (csp.B[i] + dot(own, away)) % (1 << widths.R)
        object.__setattr__(csp, "UU", csp.UU + dot(shifted, shifted) - dot(small.total, small.total))

    paid, _ = computed(widths, small, BUDGET, meddle=meddle)
    squares = [sum((x - c) ** 2 for x, c in zip(row, point, strict=True)) for row in small.lanes]
    expected = plain_rewards([Fraction(1, 9 * square + 9 + 1) for square in squares], BUDGET)
    assert all(abs(mine - other) < 3 for mine, other in zip(paid, expected, strict=True))


def test_what_is_sent_is_as_long_whatever_the_updates_are() -> None:
    def lengths(transcript: Transcript) -> list[tuple[int, int]]:
        return [(len(a), len(b)) for a, b in zip(transcript.sp, transcript.csp, strict=True)]

    zeros = SmallRound([[0] * _LANES for _ in range(3)], [1, 1, 1])
    large = SmallRound([[50 * _NORM, 0, 0, 0, *_REST]] * 3, [50, 50, 50])
    widths = widths_for()
    assert lengths(computed(widths, zeros, BUDGET)[1]) == lengths(computed(widths, large, 7)[1])


@pytest.mark.parametrize("budget", [-1, 10**9 + 1])
def test_a_budget_beyond_what_was_dealt_for_is_refused(budget: int) -> None:
    with pytest.raises(WidthBudgetExceeded, match="millionths"):
        computed(widths_for(), _equal([1, 1, 1]), budget)


def test_more_weights_than_places_are_refused() -> None:
    with pytest.raises(LengthMismatch):
        next(rules.paid(None, widths_for(3), None, [0] * 4, 10))  # type: ignore[arg-type]
