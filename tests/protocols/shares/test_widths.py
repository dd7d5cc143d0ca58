"""The widths of a task: what they promise, and what is refused."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import SettingsError, WidthBudgetExceeded
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.protocols.shares.widths import BLOCK, SharesWidths
from crowdfl.settings import TaskSettings
from tests.protocols.shares.lane_round import COINS, widths_of

_PAPER: dict[str, Any] = {
    "decimals": 6,
    "clip": 16.0,
    "max_participants": 36,
    "max_samples": 100,
    "lanes": 4096,
    "max_norm": 20.0,
}


def _paper(**settings: Any) -> SharesWidths:
    return widths_of(277_006, **{**_PAPER, **settings})


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"check": "none", "pay": "none"}, 5),
        ({"check": "none", "budget": None}, 5),
        ({}, 7),
        ({"budget": None}, 7),
        ({"max_participants": 1000, "lanes": 1024}, 8),
    ],
)
def test_the_papers_task_has_entries_of_few_bytes(settings: dict[str, Any], size: int) -> None:
    assert _paper(**settings).k == 8 * size


def test_the_papers_task_is_explained() -> None:
    text = _paper().explain()
    assert "6 rows of 682 buckets" in text
    assert "ring of 56 bits" in text
    assert "at most 20,000,264 units a sample" in text
    assert "wrapped around with chance 2^-47" in text


def test_where_everyone_counts_once_widths_have_no_factor_of_samples() -> None:
    """Nor room for rounding: devices bound their integers."""
    equal, once = _paper(weighting="equal", pay=None), _paper(max_samples=1, pay=None)
    assert (equal.max_samples, equal.norm_bound, equal.k) == (1, 20_000_000, 48)
    assert equal.K < once.K
    assert equal.sum_bound < _paper().sum_bound // 90
    assert "counts once" in equal.explain()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_norm": None, "pay": None}, r"needs `max_norm`.*--try"),
        ({"pay": "samples"}, r'pay = "samples" rests on.*set pay = "fixed" or "equal", or weighting = "samples"'),
        ({"pay": "distance"}, r'pay = "distance" rests on'),
        ({"pay": "samples", "budget": None}, 'pay = "samples"'),
    ],
)
def test_what_does_not_fit_where_everyone_counts_once_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        widths_of(weighting="equal", **settings)


def test_without_a_norm_bound_that_is_said() -> None:
    assert "no norm bound" in widths_of(max_norm=None).explain()


def test_without_checks_that_is_said_and_nothing_is_sketched() -> None:
    widths = _paper(check="none", budget=None)
    assert "checks         none" in widths.explain()
    assert (widths.lanes, widths.blocks, widths.lane_bound, widths.is_checked) == (0, [], 0, False)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5000),
    st.integers(3, 200),
    st.integers(1, 1000),
    st.integers(0, 6),
    st.floats(0.1, 50.0),
    st.one_of(st.none(), st.floats(0.1, 100.0)),
    st.sampled_from([100, 260, 1024]),
    st.sampled_from(["equal", "samples", "distance"]),
)
def test_widths_keep_what_they_promise(
    parameters: int, people: int, samples: int, decimals: int, clip: float, norm: float | None, lanes: int, pay: str
) -> None:
    given = {"max_participants": people, "max_samples": samples, "decimals": decimals, "clip": clip}
    try:
        widths = widths_of(parameters, max_norm=norm, lanes=lanes, pay=pay, **given)
    except WidthBudgetExceeded as refused:
        assume("would need" not in str(refused))
        raise
    assert widths.k % 8 == 0
    assert 8 <= widths.k <= 64
    assert 2 * widths.sum_bound < 2**widths.k
    assert widths.drop_chance <= 0.01
    assert (1 / widths.buckets + widths.drop_chance) ** widths.rows <= 2**-40
    assert widths.false_rejection <= 1e-6
    assert widths.lanes == widths.rows * widths.buckets <= lanes
    assert widths.R % 8 == 0
    assert max(136, 2 * widths.k + widths.lanes.bit_length() + 44) <= widths.R
    assert widths.has_sums == (pay == "distance")


@pytest.mark.parametrize("lanes", [100, 260, 1024])
def test_blocks_cover_all_lanes_and_none_crosses_a_row(lanes: int) -> None:
    widths = widths_of(lanes=lanes)
    assert [lane for start, end in widths.blocks for lane in range(start, end)] == list(range(widths.lanes))
    assert all(
        end - start <= BLOCK and start // widths.buckets == (end - 1) // widths.buckets for start, end in widths.blocks
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_no_honest_lane_exceeds_its_bound(seed: int) -> None:
    """The worst there is: all of the length in the fullest bucket, each entry with the bucket's sign."""
    widths = widths_of(400)
    sketch = Sketch(bytes([seed % 256]) + COINS[1:], 400, widths.rows, widths.buckets)
    buckets, signs = sketch.of(seed % widths.rows)
    fullest = np.argmax(np.bincount(buckets))
    inside = buckets == fullest
    update = np.where(inside, signs * (2000.0 / math.sqrt(inside.sum())), 0.0)
    entries = np.rint(update).astype(np.int64) * widths.max_samples
    lane = int((entries[inside] * signs[inside]).sum())
    assert 0.5 * widths.lane_bound * math.sqrt(inside.sum() / widths.load) < lane <= widths.lane_bound


