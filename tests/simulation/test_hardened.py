"""The real profile under the same faults: slower, so fewer; here the average itself is compared."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdfl.protocols.profile import Tools
from crowdfl.protocols.registry import PROFILES
from tests.hosts import ONE
from tests.simulation.world import World, closing

SETTINGS = {"profile": "hardened", "key_bits": 1536, "max_samples": 10, "decimals": 3, "lanes": 8}


def final_average(world: World, number: int) -> float:
    tools = Tools(ONE, insecure_test_key=True)
    side = PROFILES["hardened"].requester(world.about, world.created.bundle, tools)
    return float(side.read(world.blobs.get(f"{world.task}/rounds/{number}/requester"), number).weights[0])


@given(deaths=st.lists(st.tuples(st.sampled_from(["SP", "CSP"]), st.integers(1, 30)), min_size=3, max_size=8))
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.second
def test_servers_that_die_again_and_again_give_the_same_average_and_pay_the_same(deaths: list[tuple[str, int]]):
    """Killed at any durable step, the campaign ends as an undisturbed one: the plain average, everyone paid."""
    with tempfile.TemporaryDirectory() as folder, closing(World(Path(folder), people=3, rounds=1, **SETTINGS)) as world:
        for server, steps in deaths:
            if server == "SP":
                world.sp_lives[0].left = steps
            else:
                world.csp_life.left = steps
            for person in world.people:
                world.upload(person, samples=person + 1)
            for _ in range(3):
                world.tick()
            world.clock.time += 61 if not world.states() or world.states() != ["open"] else 1
            world.check()
        for life in world.sp_lives:
            life.left = None
        world.csp_life.left = None
        world.clock.time += 61
        for person in world.people:
            world.tick()
            world.upload(person, samples=person + 1)
        world.finish()
        assert world.states() == ["rewarded"]
        plain = np.average([1.0, 2.0, 3.0], weights=[1, 2, 3])
        assert final_average(world, 1) == pytest.approx(plain, abs=2e-3)
        paid = sum(movement.amount for movement in world.ledger().movements if movement.name.startswith("pay "))
        assert 9_000_000 - 3 <= paid <= 9_000_000
