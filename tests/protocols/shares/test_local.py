"""A `shares` task through all roles in one process: rounds, rewards, claims, restarts."""

from decimal import Decimal

import numpy as np
import pytest

from crowdfl.crypto.compute import Threads
from crowdfl.errors import RewardsOff, SettingsError
from crowdfl.simulation.local_host import LocalFederation, Update

SETTINGS = {"profile": "shares", "max_participants": 4, "max_samples": 10, "lanes": 128, "max_norm": 5.0, "rounds": 4}
KINDS = {"no checks": {"check": "none"}, "checks": {}, "rewards": {"budget": "9.00"}}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def federation(**settings):
    return LocalFederation(backend=Threads(1), **(SETTINGS | settings))


def updates(seed, people=4):
    """A direction that all share, and a little of each one's own."""
    rng = np.random.default_rng(seed)
    common = [0.3 * rng.normal(size=(3, 4)), 0.3 * rng.normal(size=4)]
    return {
        f"p{i}": Update([array + 0.05 * rng.normal(size=array.shape) for array in common], samples=i + 2)
        for i in range(people)
    }


def fedavg(trained):
    total = sum(update.samples for update in trained.values())
    pairs = [[update.samples * array for array in update.weights] for update in trained.values()]
    return [sum(arrays) / total for arrays in zip(*pairs, strict=True)]


def check_average(result, trained):
    for got, wanted in zip(result.average, fedavg(trained), strict=True):
        assert np.abs(got - wanted).max() <= 1e-6
    assert result.total == sum(update.samples for update in trained.values())


@every_kind
def test_rounds_with_every_process_restarted_between_them(kind):
    fed = federation(**kind)
    for number in (1, 2, 3, 4):
        trained = updates(number)
        check_average(fed.round(trained, final=number == 4), trained)
        fed.host.restart()


def test_rewards_are_paid_out_as_claimed():
    """By samples, since all go the same way; the sum is the budget, but for rounding."""
    fed = federation(budget="9.00", lanes=1024)
    rewards = fed.round(updates(1)).rewards
    assert Decimal(9) - Decimal("0.000008") <= sum(rewards.values()) <= Decimal(9)
    assert rewards["p3"] > rewards["p0"] > 0
    assert {who: fed.claim(who) for who in rewards} == rewards


def test_a_task_without_a_budget_pays_nobody():
    with pytest.raises((RewardsOff, SettingsError)):
        federation().round(updates(1), budget="9.00")


def test_dropouts_cost_nothing():
    fed = federation(budget="9.00")
    check_average(fed.round(updates(1)), updates(1))
    fewer = {who: update for who, update in updates(2).items() if who != "p1"}
    check_average(fed.round(fewer), fewer)