def test_tau_is_six_standard_deviations_or_one_half() -> None:
    assert _paper().tau == Fraction(1, 2)
    few = widths_of(lanes=100)
    assert float(few.tau) == pytest.approx(6 * math.sqrt(2 / few.lanes), rel=1e-5)
    assert few.tau**2 >= Fraction(72, few.lanes)


def test_the_length_that_is_accepted_is_scaled_by_tau() -> None:
    widths = _paper()
    assert widths.norm_bound == 20_000_000 + math.ceil(math.sqrt(277_006) / 2)
    assert math.ceil(1.5 * widths.norm_bound**2) == widths.K


def test_no_length_is_bounded_beyond_what_the_clip_allows() -> None:
    assert widths_of(4, clip=1.0, max_norm=1000.0) == widths_of(4, clip=1.0, max_norm=2.0)
    unset = widths_of(4, clip=1.0, max_norm=None)
    assert unset.norm_bound == 2001


def test_a_cheater_may_hold_more_in_one_entry_than_the_clip_allows() -> None:
    """What passes with more than 2^-40: up to the square root of rows times what the check allows."""
    widths = widths_of(clip=0.1, max_norm=0.75)
    assert widths.sum_bound == 6 * 50 * math.ceil(math.sqrt(widths.rows * widths.K))
    assert widths_of(clip=4.0, max_norm=0.1).sum_bound == 6 * 50 * 4000


def test_more_blocks_are_lost_by_chance_with_less_than_2_to_the_minus_40() -> None:
    widths = _paper()
    tail = sum(
        Fraction(math.comb(66, lost))
        * Fraction(widths.drop_chance) ** lost
        * (1 - Fraction(widths.drop_chance)) ** (66 - lost)
        for lost in range(widths.max_dropped_blocks + 1, 67)
    )
    assert len(widths.blocks) == 66
    assert tail <= Fraction(1, 2**40)
    assert 0 < widths.max_dropped_blocks < 12


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"total": "hidden"}, 'total = "hidden"'),
        ({"lanes": None}, "exact distances"),
        ({"lanes": 0}, "no upload can be checked"),
        ({"check": "none"}, "pays nobody"),
        ({"check": "none", "pay": "distance"}, "pays nobody"),
        ({"lanes": 1 << 20}, "expected at most 65536"),
    ],
)
def test_what_the_profile_cannot_do_is_refused_by_name(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        widths_of(**settings)


@pytest.mark.parametrize("check", ["bounds", "none"])
def test_a_budget_without_a_rule_that_pays_is_refused(check: str) -> None:
    """Its rounds would stand still until SP's patience ends, with everyone's work in them."""
    task = TaskSettings.of(profile="shares", pay="none", budget="9.00", check=check)
    with pytest.raises(SettingsError, match="pays nobody: leave `budget` out"):
        SharesProfile().check(task, 8)


@pytest.mark.parametrize("settings", [{"budget": None}, {"pay": "none"}, {"pay": "none", "budget": None}])
def test_lanes_may_be_left_out_without_checks(settings: dict[str, Any]) -> None:
    assert not widths_of(lanes=0, check="none", **settings).is_checked


def test_a_task_that_64_bits_do_not_hold_is_refused_with_the_remedy() -> None:
    with pytest.raises(WidthBudgetExceeded, match=r"would need 72 bits.*: set max_norm"):
        _paper(max_norm=None, max_samples=1000)
    with pytest.raises(WidthBudgetExceeded, match="lower max_norm"):
        _paper(max_norm=8000.0, max_samples=1000)
    with pytest.raises(WidthBudgetExceeded, match="lower max_participants"):
        _paper(check="none", budget=None, max_samples=10**12)


def test_too_few_lanes_are_refused() -> None:
    with pytest.raises(WidthBudgetExceeded, match="set `lanes` to 128 or more"):
        widths_of(lanes=16)
