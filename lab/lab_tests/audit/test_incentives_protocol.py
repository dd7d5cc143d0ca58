"""Rounds of the audit of incentives through the real protocol: the profile `shares` pays what the oracle says.

Real people (the watch data that comes with the package) and one kind of cheater. The protocol computes from a sketch whose
coins nobody can fix, so that a product of two updates is off by their lengths over the root of the lanes. Twelve times that is
allowed here, far beyond 2^-30; who passes the gate must not depend on it, which the test checks first.
"""

import numpy as np
import pytest
from tests.protocols.shares.parties import Parties

from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.supplied import Watch
from crowdfl.learning.oracle import gate_weights, rewards_from
from crowdfl_lab.audit.incentives import CHEATS, CheatedCampaign, CrowdData, IncentiveSettings, RoundUploads

LANES, SIGMAS = 16384, 12.0
SETTINGS = IncentiveSettings(honest=6, groups=(1, 2), rounds=3, draws=1, epochs=10, lanes=LANES)
BUDGET = 9_000_000
pytestmark = pytest.mark.second


@pytest.fixture(scope="module")
def campaign():
    """Six honest people and two cheaters of the ten that there are."""
    source = Watch(cut=Cut(length=100, step=100, held_out=0.3, gap=100))
    return CheatedCampaign(CrowdData.of("watch", source, "spectral features"), SETTINGS, 0)


def paid(campaign: CheatedCampaign, rounds: list[RoundUploads]) -> list[list[int]]:
    """What each round pays, in millionths, everyone opening its own; the rounds follow each other on one chain."""
    people, parameters = rounds[0].updates.shape
    chosen = {"pay": "gate", "lanes": LANES, "decimals": 6, "clip": 8.0, "budget": "9.00", "rounds": len(rounds) + 1}
    bounds = {"max_norm": 1.001 * campaign.bound, "max_samples": max(rounds[0].samples)}
    parties = Parties(people, parameters, chosen | bounds)
    base, found = parties.initial, []
    for number, uploads in enumerate(rounds, start=1):
        samples = dict(zip(parties.names, uploads.samples, strict=True))
        changes = uploads.updates / np.array(uploads.samples)[:, None]
        models = {who: base + change for who, change in zip(parties.names, changes, strict=True)}
        played = parties.play(number, parties.encrypt(number, models, samples))
        assert played.rejected == {}
        base = parties.read(number, played).weights
        earned = parties.rewards(number, played)
        found.append([earned[who] for who in parties.names])
    return found


def played(campaign: CheatedCampaign, cheat: str, group: int) -> list[RoundUploads]:
    return campaign.play(next(one for one in CHEATS if one.name == cheat), group)


def lengths(uploads: RoundUploads) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """T_i, |D_i| and |U - D_i|."""
    rows = uploads.updates
    others = rows.sum(axis=0) - rows
    return np.sum(rows * others, axis=1), np.linalg.norm(rows, axis=1), np.linalg.norm(others, axis=1)


@pytest.mark.parametrize(("cheat", "group"), [("echo", 1), ("replay", 1), ("collusion", 2)])
def test_the_gate_pays_whom_the_oracle_pays(campaign, cheat, group):
    """By declared samples, short by at most two millionths each; nothing, exactly, to the others."""
    rounds = played(campaign, cheat, group)
    for uploads, found in zip(rounds, paid(campaign, rounds), strict=True):
        require_clear(uploads)
        weights = gate_weights(uploads.updates, uploads.samples, uploads.previous_sum, LANES)
        wanted = rewards_from(weights, BUDGET)
        assert [reward == 0 for reward in found] == (weights == 0).tolist()
        assert np.abs(np.array(found) - wanted).max() <= 2 * len(found)
        assert BUDGET - 2 * len(found) <= sum(found) <= BUDGET


def require_clear(uploads: RoundUploads) -> None:
    """Nobody is within the sketch's error of a threshold. A cosine near one is estimated better than a small one."""
    t, own, others = lengths(uploads)
    moved = own > 0
    cosines = t[moved] / (own * others)[moved]
    assert np.all(np.abs(cosines - 2 / LANES**0.5) > SIGMAS / LANES**0.5)
    if uploads.previous_sum is not None:
        last = np.linalg.norm(uploads.previous_sum)
        again = np.abs(uploads.updates @ uploads.previous_sum)[moved] / (own[moved] * last)
        assert np.all(np.abs(again - 0.75**0.5) > SIGMAS * (1 - np.minimum(again, 1) ** 2) / LANES**0.5)
