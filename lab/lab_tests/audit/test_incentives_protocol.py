"""Rounds of the audit of incentives through the real protocol: the profile `shares` pays what the oracle says.

Real people (the watch data that comes with the package) and cheaters. `distance` is computed from a sketch whose coins nobody
can fix: a squared distance is off by sqrt(2 / lanes) of itself, and ten times that is allowed here.
"""

import numpy as np
import pytest
from tests.protocols.shares.parties import Parties

from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.supplied import Watch
from crowdfl.learning.oracle import rewards_from
from crowdfl_lab.audit.campaign import CrowdData
from crowdfl_lab.audit.incentives import CHEATS, RULES, CheatedCampaign, IncentiveSettings, RoundUploads

LANES = 16384
SETTINGS = IncentiveSettings(honest=6, groups=(1, 2), rounds=3, draws=1, epochs=10, reference=2)
BUDGET = 9_000_000
pytestmark = pytest.mark.second


@pytest.fixture(scope="module")
def campaign():
    """Six honest people and two cheaters of the ten that there are."""
    source = Watch(cut=Cut(length=100, step=100, held_out=0.3, gap=100))
    return CheatedCampaign(CrowdData.of("watch", source, "spectral features"), SETTINGS, 0)


def paid(campaign: CheatedCampaign, rounds: list[RoundUploads], pay: str) -> list[list[int]]:
    """What each round pays, in millionths, everyone opening its own; the rounds follow each other on one chain."""
    people, parameters = rounds[0].updates.shape
    chosen = {"pay": pay, "lanes": LANES, "decimals": 6, "clip": 8.0, "budget": "9.00", "rounds": len(rounds) + 1}
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


@pytest.mark.parametrize("pay", ["equal", "samples", "distance"])
@pytest.mark.parametrize(("cheat", "group"), [("echo", 1), ("collusion", 2)])
def test_the_protocol_pays_what_the_oracle_says(campaign, pay, cheat, group):
    rounds = played(campaign, cheat, group)
    for uploads, found in zip(rounds, paid(campaign, rounds, pay), strict=True):
        wanted = rewards_from(RULES[pay](uploads), BUDGET)
        off = 10 * (2 / LANES) ** 0.5 if pay == "distance" else 0
        assert np.allclose(found, wanted, rtol=off, atol=2 * len(found))
        assert BUDGET - 2 * len(found) <= sum(found) <= BUDGET
