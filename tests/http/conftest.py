"""A platform for each test that changes it, and one for each module that does not mind."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import structlog
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.http.world import Person, World


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[dict[str, object]]]:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as entries:
        yield entries  # type: ignore[misc]


@pytest.fixture
def world(tmp_path, portal) -> Iterator[World]:
    """KGC, SP and CSP with a token for every role."""
    world = World(tmp_path, portal)
    yield world
    world.close()


@dataclass
class Campaign:
    world: World
    task: str
    people: list[Person]
    update: bytes


@pytest.fixture(scope="module")
def campaign(tmp_path_factory, portal) -> Iterator[Campaign]:
    """One open round for a module; a test that uploads joins as somebody new."""
    world = World(tmp_path_factory.mktemp("platform"), portal)
    task, people = world.open_round(max_participants=40)
    yield Campaign(world, task, people, people[0].update())
    world.close()


@pytest.fixture
def person(campaign) -> Person:
    campaign.people.append(campaign.world.add_person(campaign.task))
    return campaign.people[-1]
