"""A process that dies at any durable write or message of a campaign, and is started again, changes nothing.

Every point of an undisturbed run has a name. At each chosen one a copy of the run loses the process whose point it is, and goes
on to its end. Then averages are the plain ones, one sum was opened for a base, nothing dealt has served two contents, the books
balance, nothing secret is left, and everyone who was accepted was paid once.
"""

import random
from collections.abc import Callable, Sequence

import pytest

from crowdfl.simulation.faults import Plan, Point
from crowdfl.simulation.host import PEOPLE
from crowdfl.simulation.replayed import seeded
from tests.cut.campaign import NOISY, REFERRED, Campaign, Script
from tests.cut.forks import Forks

SCRIPTS = {"reference": (REFERRED, 1700), "noise": (NOISY, 1000)}  # and how many points there are at least
SLICES = 8


def playing(script: Script) -> Callable[[Plan], None]:
    def play(plan: Plan) -> None:
        with seeded(b"cut"):
            campaign = Campaign(script, plan)
            campaign.live()
        campaign.check()

    return play


def points(script: Script) -> list[Point]:
    """In the order in which an undisturbed run meets them."""
    met: list[Point] = []
    playing(script)(met.append)
    return met


def survive(name: str, chosen: Sequence[Point]) -> None:
    script, least = SCRIPTS[name]
    forks = Forks(set(chosen).__contains__)
    forks.run(playing(script))
    assert not forks.failures, f"{len(forks.failures)} of {len(forks.cut)} cuts: " + "\n".join(forks.failures)
    assert len(forks.points) >= least
    assert forks.cut == list(chosen), "the undisturbed run is another one than before"


def one_of_each_kind(every: Sequence[Point]) -> list[Point]:
    """Of each write and each message of each role one, before or after it, always the same."""
    kinds: dict[tuple[str, str], list[Point]] = {}
    for point in every:
        kinds.setdefault((point.process.partition("/")[0], point.name), []).append(point)
    draw = random.Random(36)  # noqa: S311 -- no secret
    found = {draw.choice(alike) for alike in kinds.values()}
    return [point for point in every if point in found]


def test_a_process_that_dies_at_a_write_or_message_of_any_kind_changes_nothing():
    every = points(REFERRED)
    chosen = one_of_each_kind(every)
    assert {point.process.partition("/")[0] for point in chosen} == {"kgc", "sp", "csp", "requester", PEOPLE[:-1]}
    survive("reference", chosen)


@pytest.mark.second
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_process_that_dies_at_every_tenth_point_changes_nothing(name: str):
    every = points(SCRIPTS[name][0])
    survive(name, every[random.Random(36).randrange(10) :: 10])  # noqa: S311 -- no secret


@pytest.mark.slow
@pytest.mark.parametrize("slice_", range(SLICES))
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_process_that_dies_at_any_point_changes_nothing(name: str, slice_: int):
    """All slices together visit every point."""
    survive(name, points(SCRIPTS[name][0])[slice_::SLICES])
