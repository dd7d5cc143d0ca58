"""A process that dies at any durable write or message of a campaign, and is started again, changes nothing.

Every point of an undisturbed run has a name. At each chosen one a copy of the run loses the process whose point it is, and goes
on to its end. Then averages are the plain ones, one sum was opened for a base, nothing dealt has served two contents, the books
balance, nothing secret is left, and everyone who was accepted was paid once.
"""

import random
from collections.abc import Callable, Collection, Sequence

import pytest

from crowdfl.simulation.faults import AFTER, BEFORE, Plan, Point
from crowdfl.simulation.replayed import seeded
from tests.cut.campaign import NOISY, REFERRED, Campaign, Script
from tests.cut.forks import Forks

SCRIPTS = {"reference": (REFERRED, 1700), "noise": (NOISY, 1000)}  # and how many points there are at least
SLICES = 8
MANY = 20


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


def kind_of(point: Point) -> tuple[str, str, str]:
    """The role, what it writes or asks for, and of a file what it is."""
    about = "/".join(part if part.isalpha() else "" for part in point.about.replace(".", "/").split("/"))
    return point.process.partition("/")[0], point.name, about


def is_telling(point: Point) -> bool:
    """All that comes before a write was done, and it was not; something is gone, or was answered, and nobody knows."""
    is_late = point.name.startswith(("kgc.", "csp.", "sp.")) or point.name.endswith((".delete", ".clear"))
    return point.moment == (AFTER if is_late else BEFORE)


def one_of_each_kind(
    every: Sequence[Point], known: Collection[tuple[str, str, str]] = (), *, more: int = 0
) -> list[Point]:
    """Of those that are not known, always the same ones; `more` of those that come at every step of a round."""
    kinds: dict[tuple[str, str, str], list[Point]] = {}
    for point in filter(is_telling, every):
        kinds.setdefault(kind_of(point), []).append(point)
    draw = random.Random(36)  # noqa: S311 -- no secret
    new = [alike for kind, alike in kinds.items() if kind not in known]
    found = {point for alike in new for point in draw.sample(alike, 1 + more * (len(alike) >= MANY))}
    return [point for point in every if point in found]


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.second)])
def test_a_process_that_dies_at_a_write_or_message_of_any_kind_changes_nothing(half: int):
    """In the shorter campaign; both halves together have every kind."""
    chosen = one_of_each_kind(points(NOISY))
    assert {point.process.partition("/")[0] for point in chosen} == {"kgc", "sp", "csp", "requester", "people"}
    survive("noise", chosen[half::2])


@pytest.mark.second
def test_a_process_that_dies_where_only_the_longer_campaign_has_a_point_changes_nothing():
    known = {kind_of(point) for point in one_of_each_kind(points(NOISY))}
    survive("reference", one_of_each_kind(points(REFERRED), known, more=2))


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
