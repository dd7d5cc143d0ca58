"""One interruption at every point of a campaign: something else happens first, and what must hold holds all the same.

Random troubles seldom meet the one moment between a read and the write that trusts it; these visit each such moment.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns.faults import Between
from tests.campaigns.world import World, closing, meanwhile

KINDS = ["cancel", "claim", "pause", "upload", "leave"]


def sweeps(stride: int) -> list[Any]:
    """Every so-manieth moment for each kind; `make test-slow` visits them all."""
    return [(kind, stride) for kind in KINDS] + [pytest.param(kind, 1, marks=pytest.mark.slow) for kind in KINDS]


def campaign(world: World) -> None:
    """One round from its opening to the claims, checked after every step."""
    for stage in ("run", "upload", "run", "claim"):
        if stage == "run":
            world.run()
        else:
            for person in world.people:
                getattr(world, stage)(person)
                world.check()
    world.finish()


def one_round(folder: Path) -> World:
    return World(folder, 3, rounds=1, window=1000.0)


@pytest.mark.second
@pytest.mark.parametrize(("kind", "stride"), sweeps(7))
def test_something_else_happens_during_any_call_to_csp(kind: str, stride: int, tmp_path: Path):
    """While CSP computes, the requester changes its mind, people come and go."""
    for calls in range(3 * KINDS.index(kind) % stride, 100, stride):
        with closing(one_round(tmp_path / str(calls))) as world:
            world.wire.fates = ["well"] * calls + [partial(meanwhile, world, kind, 0)]
            campaign(world)
            if len(world.wire.sent) < calls:
                return
    pytest.fail("there was always another call")


@pytest.mark.second
@pytest.mark.parametrize(("kind", "stride"), sweeps(61))
def test_something_else_happens_after_any_call_to_the_store(kind: str, stride: int, tmp_path: Path):
    """Whatever SP has just read may be no longer true when it acts on it."""
    for calls in range(1 + 6 * KINDS.index(kind) % stride, 1000, stride):
        with closing(one_round(tmp_path / str(calls))) as world:
            between = Between(world.sps[0].store, None, partial(meanwhile, world, kind, 0), calls)
            world.sps[0].ports.store = between  # type: ignore[assignment]
            campaign(world)
            if between.left > 0:
                return
    pytest.fail("there was always another call")
