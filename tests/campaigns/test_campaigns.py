"""Whole campaigns, each going wrong in its own way; what must hold holds at every step and at the end."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.campaigns.faults import Between
from tests.campaigns.world import World, closing, meanwhile

CAMPAIGNS = min(settings.default.max_examples, 2000)  # type: ignore[union-attr]  # under `fuzz` about ten minutes
PEOPLE = st.integers(0, 4)
SP = st.integers(0, 1)
MEANWHILE = st.sampled_from(["cancel", "pause", "take over", "upload", "claim", "leave", "join"])
READS = st.sampled_from(["lease", "movements", "uploads", "rounds", "task", "participants"])
FATES = st.lists(
    st.sampled_from(["well", "lost", "late", "answer lost", "repeated", "old ones again", 61.0]), min_size=1, max_size=6
)
SERVERS = st.one_of(
    st.tuples(st.just("fates"), FATES),
    st.tuples(st.just("during a call"), st.integers(0, 6), MEANWHILE, PEOPLE),
    st.tuples(st.just("after a read"), READS, MEANWHILE, PEOPLE),
    st.tuples(st.just("kill SP"), SP, st.integers(1, 40)),
    st.tuples(st.just("kill CSP"), st.integers(1, 12)),
    st.tuples(st.just("CSP away"), st.booleans()),
)
PERSONS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([61.0, 1001.0, 1501.0, 4000.0])),
    st.tuples(st.just("upload"), PEOPLE, SP, st.sampled_from([0, 7])),
    st.tuples(st.just("come late"), PEOPLE, SP),
    st.tuples(st.just("other bytes"), PEOPLE, SP),
    st.tuples(st.just("upload to the round before"), PEOPLE, SP),
    st.tuples(st.just("join"), PEOPLE, SP),
    st.tuples(st.just("leave"), PEOPLE),
    st.tuples(st.just("claim"), PEOPLE, SP),
    st.tuples(st.just("deposit"), st.sampled_from(["a", "b"]), st.sampled_from([1, 9_000_000])),
    st.tuples(st.just("confirm"), st.sampled_from(["a", "b"]), st.sampled_from([1, 9_000_000]), SP),
    st.tuples(st.just("reject"), st.sampled_from(["a", "b"]), SP),
    st.tuples(st.sampled_from(["pause", "resume", "cancel"]), SP),
)
# A campaign as it should be, with trouble before each of its stages: so that every one gets far enough to be troubled.
STAGES = [("run", 0), ("upload all",), ("run", 0), ("run", 1), ("upload all",), ("run", 0), ("claim all",), ("run", 1)]
TROUBLES = st.tuples(*[st.lists(SERVERS | PERSONS, max_size=2) for _ in STAGES])


def act(world: World, what: str, *details: Any) -> None:
    deeds: dict[str, Callable[..., Any]] = {
        "fates": lambda fates: setattr(world.wire, "fates", list(fates)),
        "during a call": partial(during, world),
        "after a read": partial(interrupted, world),
        "run": lambda which: [world.tick(which) for _ in range(6)],
        "upload all": lambda: [world.upload(person) for person in list(world.people)],
        "claim all": lambda: [world.claim(person) for person in list(world.people)],
        "upload": lambda person, which, samples: world.upload(person, which=which, samples=samples),
        "come late": world.come_late,
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


def interrupted(world: World, read: str, what: str, person: int) -> None:
    """Something happens right after the first SP's next read of this kind."""
    act = partial(meanwhile, world, what, person)
    world.sps[0].ports.store = Between(world.sps[0].store, read, act)  # type: ignore[assignment]


def during(world: World, calls: int, what: str, person: int) -> None:
    """Something happens while the SPs' next call but so many to CSP is under way."""
    world.wire.fates = ["well"] * calls + [partial(meanwhile, world, what, person)]


@pytest.mark.second
def test_an_average_stays_as_it_was_first_published_whatever_step_sp_dies_at(tmp_path: Path):
    """A reader may have had it between the crash and the next life."""
    for step in range(1, 100):
        with closing(World(tmp_path / str(step), 3, rounds=1)) as world:
            world.run()
            for person in world.people:
                world.upload(person)
            while world.states() != ["weighed"]:
                world.tick()
            world.sp_lives[0].left = step
            world.tick()
            died, world.sp_lives[0].left = world.sp_lives[0].left is None, None  # a new life has no end set
            world.check()
            world.run()
            assert world.states() == ["rewarded"]
        if not died:
            return
    pytest.fail("SP never lived to the end")


@given(
    troubles=TROUBLES,
    people=st.integers(3, 5),
    late=st.sampled_from([0.0, 500.0]),
    pay=st.sampled_from(["equal", "samples"]),
    csp_is_gone=st.booleans(),
)
@settings(max_examples=CAMPAIGNS, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@pytest.mark.second
def test_whatever_happens_uploads_averages_and_money_stay_right(
    troubles: tuple[list[tuple[Any, ...]], ...], people: int, late: float, pay: str, csp_is_gone: bool
):
    """Nothing counted twice, lost, averaged below the quorum, published twice, overspent or left unexplained."""
    options = {"late": late, "pay": pay, "window": 1000.0}
    with tempfile.TemporaryDirectory() as folder, closing(World(Path(folder), people, **options)) as world:
        for trouble, stage in zip(troubles, STAGES, strict=True):
            for action in (*trouble, stage):
                act(world, *action)
                world.check()
        world.finish(csp_is_gone=csp_is_gone)
