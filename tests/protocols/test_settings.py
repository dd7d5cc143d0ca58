"""Settings: each bad one has an error with a name, and nothing is encrypted before all is in order."""

import re
from decimal import Decimal

import numpy as np
import pytest
from pydantic import ValidationError

from crowdfl.crypto.paillier import pctd
from crowdfl.errors import (
    CrowdFLError,
    InsecureKeyRefused,
    ModelMismatch,
    NotFinite,
    NothingToAverage,
    NothingToContribute,
    RewardsOff,
    RoundEnded,
    SettingsError,
    SlotOverflow,
    TooFewParticipants,
    WidthBudgetExceeded,
)
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.registry import PROFILES, profile_named
from crowdfl.settings import UNTIL_PUBLISHED, TaskSettings, from_millionths, to_millionths
from crowdfl.simulation.federation import LocalFederation
from tests.protocols.driving import converse, deal, empty_uploads, federation, updates

NAN, INF = float("nan"), float("inf")


BAD = {
    "total": ["secret", None],
    "max_participants": [0, 2, 3.0],
    "max_samples": [0, -5],
    "rounds": [0, 1.5, True],
    "key_bits": [0, "2048", 2047],
    "min_participants": [2, 37, 3.5, "3"],
    "lanes": [-1, 1.5, "all"],
    "mask_bits": [19, 257, 40.5, "40"],
    "window": [0, -1, NAN, "1h"],
    "late": [-1, NAN],
    "distance_floor": [0.0, -1.0, 1e-13, NAN, INF, "small"],
    "budget": ["a lot", 36.0, "-1"],
    "decimals": [-1, 13, 2.5, "6"],
    "clip": [0.0, -16.0, NAN, INF, 1e12, "16"],
    "pay": ["best"],
    "check": [True, "all"],
    "max_norm": [0, "5"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_setting_is_refused_by_name(name, value):
    """With what was given and what is expected; what the encoding would refuse, the settings refuse first."""
    given = re.escape(repr(value).replace("True", "true"))
    with pytest.raises(SettingsError, match=rf"^`{name}` is {given}.*; expected "):
        TaskSettings(profile="shares", **{name: value})


def test_unknown_settings_are_named():
    with pytest.raises(SettingsError, match=r"unknown setting `hue`, `speed`; .*max_samples"):
        LocalFederation(speed=1, hue="red")


def test_an_unknown_profile_is_refused():
    with pytest.raises(SettingsError, match="hardened or paper or shares, not 'fast'"):
        LocalFederation(profile="fast")


def test_the_paper_has_no_hidden_total():
    with pytest.raises(SettingsError, match="total"):
        profile_named("paper").check(TaskSettings(profile="paper", total="hidden"), 10)


@pytest.mark.parametrize("profile", ["shares", "hardened", "paper"])
def test_an_average_is_made_again_in_the_paper_alone(profile):
    """Two averages that differ by one person show that person to a server that reads none of them."""
    if profile == "paper":
        read = TaskSettings.parse({"late": UNTIL_PUBLISHED}, "task", profile="paper")
        assert (read.late, read.grace) == (UNTIL_PUBLISHED, read.window)
        return
    with pytest.raises(SettingsError, match='`late` is "until published", which is of the profile paper'):
        TaskSettings(profile=profile, late=UNTIL_PUBLISHED)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("pay", "equal", 'pay = "equal"'),
        ("pay", "none", 'pay = "none"'),
        ("pay", "samples", 'pay = "samples"'),
        ("check", "none", 'check = "none"'),
        ("max_norm", 2.5, "max_norm = 2.5"),
    ],
)
def test_what_only_the_profile_shares_has_is_refused_by_the_others(profile, setting, value, named):
    """Else it would be ignored; what they do anyway may be said."""
    profile_named(profile).check(TaskSettings(profile=profile, pay="distance"), 10)
    with pytest.raises(SettingsError, match=f"the profile {profile} has no {named}"):
        profile_named(profile).check(TaskSettings(profile=profile, **{setting: value}), 10)


def test_defaults_are_those_of_the_design():
    """L = 6, C = 16, 2048 bits, 1,024 lanes, total shown, three participants at least."""
    task = TaskSettings()
    assert (task.profile, task.total, task.decimals, task.clip, task.lanes) == ("shares", "shown", 6, 16.0, 1024)
    assert (task.key_bits, task.min_participants, task.floor_units) == (2048, 3, 10**6)


def test_settings_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        TaskSettings().clip = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(("floor", "units"), [(None, 10**6), (1e-6, 10**6), (1e-12, 1), (0.5, 5 * 10**11)])
def test_the_floor_is_counted_at_the_scale_of_squared_distances(floor, units):
    """10^2L; the paper's value is 10^-L."""
    assert TaskSettings(distance_floor=floor).floor_units == units


