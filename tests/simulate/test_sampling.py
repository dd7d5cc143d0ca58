"""Client sampling in a simulation: who is drawn, and that only those are averaged, paid and missed."""

from collections import Counter

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import SettingsError
from tests.simulate.lines import START, evaluate, fit, people, train

MANY = people(12)


def run(train=train, **given):
    usual = {"rounds": 4, "initial": START, "progress": False, "lanes": 128}
    return crowdfl.simulate(train, evaluate, MANY, **usual | given)


def test_a_round_is_the_average_of_those_who_were_drawn():
    """Each round has others; nobody else trains; everyone reads the average."""
    trained = Counter()

    def counted(model, own, info):
        trained[info.round] += 1
        return train(model, own)

    result = run(counted, per_round=5)
    model = np.append(*START)
    for round_ in result.history:
        assert round_.participants == round_.sampled
        assert len(round_.sampled) == 5
        assert round_.dropped == ()
        updates = [np.append(*fit(model[:3], model[3], MANY[name])) for name in round_.sampled]
        model = np.average(updates, axis=0, weights=[len(MANY[name][1]) for name in round_.sampled])
    assert np.append(*result.model) == pytest.approx(model, abs=2e-7)
    assert len({round_.sampled for round_ in result.history}) > 1
    assert trained == dict.fromkeys(range(1, 5), 5)
    assert "sampled" in str(result)


def test_a_fraction_says_how_many_and_the_seed_says_who():
    first, again, other = (run(fraction=0.3, rounds=2, seed=seed) for seed in (0, 0, 1))
    drawn = [[one.sampled for one in result.history] for result in (first, again, other)]
    assert first.settings.per_round == 4
    assert drawn[0] == drawn[1] != drawn[2]


def test_dropouts_are_those_who_were_drawn_and_stayed_away_and_the_rest_is_paid():
    result = run(per_round=6, dropouts={"p0": [1, 2, 3, 4], "p1": [1, 2, 3, 4]}, budget="6.00", pay="equal")
    for round_ in result.history:
        away = {"p0", "p1"} & set(round_.sampled)
        assert set(round_.dropped) == away
        assert set(round_.participants) == set(round_.rewards) == set(round_.sampled) - away
    assert any(round_.dropped for round_ in result.history)


@pytest.mark.parametrize(
    "wrong",
    [{"per_round": 13}, {"per_round": 2}, {"fraction": 0}, {"fraction": 1.5}, {"fraction": 0.5, "per_round": 4}],
)
def test_a_draw_that_cannot_be_is_refused_by_name(wrong):
    with pytest.raises(SettingsError, match=r"per_round|fraction"):
        run(**wrong)
