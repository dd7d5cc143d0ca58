"""SIGKILL between durable steps of a campaign of the profile `shares`, against real processes."""

import random
from pathlib import Path

import pytest

from tests.faults.durable import ANY, Kill, idle
from tests.faults.supervisor import Campaign
from tests.faults.test_kills import KILLED, LIVES, SLOW_SHARDS, Point, points, survive, survive_each

SAMPLE = {"kgc": 2, "csp": 5, "sp": 5, "person0": 2}
SHARDS = 3
OWN = ("dealt", "csp_state.", "chain.", "rejected", "left")  # in the names of steps that only a chained profile has


def sample(campaign: Campaign) -> list[Point]:
    """A few of each role's, always the same ones: half of them of what this profile alone does."""
    draw, chosen = random.Random(14), []  # noqa: S311 -- no secret
    for role, count in SAMPLE.items():
        every = points(campaign, role)
        own = [point for point in every if any(part in point[1].name for part in OWN)]
        first = draw.sample(own, min(len(own), count // 2))
        chosen += first + draw.sample([point for point in every if point not in first], count - len(first))
    return chosen


def test_the_steps_of_this_profile_are_among_those_that_are_killed(shared: Campaign):
    """What KGC dealt is fetched and burnt, requests are reserved, the chain is kept."""
    steps = {role: " ".join(shared.steps(role)) for role in ("csp", "sp", "person0")}
    assert all("dealt.fetch" in steps[role] and "dealt.burn" in steps[role] for role in ("csp", "sp"))
    assert "csp_state.reserve_step" in steps["csp"]
    assert "chain._keep" in steps["person0"]


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_process_killed_at_a_durable_step_changes_nothing(shard: int, shared: Campaign, tmp_path: Path):
    """The same averages, books, receipts and requests as if nobody had died."""
    survive_each(tmp_path, shared, sample(shared)[shard::SHARDS])


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SLOW_SHARDS))
def test_a_process_killed_at_any_durable_step_changes_nothing(shard: int, shared: Campaign, tmp_path: Path):
    every = [point for role in KILLED for point in points(shared, role)]
    survive_each(tmp_path, shared, every[shard::SLOW_SHARDS])


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_all_processes_killed_again_and_again_change_nothing(seed: int, shared: Campaign, tmp_path: Path):
    """Each of them up to three times in one campaign, wherever it happens to be."""
    draw, kills = random.Random(seed), {}  # noqa: S311 -- no secret
    for role in KILLED:
        steps = sum(not idle(name) for name in shared.steps(role))
        lives = min(LIVES, steps)
        kills[role] = [Kill(ANY, draw.randint(1, steps // lives), draw.random() < 0.5) for _ in range(lives)]
    survive(Campaign(tmp_path / "campaign", kills, settings=shared.settings), shared)