@pytest.mark.parametrize(
    ("text", "millionths"),
    [("36.00", 36_000_000), ("0.000001", 1), ("0", 0), (7, 7_000_000), (Decimal("1.5"), 1_500_000), ("1e3", 10**9)],
)
def test_money_is_counted_in_millionths(text, millionths):
    """Text, Decimals and whole numbers; and back without loss."""
    assert to_millionths(text) == millionths
    assert to_millionths(from_millionths(millionths)) == millionths


@pytest.mark.parametrize("amount", [36.0, 0.1, True, None, b"36", [36]])
def test_money_of_another_type_is_refused(amount):
    with pytest.raises(SettingsError, match="money is given as text"):
        to_millionths(amount)


@pytest.mark.parametrize(
    "amount",
    [
        *("0.0000001", "1.2345678", "-1", "-0.000001", "1000000000.000001", "inf", "nan", "sNaN", "", "ten", "1,5"),
        *("0x10", "1.0000000000000000000000000000000001", "1e999999"),
    ],
)
def test_amounts_that_are_none_are_refused(amount):
    with pytest.raises(SettingsError):
        to_millionths(amount)


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({"key_bits": 64}, r"slot needs \d+ bits and \|N\| = 64"),
        ({"key_bits": 1024, "lanes": None, "max_samples": 10**9, "decimals": 0}, r"2\^\d+\.\.2\^-?\d+ in \|N\| = 1024"),
        ({"max_samples": 10**12, "lanes": 0}, r"reaches \d+, \d+ bits of 63"),
        ({"profile": "paper", "key_bits": 256}, r"needs a key of \d+ bits; this one has 256"),
        ({"profile": "paper", "mask_bits": 20}, r"weights of \d+ bits are not covered by masks of 20"),
        ({"total": "hidden", "lanes": 0, "key_bits": 384}, r"\|N\| = 384"),
    ],
)
def test_a_task_that_could_overflow_is_refused_with_the_numbers(settings, numbers):
    task = TaskSettings(**{"profile": "hardened"} | settings)
    with pytest.raises(WidthBudgetExceeded, match=numbers):
        profile_named(task.profile).check(task, 277_006)


def test_the_papers_experiment_fits_a_real_key():
    """277,006 parameters, 36 participants, five rounds, both profiles' defaults."""
    for profile in map(profile_named, PROFILES):
        profile.check(TaskSettings(profile=profile.name), 277_006)


def test_the_paper_refuses_factors_that_its_key_cannot_hold():
    """SMUL opens x' * y', of twice the mask's width; it must be refused at creation, not in the middle of a round."""
    bounds = {"max_participants": 3, "max_samples": 2, "decimals": 1, "clip": 1.0, "mask_bits": 256, "lanes": None}
    with pytest.raises(WidthBudgetExceeded):
        profile_named("paper").check(TaskSettings(profile="paper", key_bits=520, **bounds), 1)


def test_the_papers_average_is_right_or_refused_for_a_large_clip():
    """alpha * y > |x| keeps the masked dividend positive; with clip 10^6 and mask_bits 20 it does not."""
    fed = federation(profile="paper", decimals=0, clip=1e6, mask_bits=20)
    try:
        average = fed.round(updates([[-1e6]] * 3, [1, 1, 1])).average[0]
    except WidthBudgetExceeded:
        return
    assert average.tolist() == [-1e6]


def test_short_keys_are_refused_unless_asked_for():
    """And then only by the flag's own name."""
    with pytest.raises(InsecureKeyRefused, match="insecure_test_key"):
        LocalFederation(profile="hardened", key_bits=512, lanes=0).round(updates([[1.0]] * 3, [1] * 3))


@pytest.fixture
def no_keys(monkeypatch):
    """Fails the test if a key is made."""

    def forbidden(*args, **kwargs):
        raise AssertionError("a key was made")

    monkeypatch.setattr(pctd, "keygen", forbidden)


@pytest.mark.usefixtures("no_keys")
def test_a_task_is_checked_before_its_keys_are_made():
    """Making a 2048-bit key to throw it away would be a waste."""
    with pytest.raises(WidthBudgetExceeded):
        federation(key_bits=32).round(updates([[1.0]] * 3, [1] * 3))


def test_shapes_are_learnt_then_enforced_by_name():
    fed = federation()
    good = Update([np.zeros((2, 3)), np.zeros(3)], 1)
    result = fed.round({"p0": good, "p1": good, "p2": good})
    assert [array.shape for array in result.average] == [(2, 3), (3,)]
    for weights, message in (
        ([np.zeros((3, 2)), np.zeros(3)], r"p1.*'array 0' has the shape \(3, 2\), the model's has \(2, 3\)"),
        ([np.zeros((2, 3)), np.zeros(4)], r"p1.*'array 1' has the shape \(4,\), the model's has \(3,\)"),
        ([np.zeros((2, 3))], "the model has 2 arrays, not 1"),
        ([np.zeros((2, 3)), np.zeros(3), np.zeros(1)], "the model has 2 arrays, not 3"),
    ):
        with pytest.raises(ModelMismatch, match=message):
            fed.round({"p0": good, "p1": Update(weights, 1), "p2": good})


