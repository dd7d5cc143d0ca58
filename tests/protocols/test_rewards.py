"""Rewards, against Eq. 10 in the clear. Exact distances here; sketched ones in test_sketch.py."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdfl.crypto.encoding import FixedPoint
from crowdfl.errors import SettingsError
from crowdfl.learning import oracle
from crowdfl.learning.oracle import fedavg
from tests.protocols.driving import SMALL, SMALL_PAPER, empty_uploads, federation, updates

MILLIONTH = 1e-6
PROFILES = {"hardened": SMALL, "paper": SMALL_PAPER}
every_profile = pytest.mark.parametrize("profile", PROFILES)
_made = {}


def make(profile, parameters, **more):
    key = (profile, parameters, tuple(sorted(more.items())))
    if key not in _made:
        _made[key] = federation(**(PROFILES[profile] | more))
    return _made[key]


def pay(profile, models, samples, budget, **more):
    """The rewards that a round pays, in the order of the models."""
    models = np.asarray(models, dtype=np.float64)
    result = make(profile, models.shape[1], **more).round(updates(models, samples), budget=budget)
    assert result.rewards is not None
    return [result.rewards[f"p{i}"] for i in range(len(models))]


def expected(profile, models, samples, budget, **more):
    task = make(profile, len(models[0]), **more).settings
    encoding = FixedPoint(task.decimals, task.clip, "floor" if profile == "paper" else "nearest")
    encoded = [encoding.encode(model).values / encoding.scale for model in models]
    epsilon = 10.0**-task.decimals if task.distance_floor is None else task.distance_floor
    return oracle.rewards(encoded, samples, float(budget), epsilon)


def check(profile, models, samples, budget="36", **more):
    """Within 0.1% or 2 millionths of Eq. 10, and what every payment must satisfy."""
    paid = pay(profile, models, samples, budget, **more)
    wanted = expected(profile, models, samples, budget, **more)
    off = np.abs([float(amount) for amount in paid] - wanted)
    assert (off <= np.maximum(1e-3 * wanted, 2 * MILLIONTH) + 1e-12).all(), (paid, wanted)
    check_sum(paid, budget)
    return paid


def check_sum(paid, budget):
    """Nobody owes; the sum never exceeds the budget and is short of it by at most 2n millionths."""
    assert min(paid) >= 0
    assert 0 <= Decimal(budget) - sum(paid) <= Decimal(2 * len(paid)) / 10**6


six_decimals = pytest.mark.parametrize(
    ("profile", "more"),
    [("hardened", {"decimals": 6, "key_bits": 1152}), ("paper", {"decimals": 6})],
    ids=["hardened", "paper"],
)


@six_decimals
@pytest.mark.parametrize("seed", range(3))
def test_rewards_are_those_of_equation_10(profile, more, seed):
    """Random models about a common one, unequal samples, six decimals."""
    rng = np.random.default_rng(seed)
    models = rng.normal(size=4) + rng.normal(size=(5, 4)) * 0.2
    check(profile, models, rng.integers(1, 11, size=5).tolist(), **more)


@six_decimals
def test_no_samples_earn_nothing_and_disturb_nobody(profile, more):
    """Exactly zero for the idler, and for the others what they get without it (the paper's six decimals of w apart)."""
    models, samples = [[0.5, 0.1], [0.4, 0.0], [-0.25, 0.3], [1.9, -1.9]], [2, 9, 5, 0]
    with empty_uploads():
        paid = check(profile, models, samples, **more)
    assert paid[3] == 0
    alone = pay(profile, models[:3], samples[:3], "36", **more)
    slack = Decimal("0.000002") if profile == "hardened" else Decimal("0.00005")
    assert max(abs(a - b) for a, b in zip(paid[:3], alone, strict=True)) <= slack


@six_decimals
@pytest.mark.parametrize("model", [[0.0, 0.0], [1.234567, -1.9]], ids=["zeros", "not zeros"])
def test_identical_models_split_by_samples(profile, more, model):
    paid = check(profile, [model] * 4, [1, 2, 3, 4], "10", **more)
    assert [round(amount, 4) for amount in paid] == [1, 2, 3, 4]


def test_the_floor_of_distances_is_a_setting():
    """A large floor makes everyone's closeness alike."""
    paid = check("hardened", [[0.1], [0.2], [0.9]], [1, 1, 2], "4", distance_floor=1000.0, key_bits=1088)
    assert [round(amount, 2) for amount in paid] == [1, 1, 2]


def test_rewards_with_the_total_hidden():
    """The hidden total changes what readers see of the average, not what is paid."""
    check("hardened", [[0.1, 0.3], [0.2, 0.3], [0.9, -0.3]], [1, 1, 2], total="hidden")


_models = st.lists(st.lists(st.floats(-2, 2), min_size=2, max_size=2), min_size=3, max_size=5)
_budgets = st.sampled_from(["0.000001", "0.000007", "0.01", "1", "36"]) | st.decimals("0.000001", 1000, places=6)


@every_profile
@settings(max_examples=12)
@given(models=_models, data=st.data(), budget=_budgets)
@pytest.mark.second
def test_the_budget_is_kept_and_nearly_spent(profile, models, data, budget):
    """Any models and samples, budgets from one millionth up."""
    counts = st.lists(st.integers(0, 10), min_size=len(models), max_size=len(models)).filter(any)
    samples = data.draw(counts)
    with empty_uploads():
        paid = pay(profile, models, samples, str(budget), **({"decimals": 6} if profile == "paper" else {}))
    check_sum(paid, str(budget))
    assert all(amount == 0 for amount, count in zip(paid, samples, strict=True) if count == 0)


@pytest.mark.second
@pytest.mark.parametrize("budget", ["0.000001", "36"])
def test_the_budget_is_kept_by_as_many_as_the_task_allows(budget):
    """n = n_max = 36, and one millionth for all of them together."""
    rng = np.random.default_rng(3)
    models = rng.normal(size=(36, 1)) * 0.3
    more = {"max_participants": 36, "key_bits": 1088, "decimals": 2}
    check_sum(pay("hardened", models, rng.integers(1, 11, size=36).tolist(), budget, **more), budget)


def test_a_large_budget_is_nearly_spent_when_models_are_far_apart():
    """The largest payment, participants at opposite clips: the smallest weights there can be."""
    with empty_uploads():
        paid = pay("hardened", [[2.0], [-2.0], [2.0]], [1, 1, 0], "1000000", max_samples=1, max_participants=3)
    check_sum(paid, "1000000")
    assert paid[2] == 0


def test_the_papers_weights_keep_six_decimals_and_no_more():
    """Alg. 4 floors w_i at 10^L: a share of 1/16,501 is paid to within one unit of its weight, not to 0.1%."""
    models, samples, more = [[1.0], [-1.0], [1.0]], [1, 6500, 10_000], {"decimals": 6, "max_samples": 10_000}
    paid = pay("paper", models, samples, "1000", **more)
    wanted = expected("paper", models, samples, "1000", **more)
    d = oracle.distances(models, fedavg(models, samples))
    unit = MILLIONTH / oracle.weights(d, samples, MILLIONTH)
    off = np.abs([float(amount) for amount in paid] - wanted)
    assert (off <= wanted * (unit + 1e-5) + 2 * MILLIONTH).all()
    assert off[0] > 1e-3 * wanted[0]
    check_sum(paid, "1000")


@pytest.mark.parametrize("budget", ["0", "1000000.000001"])
def test_budgets_that_no_round_pays_are_refused(budget):
    """Nothing, or more than the widths were computed for."""
    with pytest.raises(SettingsError):
        pay("hardened", [[0.1], [0.2], [0.3]], [1, 1, 1], budget)
