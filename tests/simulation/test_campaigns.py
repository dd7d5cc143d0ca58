"""Whole campaigns, each going wrong in its own way; what must hold holds at every step and at the end."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.simulation.world import World, closing

CAMPAIGNS = min(settings.default.max_examples, 2000)  # type: ignore[union-attr]  # under `fuzz` about ten minutes
PEOPLE = st.integers(0, 4)
SP = st.integers(0, 1)
MEANWHILE = ["cancel", "pause", "tick", "upload", "claim", "leave"]
FATES = st.lists(
    st.sampled_from(["well", "lost", "answer lost", "repeated", "old ones again", 5.0, 61.0, 130.0])
    | st.tuples(st.sampled_from(MEANWHILE), PEOPLE),
    max_size=6,
)
ACTIONS = st.one_of(
    st.tuples(st.just("tick"), SP),
    st.tuples(st.just("run"), SP),
    st.tuples(st.just("upload"), PEOPLE, SP, st.sampled_from([0, 1, 7])),
    st.tuples(st.just("everyone"), SP),
    st.tuples(st.just("other bytes"), PEOPLE, SP),
    st.tuples(st.just("upload to the round before"), PEOPLE, SP),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 60.0, 101.0, 151.0, 400.0])),
    st.tuples(st.just("fates"), FATES),
    st.tuples(st.just("CSP away"), st.booleans()),
    st.tuples(st.just("kill CSP"), st.integers(1, 12)),
    st.tuples(st.just("kill SP"), SP, st.integers(1, 25)),
    st.tuples(st.just("join"), PEOPLE, SP),
    st.tuples(st.just("leave"), PEOPLE),
    st.tuples(st.just("claim"), PEOPLE, SP),
    st.tuples(st.just("deposit"), st.sampled_from(["a", "b"]), st.sampled_from([1, 9_000_000])),
    st.tuples(st.sampled_from(["pause", "resume", "cancel"]), SP),
)


def meanwhile(world: World, what: str, person: int) -> None:
    """Something that another caller or the other SP does while a call is under way."""
    world.wire.fates.clear()  # one thing at a time
    if what == "tick":
        world.clock.time += 61  # the lease has run out: the other one takes over
        for _ in range(4):
            world.tick(1)
    elif what in ("upload", "claim", "leave"):
        getattr(world, what)(person)
    else:
        world.order(what, which=1)


def act(world: World, what: str, *details: Any) -> None:
    """One thing that happens."""
    deeds: dict[str, Callable[..., Any]] = {
        "fates": lambda fates: fated(world, fates),
        "run": lambda which: [world.tick(which) for _ in range(8)],
        "upload": lambda person, which, samples: world.upload(person, which=which, samples=samples),
        "everyone": lambda which: [world.upload(person, which=which) for person in world.people],
        "other bytes": lambda person, which: world.upload(person, which=which, other=True),
        "upload to the round before": lambda person, which: world.upload(person, which=which, back=1),
        "wait": lambda seconds: setattr(world.clock, "time", world.clock.time + seconds),
        "CSP away": lambda away: setattr(world.wire, "away", away),
        "kill CSP": lambda steps: setattr(world.csp_life, "left", steps),
        "kill SP": lambda which, steps: setattr(world.sp_lives[which], "left", steps),
        "pause": partial(world.order, "pause"),
        "resume": partial(world.order, "resume"),
        "cancel": partial(world.order, "cancel"),
    }
    deeds.get(what, getattr(world, what, None))(*details)  # type: ignore[misc]


def fated(world: World, fates: list[Any]) -> None:
    """What becomes of the next calls to CSP."""
    world.wire.fates = [partial(meanwhile, world, *fate) if isinstance(fate, tuple) else fate for fate in fates]


def live(actions: list[tuple[Any, ...]], *, csp_is_gone: bool = False, **options: Any) -> None:
    """A campaign from its creation to its end."""
    with tempfile.TemporaryDirectory() as folder, closing(World(Path(folder), **options)) as world:
        for action in actions:
            act(world, *action)
            world.check()
        world.finish(csp_is_gone=csp_is_gone)


@given(
    actions=st.lists(ACTIONS, max_size=25),
    people=st.integers(3, 5),
    strategy=st.sampled_from(["discard", "retransmit"]),
    csp_is_gone=st.booleans(),
)
@settings(max_examples=CAMPAIGNS, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_whatever_happens_uploads_averages_and_money_stay_right(
    actions: list[tuple[Any, ...]], people: int, strategy: str, csp_is_gone: bool
):
    """Nothing counted twice, lost, averaged below the quorum, published twice, overspent or left unexplained."""
    live(actions, people=people, strategy=strategy, csp_is_gone=csp_is_gone, profile="clear")
