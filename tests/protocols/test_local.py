"""LocalFederation: every party on one page, and everything a result reports."""

from decimal import Decimal

import gmpy2
import numpy as np
import pytest

from crowdfl.crypto.compute import Progress
from crowdfl.errors import Cancelled
from crowdfl.learning.models.learner import Update
from crowdfl.protocols.registry import PROFILES
from tests.protocols.driving import SMALL, converse, deal, federation, updates

MODELS, SAMPLES = [[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]], [1, 2, 3]
KEYED = ("hardened", "paper")
every_profile = pytest.mark.parametrize("profile", PROFILES)
every_keyed_profile = pytest.mark.parametrize("profile", KEYED)
OWN = {"shares": {"check": "none", "pay": "none"}}  # without lanes nothing can be checked


def test_arrays_come_back_in_their_shapes_and_rewards_as_exact_money():
    rng = np.random.default_rng(0)
    shapes = [(2, 3), (3,), (3, 1), (1,)]
    people = {f"p{i}": Update([rng.normal(size=shape) for shape in shapes], 40 + i) for i in range(1, 4)}
    fed = federation(key_bits=1344, lanes=None, max_samples=100)
    result = fed.round(people, budget="36.00")
    assert [array.shape for array in result.average] == shapes
    for place in range(4):
        expected = sum(update.samples * update.weights[place] for update in people.values()) / (41 + 42 + 43)
        assert result.average[place] == pytest.approx(expected, abs=1e-6)
    assert result.total == 126
    assert set(result.rewards) == {"p1", "p2", "p3"}
    assert all(isinstance(amount, Decimal) for amount in result.rewards.values())
    assert Decimal("35.999994") <= sum(result.rewards.values()) <= 36


@every_profile
def test_without_a_budget_there_are_no_rewards(profile):
    result = federation(profile=profile, **OWN.get(profile, {})).round(updates(MODELS, SAMPLES))
    assert result.rewards is None
    assert result.costs["SP"].total("SMUL") == 0


@every_keyed_profile
def test_views_and_costs_are_reported(profile):
    """What each server saw, and what each role did; they grow from round to round."""
    fed = federation(profile=profile)
    result = fed.round(updates(MODELS, SAMPLES))
    assert set(result.views) == {"SP", "CSP"}
    assert result.views["SP"].entries == []  # SP opens nothing in either profile
    seen = len(result.views["CSP"].entries)
    assert seen > 0
    assert result.costs["SP"].total("PDec") > 0
    assert result.costs["participants"].messages == 3
    fed.round(updates(MODELS, SAMPLES))
    assert len(fed.views()["CSP"].entries) == 2 * seen


def test_rewards_have_views_of_their_own():
    """Counts, lanes, operands, divisions, masked rewards: what the audit works on."""
    result = federation(**SMALL).round(updates(MODELS, SAMPLES), budget="1")
    names = {name for name, _ in result.views["CSP"].entries}
    assert names == {"counts", "opened", "lanes", "SMUL x'", "SDIV guard", "SDIV x'", "SDIV y'", "rewards"}


@every_profile
def test_the_last_round_is_read_by_the_requester(profile):
    """Participants cannot: not the paper's either, who get no half of the decryption."""
    fed = federation(profile=profile, **OWN.get(profile, {}))
    fed.round(updates(MODELS, SAMPLES))
    result = fed.round(updates(MODELS, SAMPLES), final=True)
    assert result.average[0] == pytest.approx(np.average(MODELS, axis=0, weights=SAMPLES), abs=2e-6)


@every_profile
def test_participants_may_come_and_go(profile):
    fed = federation(profile=profile, max_participants=6, **OWN.get(profile, {}))
    first = fed.round({name: Update([[1.0]], 1) for name in ("a", "b", "c")})
    second = fed.round({name: Update([[2.0]], 1) for name in ("c", "d", "e", "f")})
    assert (first.average[0].tolist(), second.average[0].tolist()) == ([1.0], [2.0])


@every_keyed_profile
def test_progress_is_reported(profile):
    """Done and total, never backwards within a batch, and every batch to its end."""
    heard = []
    fed = federation(profile=profile, progress=lambda done, total: heard.append((done, total)))
    fed.round(updates([[0.5] * 40] * 3, [1] * 3))
    assert len(heard) > 3
    assert all(0 <= done <= total for done, total in heard)
    batches = sum(done == 0 for done, _ in heard)
    assert sum(done == total for done, total in heard) >= batches > 0


def test_progress_can_stop_a_round():
    """A progress that was cancelled ends the work with a name."""
    progress = Progress()
    progress.cancel()
    sides = deal()
    sides.sp.party.progress = progress
    for i in range(3):
        sides.sp.add_all({f"p{i}": sides.upload([0.0, 0.0], 1, f"p{i}")})
    with pytest.raises(Cancelled):
        converse(sides.sp.publish(final=False), sides.csp.answer)


@pytest.fixture
def protected(monkeypatch):
    """Counts the powers computed in constant time."""
    calls = []
    original = gmpy2.powmod_sec

    def counted(*numbers):
        calls.append(numbers)
        return original(*numbers)

    monkeypatch.setattr(gmpy2, "powmod_sec", counted)
    return calls


@every_keyed_profile
def test_constant_time_holds_for_every_share(profile, protected):
    """As many protected powers as PDec and Dec were counted, the requester's included."""
    fed = federation(profile=profile, constant_time=True)
    costs = fed.round(updates(MODELS, SAMPLES), final=True).costs
    costs = fed.round(updates(MODELS, SAMPLES)).costs
    assert len(protected) == sum(role.total("PDec") + role.total("Dec") for role in costs.values())


@every_keyed_profile
def test_each_side_is_built_from_its_own_bundle(profile):
    """Bytes in, a side out: nothing is shared between SP and CSP but the public key."""
    sides = deal(3, 2, profile=profile)
    sp, csp = sides.sp.party, sides.csp.party
    assert sp.share.exponent != csp.share.exponent
    assert sp.costs is not csp.costs
    assert sp.view is not csp.view
    exponent = int(csp.share.exponent)
    assert exponent.to_bytes((exponent.bit_length() + 7) // 8, "big") not in sides.dealing.sp
    rebuilt = sides.fresh_sp()
    assert rebuilt.party.share.exponent == sp.share.exponent
