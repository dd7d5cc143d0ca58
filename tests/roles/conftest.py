"""Roles do the same under every profile: here tasks are in the clear, but for tests that name a profile or are `hardened`."""

from collections.abc import Iterator

import pytest

from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.profile import SharesProfile
from tests import hosts
from tests.simulation.conftest import clear_profile as clear_profile  # noqa: PLC0414 -- a fixture


@pytest.fixture(autouse=True)
def clear_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("hardened") is None:
        monkeypatch.setitem(hosts.SMALL_TASK, "profile", "clear")


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Role and number of the files that KGC was asked for."""
    made, deal = list[tuple[str, int]](), SharesProfile.dealt

    def noted(self: SharesProfile, spec: TaskSpec, source: bytes, role: str, number: int) -> Iterator[bytes]:
        made.append((role, number))
        return deal(self, spec, source, role, number)

    monkeypatch.setattr(SharesProfile, "dealt", noted)
    return made
