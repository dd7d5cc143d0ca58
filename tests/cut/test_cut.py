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
    """All that comes before a write was done, and it was not; what was asked for was answered, and nobody knows."""
    return point.moment == (AFTER if point.name.startswith(("kgc.", "csp.", "sp.")) else BEFORE)


def one_of_each_kind(every: Sequence[Point], known: Collection[tuple[str, str, str]] = ()) -> list[Point]:
    """Of those that are not known, always the same ones."""
    kinds: dict[tuple[str, str, str], list[Point]] = {}
    for point in filter(is_telling, every):
        kinds.setdefault(kind_of(point), []).append(point)
    draw = random.Random(36)  # noqa: S311 -- no secret
    found = {draw.choice(alike) for kind, alike in kinds.items() if kind not in known}
    return [point for point in every if point in found]


def test_a_process_that_dies_at_a_write_or_message_of_any_kind_changes_nothing():
    """In the shorter campaign what both have, and in the other one the rest."""
    every = {name: points(script) for name, (script, _) in SCRIPTS.items()}
    short = one_of_each_kind(every["noise"])
    rest = one_of_each_kind(every["reference"], {kind_of(point) for point in short})
    assert {point.process.partition("/")[0] for point in short} == {"kgc", "sp", "csp", "requester", "people"}
    survive("noise", short)
    survive("reference", rest)


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
