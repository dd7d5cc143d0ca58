"""`simulate(reference=...)`: who goes against the requester's own data is left out, over all roles."""

import numpy as np
import pytest

import crowdfl
from crowdfl.errors import SettingsError


def train(model, data):
    """Towards the mean of somebody's numbers; a poisoner goes the other way."""
    start = np.zeros(8) if model is None else model
    target, sign = data
    return start + sign * 0.5 * (target - start), 10


def people(honest, flipped):
    rng = np.random.default_rng(4)
    return {f"p{i}": (np.ones(8) + rng.normal(size=8) * 0.2, 1 if i < honest else -1) for i in range(honest + flipped)}


def test_poisoners_are_left_out_and_unpaid_and_the_average_is_of_the_others():
    found = crowdfl.simulate(
        train,
        None,
        people(5, 2),
        initial=np.zeros(8),
        rounds=2,
        reference=(np.ones(8), 1),
        budget="10.00",
        progress=False,
    )
    assert [set(one.rejected) for one in found.history] == [{"p5", "p6"}] * 2
    assert [set(one.participants) for one in found.history] == [{f"p{i}" for i in range(5)}] * 2
    assert (found.rewards["p0"], found.rewards["p5"]) == (4, 0)
    assert found.settings.weighting == "equal"
    honest = np.mean([target for target, sign in people(5, 2).values() if sign > 0], axis=0)
    assert np.abs(found.model - honest * 0.75).max() < 1e-4


def test_a_campaign_that_goes_on_needs_its_reference_again():
    found = crowdfl.simulate(train, None, people(4, 0), rounds=1, reference=(np.ones(8), 1), progress=False)
    with pytest.raises(SettingsError, match="pass `reference`"):
        crowdfl.simulate(train, None, people(4, 0), rounds=2, resume=found, progress=False)
    on = crowdfl.simulate(train, None, people(4, 0), rounds=2, resume=found, reference=(np.ones(8), 1), progress=False)
    assert len(on.history) == 2