def test_a_refused_update_costs_no_round():
    fed = federation(rounds=1)
    with pytest.raises(NotFinite):
        fed.round(updates([[0.0], [NAN], [0.0]], [1] * 3))
    fed.round(updates([[0.0]] * 3, [1] * 3))


@pytest.mark.parametrize("profile", ["hardened", "paper"])
@pytest.mark.parametrize("samples", [-1, 101, 10**30])
def test_samples_outside_the_task_are_refused(profile, samples):
    """More than the width budget was computed for, or fewer than none."""
    with pytest.raises(SlotOverflow, match="samples"):
        federation(profile=profile).round(updates([[0.0]] * 3, [1, 1, samples]))


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_samples_are_whole_numbers(profile):
    with pytest.raises(CrowdFLError):
        federation(profile=profile).round(updates([[1.0]] * 3, [3.5, 3.5, 3.5]))


def test_weights_beyond_the_clip_are_clipped_and_counted():
    result = federation(clip=2.0).round(updates([[1.0, 5.0, -5.0], [2.0, 2.0, -2.0], [0.0] * 3], [1] * 3))
    assert result.clipped == {"p0": 2, "p1": 0, "p2": 0}
    assert result.average[0] == pytest.approx([1.0, 4 / 3, -4 / 3])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_participants_are_refused(count):
    for profile in PROFILES:
        with pytest.raises(TooFewParticipants):
            federation(profile=profile).round(updates([[1.0]] * count, [1] * count))


@pytest.mark.parametrize("profile", ["hardened", "paper"])
@pytest.mark.parametrize("none", [0, np.int64(0), False])
def test_repro_no_upload_without_samples_leaves_a_phone(profile, none):
    """Two empty ones would make a third one's model the average. Nobody else loses the round by it."""
    fed = federation(profile=profile, max_participants=4)
    with pytest.raises(NothingToContribute, match="stay out of this round, come back with data"):
        fed.round(updates([[1.0]] * 3, [7, 1, none]))
    assert fed.round(updates([[1.0]] * 3, [7, 1, 1])).average[0].tolist() == [1.0]


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_nobody_with_a_sample_is_nothing_to_average(profile):
    """All present, all idle, all phones altered."""
    with empty_uploads(), pytest.raises(NothingToAverage):
        federation(profile=profile).round(updates([[1.0]] * 3, [0] * 3))


def test_nobody_with_a_sample_makes_a_round_void_with_the_total_hidden():
    """Where readers cannot see the total, CSP ends the round, and does not say why."""
    sides = deal(3, 1, total="hidden", key_bits=640)
    with empty_uploads():
        for who in sides.people:
            sides.sp.add_all({who: sides.upload([1.0], 0, who)})
    with pytest.raises(RoundEnded, match="void"):
        converse(sides.sp.publish(final=False), sides.csp.answer)


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_a_federation_without_lanes_pays_no_rewards(profile):
    fed = federation(profile=profile)
    with pytest.raises(RewardsOff, match="lanes=0"):
        fed.round(updates([[1.0]] * 3, [1] * 3), budget="36")
    assert fed.round_number == 0


@pytest.mark.parametrize("budget", [36.0, "a lot", "0"])
def test_a_bad_budget_is_refused_before_the_round_begins(budget):
    fed = federation(lanes=None, key_bits=1024)
    with pytest.raises(SettingsError):
        fed.round(updates([[1.0]] * 3, [1] * 3), budget=budget)
    assert fed.round_number == 0


@pytest.mark.parametrize("name", ["clip", "window", "late", "distance_floor"])
@pytest.mark.parametrize("value", [10**400, 2**64, 1e308, float("inf"), float("nan"), -1, True, "1"])
def test_a_number_beyond_all_use_is_refused_by_name(name, value):
    """Found by searching: an integer that no float holds, and one that NumPy takes for an object."""
    with pytest.raises(
        SettingsError,
        match=rf"^`{name}` is .*; expected a (number|length of time, .*), (above|at least) 0 and at most 10\^15",
    ):
        TaskSettings.of(**{name: value})


@pytest.mark.parametrize(
    "settings", [{"decimals": 1000, "distance_floor": 1.0}, {"rounds": 10**16}, {"max_samples": 10**400}]
)
def test_whole_numbers_too(settings):
    with pytest.raises(CrowdFLError):
        TaskSettings.of(**settings)
