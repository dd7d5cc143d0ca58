"""Rounds of the profile `shares` through every role, against FedAvg in whole numbers and the rules in the clear."""

from typing import Any

import numpy as np
import pytest

from crowdfl.learning.oracle import agreement_weights, distance_weights, rewards_from, updates_of
from crowdfl.simulation.local_host import LocalFederation, Update
from tests.shares.crowd import BUDGET, SETTINGS, Crowd, along, next_model

RULES = ("gate", "agreement", "distance")


def plain_rewards(rule: str, changes: dict[str, Any], samples: dict[str, int]) -> Any:
    """What a rule pays where everybody goes the same way."""
    counts = list(samples.values())
    rows = updates_of(list(changes.values()), counts, np.zeros(len(changes["0"])))
    weights = {"gate": counts, "agreement": agreement_weights(rows), "distance": distance_weights(rows, counts)}
    return rewards_from(weights[rule], BUDGET)


def check_round(crowd: Crowd, number: int, base: list[int], changes: dict[str, Any], samples: dict[str, int]) -> Any:
    """The average to the unit, for the requester and for everyone in it; everyone's reward."""
    expected = next_model(base, changes, samples)
    assert crowd.units(number) == expected
    if number < crowd.settings.rounds:
        for who in changes:
            assert [round(x * 1000) for x in crowd.people[who].read(number).weights] == expected
    rewards = crowd.rewards(number, list(changes))
    assert BUDGET - 2 * len(changes) <= sum(rewards) <= BUDGET
    return rewards


@pytest.mark.parametrize(
    ("rule", "people"),
    [("gate", 3), *(pytest.param(rule, n, marks=pytest.mark.second) for rule in RULES for n in (3, 8))],
)
def test_sparse_updates_give_the_average_and_the_rewards_of_the_rule(rule: str, people: int):
    """One coordinate holds all; the first has one sample, all others the most there may be."""
    crowd = Crowd(people, max_participants=people, rule=rule, epsilon=1e-6)
    changes = along(5, [1.0 + (0.5 - 0.03 * i) * (-1) ** i for i in range(people)])
    samples = {who: 10 if who != "0" else 1 for who in changes}
    crowd.train(1, changes, samples)
    crowd.run()
    rewards = check_round(crowd, 1, crowd.start(), changes, samples)
    wanted = plain_rewards(rule, changes, samples)
    assert np.max(np.abs(rewards - wanted)) <= (1000 if rule == "distance" else 20)


@pytest.mark.parametrize(
    ("rule", "extreme"),
    [("gate", 2.0), *(pytest.param(rule, -2.0, marks=pytest.mark.second) for rule in RULES)],
)
def test_everyone_at_the_clip_with_every_sample_there_may_be(rule: str, extreme: float):
    """The largest sums that there are; equal updates are paid alike."""
    crowd = Crowd(
        3, max_participants=3, max_norm=None, rule=rule, rounds=2, lanes=820
    )  # an even update is near its bound
    changes, samples = {str(i): np.full(8, extreme) for i in range(3)}, {str(i): 10 for i in range(3)}
    crowd.train(1, changes, samples)
    crowd.run()
    rewards = check_round(crowd, 1, crowd.start(), changes, samples)
    assert max(rewards) - min(rewards) <= 2


def test_one_parameter_over_all_rounds_of_a_task():
    """The model goes back and forth; the last average is the requester's, who read none before and replays the chain."""
    crowd, base = Crowd(3, 1, rule="agreement"), [-1000]
    for number in (1, 2, 3):
        changes = {str(i): np.array([(-1) ** number * (0.1 + 0.2 * i)]) for i in range(3)}
        samples = {"0": 1, "1": 10, "2": 10}
        crowd.train(number, changes, samples)
        crowd.run()
        base = next_model(base, changes, samples)
    assert crowd.states == ["rewarded"] * 3
    assert crowd.units(3) == base
    assert [round(x * 1000) for x in crowd.requester.model(crowd.task)[0]] == base


