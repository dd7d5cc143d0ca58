"""A rule of one's own, in the clear: as the servers do it where it is theirs, and marked as not private."""

from decimal import Decimal

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import LearningError, SettingsError
from crowdfl.simulation.clear import equal, fedavg
from tests.simulate.lines import START, evaluate, people, train

MANY = people(6)
USUAL = {"rounds": 3, "initial": START, "progress": False}


def run(rule, data=MANY, train=train, **given):
    return crowdfl.simulate(train, evaluate, data, in_the_clear=rule, **USUAL | given)


def flat(result):
    return np.append(*result.model)


@pytest.mark.parametrize(
    ("rule", "task"), [(fedavg, {}), (equal(0.4), {"weighting": "equal", "max_norm": 0.4, "clip": 1.0})]
)
def test_the_rules_to_compare_with_are_what_the_servers_do(rule, task):
    """The same people drawn, the same away, the same metrics."""
    given = {"per_round": 5, "dropouts": {"p1": [2]}}
    clear, served = run(rule, **given), crowdfl.simulate(train, evaluate, MANY, lanes=128, **USUAL, **given, **task)
    assert flat(clear) == pytest.approx(flat(served), abs=1e-6)
    for one, other in zip(clear.history, served.history, strict=True):
        assert (one.participants, one.sampled, one.dropped) == (other.participants, other.sampled, other.dropped)
        assert one.metrics == pytest.approx(other.metrics, abs=1e-5)


def test_a_rule_bears_what_averaging_does_not():
    def poisoned(model, data, info):
        trained = train(model, data)
        return [-50 * array for array in trained] if info.person == "p0" else trained

    def median(updates, start, info):
        assert set(updates) == set(MANY)
        assert updates["p1"].weight == len(MANY["p1"][1])
        assert np.array_equal(np.append(*updates["p1"].model), updates["p1"].flat)
        return np.median([one.flat for one in updates.values()], axis=0)

    errors = [run(rule, train=poisoned).history[-1].metrics["loss"] for rule in (fedavg, median)]
    assert errors[1] < 1 < errors[0]


def test_a_rule_may_pay_and_is_marked_as_not_private(tmp_path):
    def rule(updates, start, info):
        return fedavg(updates, start, info), dict.fromkeys(updates, Decimal("1.50"))

    result = run(rule, workers=2)
    assert result.rewards == dict.fromkeys(MANY, Decimal("4.50"))
    for shown in (str(result), repr(result), result._repr_html_()):
        assert "NOT PRIVATE" in shown
    assert "NOT PRIVATE" in result.plot()._suptitle.get_text()
    with pytest.raises(SettingsError, match="in the clear"):
        crowdfl.simulate(train, evaluate, MANY, resume=result, progress=False)


@pytest.mark.parametrize("wrong", [{"clip": 3.0}, {"folder": "here"}, {"in_the_clear": 3}])
def test_what_has_no_effect_in_the_clear_is_refused_by_name(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        crowdfl.simulate(train, evaluate, MANY, **USUAL | {"in_the_clear": fedavg} | wrong)


def test_a_rule_pays_only_who_was_in_the_round():
    with pytest.raises(LearningError, match="pays stranger"):
        run(lambda updates, start, info: (fedavg(updates, start, info), {"stranger": 1}))
