"""Rounds of the profile `shares` through every role, against FedAvg in whole numbers and the rules in the clear."""

from typing import Any

import numpy as np
import pytest

from crowdfl.learning.models.learner import Update
from crowdfl.learning.oracle import count_weights, distance_weights, equal_weights, rewards_from, updates_of
from crowdfl.simulation.federation import LocalFederation
from tests.shares.crowd import BUDGET, SETTINGS, Crowd, along, next_model

RULES = ("equal", "samples", "distance")


def plain_rewards(rule: str, changes: dict[str, Any], samples: dict[str, int]) -> Any:
    counts = list(samples.values())
    rows = updates_of(list(changes.values()), counts, np.zeros(len(changes["0"])))
    weights = {"equal": equal_weights(len(rows)), "samples": count_weights(counts)}
    weights["distance"] = distance_weights(rows, counts)
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
    [("equal", 3), ("samples", 3), pytest.param("distance", 8, marks=pytest.mark.second)],
)
def test_sparse_updates_give_the_average_and_the_rewards_of_the_rule(rule: str, people: int):
    """One coordinate holds all; the first has one sample, all others the most there may be."""
    crowd = Crowd(people, max_participants=people, pay=rule, distance_floor=1e-6)
    changes = along(5, [1.0 + (0.5 - 0.03 * i) * (-1) ** i for i in range(people)])
    samples = {who: 10 if who != "0" else 1 for who in changes}
    crowd.train(1, changes, samples)
    crowd.run()
    rewards = check_round(crowd, 1, crowd.start(), changes, samples)
    wanted = plain_rewards(rule, changes, samples)
    assert np.max(np.abs(rewards - wanted)) <= (1000 if rule == "distance" else 20)


@pytest.mark.parametrize(
    ("rule", "extreme"),
    [("equal", 2.0), *(pytest.param(rule, -2.0, marks=pytest.mark.second) for rule in RULES)],
)
def test_everyone_at_the_clip_with_every_sample_there_may_be(rule: str, extreme: float):
    """The largest sums that there are; equal updates are paid alike."""
    crowd = Crowd(
        3, max_participants=3, max_norm=None, pay=rule, rounds=2, lanes=820
    )  # an even update is near its bound
    changes, samples = {str(i): np.full(8, extreme) for i in range(3)}, {str(i): 10 for i in range(3)}
    crowd.train(1, changes, samples)
    crowd.run()
    rewards = check_round(crowd, 1, crowd.start(), changes, samples)
    assert max(rewards) - min(rewards) <= 2


def test_one_parameter_over_all_rounds_of_a_task():
    """The model goes back and forth; the last average is the requester's, who read none before and replays the chain."""
    crowd, base = Crowd(3, 1, pay="samples"), [-1000]
    for number in (1, 2, 3):
        changes = {str(i): np.array([(-1) ** number * (0.1 + 0.2 * i)]) for i in range(3)}
        samples = {"0": 1, "1": 10, "2": 10}
        crowd.train(number, changes, samples)
        crowd.run()
        base = next_model(base, changes, samples)
    assert crowd.states == ["rewarded"] * 3
    assert crowd.units(3) == base
    assert [round(x * 1000) for x in crowd.requester.model(crowd.task)[0]] == base


def test_equal_parts_are_rounded_down_and_the_rest_goes_back():
    crowd, samples = Crowd(3, rounds=2, budget="0.000100"), {"0": 1, "1": 10, "2": 10}
    changes = along(2, [0.5, 0.25, 0.75])
    for number in (1, 2):
        crowd.train(number, changes, samples)
        crowd.run()
        assert crowd.rewards(number, list(changes)) == [33, 33, 33]
    assert [person.claim() for person in crowd.people.values()] == [66, 66, 66]
    crowd.clock.time += 1000
    crowd.run()
    assert crowd.requester.report(crowd.task)["returned"] == 2 * BUDGET - 6 * 33  # it was funded with more


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
        assert rewards == [BUDGET // 3] * 3
        base = found


def test_a_local_federation_reads_the_last_round_as_the_requester_does():
    """With or without a word that it is the last: the publication is sealed to nobody else."""
    updates = {f"p{i}": Update([np.full(4, 0.1 * (i + 1))], i + 1) for i in range(3)}
    for said in (False, True):
        fed = LocalFederation(**(SETTINGS | {"rounds": 2, "budget": None, "max_participants": 3}))
        averages = [fed.round(updates).average[0], fed.round(updates, final=said).average[0]]
        assert np.allclose(averages, np.full((2, 4), (0.1 * 1 + 0.2 * 2 + 0.3 * 3) / 6), atol=0.001)


def test_a_round_that_is_given_up_changes_nothing_and_the_next_starts_from_the_same_model():
    """Once because too many cheat, once because too few come; nobody is paid for either."""
    crowd, samples = Crowd(4, rounds=4), {"0": 3, "1": 4, "2": 5, "3": 6}
    noise = [10**6] * 8  # units: two hundred times what the norm bound allows
    changes = along(3, [0.5, 0.25, 0.75, 1.0])
    crowd.train(1, changes, samples)
    crowd.run()
    base = next_model(crowd.start(), changes, samples)
    crowd.train(2, along(5, [0.5, 0.25]), samples)
    for who in ("2", "3"):
        crowd.cheat(who, 2, noise, 5)
        crowd.people[who]._stop = lambda *_: None  # type: ignore[method-assign]  # as an altered phone
    crowd.run()
    assert crowd.states[1] == "aborted"
    crowd.train(3, along(5, [0.5]), samples)
    for _ in range(3):
        crowd.everyone_came()
    assert crowd.states[:3] == ["rewarded", "aborted", "aborted"]
    changes = along(6, [0.5, 0.25, 0.75, 1.0])
    crowd.train(4, changes, samples)
    crowd.run()
    assert crowd.units(4) == next_model(base, changes, samples)
    assert crowd.rewards(4, list(samples)) == [BUDGET // len(samples)] * len(samples)