def test_an_update_in_the_direction_of_the_last_sum_is_not_paid_by_the_gate():
    """All weights are zero: nothing is paid, and all of it goes back; the average is as it should be."""
    crowd, samples = Crowd(3, rounds=2), {"0": 3, "1": 4, "2": 5}
    changes = along(2, [0.5, 0.25, 0.75])
    crowd.train(1, changes, samples)
    crowd.run()
    first = check_round(crowd, 1, crowd.start(), changes, samples)
    assert np.allclose(first, [BUDGET * s / 12 for s in (3, 4, 5)], atol=6)
    crowd.train(2, changes, samples)
    crowd.run()
    assert crowd.units(2) == next_model(next_model(crowd.start(), changes, samples), changes, samples)
    assert crowd.rewards(2, list(changes)) == [0, 0, 0]
    assert [person.claim() for person in crowd.people.values()] == first
    crowd.clock.time += 1000
    crowd.run()
    assert crowd.requester.report(crowd.task)["returned"] == 2 * BUDGET + BUDGET - sum(first) - BUDGET


@pytest.mark.second
def test_the_gate_pays_who_agrees_with_the_others_in_later_rounds_too():
    """Many coordinates, so that sketches are sharp: the third goes the other way in both rounds."""
    crowd, chance = Crowd(5, 2000, lanes=820, max_norm=None, clip=0.5, rounds=2), np.random.default_rng(5)
    base, samples = crowd.start(), {str(i): 2 + i for i in range(5)}
    for number in (1, 2):
        common = chance.normal(size=2000) * 0.05
        own = {who: common + chance.normal(size=2000) * 0.02 for who in samples}
        changes = {who: np.round(-own[who] if who == "2" else own[who], 3) for who in own}
        crowd.train(number, changes, samples)
        crowd.run()
        rewards = check_round(crowd, number, base, changes, samples)
        base = next_model(base, changes, samples)
        counted = [0 if who == "2" else samples[who] for who in samples]
        assert np.allclose(rewards, rewards_from(counted, BUDGET), atol=15)


@pytest.mark.second
def test_a_large_model_is_averaged_to_the_unit():
    """277,006 parameters, as the paper's network has, with checks and rewards, in two rounds."""
    parameters = 277_006
    crowd = Crowd(3, parameters, decimals=3, clip=0.5, max_norm=20.0, lanes=820, rounds=2)
    chance, base = np.random.default_rng(7), np.array(crowd.start())
    for number in (1, 2):
        common = chance.normal(size=parameters) * 0.02
        changes = {str(i): np.round(common + chance.normal(size=parameters) * 0.01, 3) for i in range(3)}
        samples = {"0": 1, "1": 10, "2": 10}
        crowd.train(number, changes, samples)
        crowd.run()
        assert crowd.states[number - 1] == "rewarded"
        found = np.array(crowd.units(number))
        plain = base + 1000 * np.average(list(changes.values()), axis=0, weights=list(samples.values()))
        assert np.max(np.abs(found - plain)) <= 0.5 + 1e-6
        rewards = crowd.rewards(number, list(changes))
        assert np.allclose(rewards, rewards_from(list(samples.values()), BUDGET), atol=6)
        base = found


def test_a_local_federation_reads_the_last_round_as_the_requester_does():
    """With or without a word that it is the last: the publication is sealed to nobody else."""
    updates = {f"p{i}": Update([np.full(4, 0.1 * (i + 1))], i + 1) for i in range(3)}
    for said in (False, True):
        fed = LocalFederation(**(SETTINGS | {"rounds": 2, "budget": None, "max_participants": 3}))
        averages = [fed.round(updates).average[0], fed.round(updates, final=said).average[0]]
        assert np.allclose(averages, np.full((2, 4), (0.1 * 1 + 0.2 * 2 + 0.3 * 3) / 6), atol=0.001)
