"""Whatever durable step a server dies at, and whatever meets a call to the other: averages and rewards are the oracle's."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.simulation.faults import Between
from tests.simulation.world import World, closing, meanwhile

BUDGET = 9_000_000
SERVERS = ("SP", "CSP")
STRIDE = 17


def play(world: World, rounds: int) -> None:
    """Uploads whenever a round is open, until as many rounds are over; whoever has died is there again."""
    for _ in range(60):
        for person in world.people:
            world.upload(person, samples=person + 1)
        world.tick()
        if [state in ("rewarded", "aborted") for state in world.states()] == [True] * rounds:
            return
    pytest.fail("the rounds never end")


def check(world: World) -> None:
    """The plain average each time. In the first round everybody goes the same way, and is paid the same."""
    world.finish()
    plain = np.average([1.0, 2.0, 3.0], weights=[1, 2, 3])
    assert np.allclose(list(world.averages.values()), 1000 * plain, atol=1.1)
    paid = {who: rounds[1] for who, rounds in world.ledger().paid().items()}
    assert list(paid.values()) == [BUDGET // 3] * 3


def survives(folder: Path, server: str, step: int, rounds: int = 1) -> bool:
    """A server dies at one of its durable steps; whether it came to that."""
    with closing(World(folder, people=3, rounds=rounds, window=1e6)) as world:
        life = world.sp_lives[0] if server == "SP" else world.csp_life
        life.left = step
        play(world, rounds)
        died, life.left = life.dead, None
        check(world)
        assert world.states() == ["rewarded"] * rounds
        return died


@pytest.mark.second
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    "first", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, STRIDE + 1) if n != 6)]
)
def test_a_server_that_dies_at_a_durable_step_changes_nothing(server: str, first: int, tmp_path: Path):
    """From the first upload to the last claim; all of them together visit every step."""
    for step in range(first, 2000, STRIDE):
        if not survives(tmp_path / str(step), server, step):
            assert step > 50, "there are more durable steps than that"
            return
    pytest.fail(f"{server} never lived to the end")


@pytest.mark.second
@pytest.mark.parametrize(
    ("kind", "moments", "reads"),
    [
        ("take over", (0, 7), 90),
        ("cancel", (3, 12), 160),
        ("claim", (16,), 20),
        ("pause", (0, 12), 90),
        ("leave", (7, 16), 160),
    ],
)
def test_something_else_happens_during_a_call_to_csp_or_after_a_look_into_the_store(
    kind: str, moments: tuple[int, ...], reads: int, tmp_path: Path
):
    """Sampled moments of a campaign; what must hold of uploads, averages and money holds at each of them."""
    for calls in moments:
        with closing(World(tmp_path / f"call {calls}", people=3, rounds=1, window=1e6)) as world:
            world.wire.fates = ["well"] * calls + [partial(meanwhile, world, kind, 0)]
            check_to_the_end(world)
    with closing(World(tmp_path / f"read {reads}", people=3, rounds=1, window=1e6)) as world:
        between = Between(world.sps[0].store, None, partial(meanwhile, world, kind, 0), reads)
        world.sps[0].ports.store = between  # type: ignore[assignment]
        check_to_the_end(world)


def check_to_the_end(world: World) -> None:
    """Whatever it comes to: the requester may have cancelled, or somebody left."""
    for _ in range(8):
        for person in world.people:
            world.upload(person, samples=person + 1)
            world.check()
        world.tick()
        world.check()
    world.finish()


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
