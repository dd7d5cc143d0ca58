"""A campaign under the profile `shares` through the roles: a chain of averages, rewards, claims, crashes, a late joiner."""

from collections import Counter

import numpy as np
import pytest

from crowdfl.roles.csp import Csp
from tests.hosts import BUDGET, Desk

TASK = {"profile": "shares", "rounds": 2, "lanes": 256, "max_norm": 2.0, "mask_bits": None, "min_participants": 3}
MOST_EXCHANGES = 15  # between the servers, for one round


@pytest.fixture
def desk(tmp_path) -> Desk:
    """Four people, and the money for all rounds."""
    desk = Desk(tmp_path, **TASK)
    desk.invite(4)
    desk.requester.fund(desk.task, 2 * BUDGET)
    return desk


def trained(seed):
    """What a person's data makes of a model: a common direction, and something of its own."""
    rng = np.random.default_rng(seed)
    return lambda arrays, _settings, _number: ([a + 0.1 + 0.01 * rng.normal(size=a.shape) for a in arrays], 5)


def play_round(desk, number):
    desk.run()
    for index, person in enumerate(desk.crowd):
        person.step(trained(100 * number + index))
    desk.run()
    return str(desk.sp.store.round(desk.task, number).state)


def test_a_campaign_ends_with_a_model_and_paid_claims(desk, monkeypatch):
    """Within the exchanges that a round may take, none of them about people whom CSP knows."""
    asked, answer, enrol = Counter[str](), Csp.answer, Csp.enrol
    monkeypatch.setattr(Csp, "answer", lambda self, *args: asked.update(["answer"]) or answer(self, *args))
    monkeypatch.setattr(Csp, "enrol", lambda self, *args: asked.update(["enrol"]) or enrol(self, *args))
    assert play_round(desk, 1) == "rewarded"
    asked.clear()
    assert play_round(desk, 2) == "rewarded"
    assert asked["enrol"] == 0
    assert asked["answer"] <= MOST_EXCHANGES
    for person in desk.crowd:
        person.step(trained(0))
    claimed = [person.claim() for person in desk.crowd]
    assert 0 < sum(claimed) <= 2 * BUDGET
    weights = desk.requester.model(desk.task)
    for initial, found in zip(desk.initial, weights, strict=True):
        np.testing.assert_allclose(found, initial + 0.2, atol=0.05)
