"""Roles do the same under every profile: here tasks are in the clear, but for tests that name a profile or are `hardened`."""

import pytest

from crowdfl.protocols.registry import PROFILES
from tests import hosts
from tests.clear import ChainedProfile
from tests.simulation.conftest import clear_profile as clear_profile  # noqa: PLC0414 -- a fixture


@pytest.fixture(autouse=True)
def clear_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("hardened") is None:
        monkeypatch.setitem(hosts.SMALL_TASK, "profile", "clear")


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> ChainedProfile:
    """The chained one, known by its name as a real one."""
    made = ChainedProfile()
    monkeypatch.setitem(PROFILES, made.name, made)
    return made
