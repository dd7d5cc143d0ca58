"""Dropouts of a simulation: people whose link is away, in the rounds that were asked for, and what the rounds make of it."""

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import NothingToAverage, SettingsError
from crowdfl.simulation.dropouts import away_in
from tests.simulate.lines import START, evaluate, people, plain, train

PEOPLE = people(5)


def run(**given):
    usual = {"rounds": 3, "initial": START, "progress": False, "lanes": 128}
    return crowdfl.simulate(train, evaluate, PEOPLE, **usual | given)


def test_who_is_away_is_not_in_the_average_and_comes_back():
    """And is not asked to train; it reads the average that it missed."""
    away = {1: ["p0"], 2: ["p1", "p3"]}
    result = run(dropouts={"p0": 1, "p1": [2], "p3": {2}})
    assert [round_.dropped for round_ in result.history] == [("p0",), ("p1", "p3"), ()]
    assert [len(round_.participants) for round_ in result.history] == [4, 3, 5]
    assert np.append(*result.model) == pytest.approx(plain(PEOPLE, 3, away)[-1], abs=2e-6)


@pytest.mark.parametrize("rounds", [1, 2])
def test_late_updates_are_taken_where_the_task_says_so(rounds):
    result = run(rounds=rounds, dropouts=lambda number, who: who == "p2", late="10 min", budget="5.00")
    assert [round_.late for round_ in result.history] == [("p2",)] * rounds
    assert [round_.dropped for round_ in result.history] == [()] * rounds
    assert np.append(*result.model) == pytest.approx(plain(PEOPLE, rounds)[-1], abs=2e-6)


@pytest.mark.second
def test_a_share_is_drawn_anew_in_each_round_and_repeats_itself():
    first, again, other = (run(dropouts=0.4, seed=seed) for seed in (3, 3, 4))
    drawn = [[round_.dropped for round_ in result.history] for result in (first, again, other)]
    assert all(len(dropped) == 2 for dropped in drawn[0])
    assert len(set(drawn[0])) > 1
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_round_with_too_few_is_given_up_and_the_next_goes_on():
    """From the model of the round before; its history says so."""
    away = {2: ["p0", "p1", "p2"]}
    result = run(dropouts=dict.fromkeys(away[2], 2))
    assert [round_.is_averaged for round_ in result.history] == [True, False, True]
    assert result.history[1].participants == ()
    assert result.notes == ("round 2 was given up: too few took part",)
    first = plain(PEOPLE, 1)[-1]
    assert np.append(*result.model) == pytest.approx(plain(PEOPLE, 2)[-1], abs=2e-6)
    assert first != pytest.approx(np.append(*result.model), abs=1e-3)


@pytest.mark.second
@pytest.mark.parametrize("profile", ["shares", "hardened"])
def test_where_the_last_round_is_given_up_the_model_is_the_one_before(profile):
    """Of a profile whose earlier averages only participants read, too."""
    small = {"key_bits": 768, "decimals": 4, "insecure_test_key": True, "lanes": 0}
    result = run(
        rounds=2, dropouts=lambda number, _who: number == 2, profile=profile, **small if profile == "hardened" else {}
    )
    assert np.append(*result.model) == pytest.approx(plain(PEOPLE, 1)[-1], abs=3e-4)
    assert "loss" in result.history[0].metrics
    assert result.history[1].metrics == {}


def test_rounds_that_all_find_too_few_leave_nothing():
    with pytest.raises(NothingToAverage, match="lower `dropouts`"):
        run(rounds=1, dropouts=lambda _number, _who: True)


@pytest.mark.parametrize(
    ("dropouts", "named"),
    [
        (1.0, "a share from 0 to less than 1"),
        (-0.1, "a share"),
        (True, "a share"),
        ("p0", "a share"),
        (["p0"], r'such as \{"ada": \[2, 3\]\}'),
        (lambda number: ["p0"], r"function of \(number\); expected one of \(round, name\)"),
        (lambda person, number: person == "p0", "in this order"),  # else nobody would be away
        ({"zoe": 1}, "'zoe'"),
        ({"p0": [1, 4]}, "round 4 of p0; the rounds are 1 to 3"),
        ({"p0": [1.5]}, "expected the number of a round"),
        ({"p0": "1"}, "expected the number of a round"),
        ({"p0": None}, "expected the number of a round"),
    ],
)
def test_dropouts_that_cannot_be_are_named(dropouts, named):
    with pytest.raises(SettingsError, match=named):
        away_in(dropouts, list(PEOPLE), 3, 0)
