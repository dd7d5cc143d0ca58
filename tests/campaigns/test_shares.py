"""Whatever a wire does between SP and CSP: averages and rewards are the oracle's."""

from pathlib import Path

import numpy as np
import pytest

from tests.campaigns.world import World, closing

BUDGET = 9_000_000


def check(world: World) -> None:
    """The plain average each time. In the first round everybody goes the same way, and is paid the same."""
    world.finish()
    plain = np.average([1.0, 2.0, 3.0], weights=[1, 2, 3])
    assert np.allclose(list(world.averages.values()), 1000 * plain, atol=1.1)
    paid = {who: rounds[1] for who, rounds in world.ledger().paid().items()}
    assert list(paid.values()) == [BUDGET // 3] * 3


@pytest.mark.second
def test_a_wire_that_loses_repeats_and_delays_gives_the_same_average(tmp_path: Path):
    """A request that comes again gets the same answer; one that was overtaken gets none that helps anybody."""
    fates = ["lost", "answer lost", "late", "repeated", "old ones again"]
    with closing(World(tmp_path, people=3, rounds=1, window=1e6)) as world:
        for _ in range(40):
            for person in world.people:
                world.upload(person, samples=person + 1)
            world.wire.fates = ["well", *fates] if "closed" in world.states() else []
            world.tick()
            world.clock.time += 61 if world.states() and world.states() != ["open"] else 0
            world.check()
        check(world)
        assert world.states() == ["rewarded"]
