"""Roles do the same under every profile: here tasks are in the clear, but for tests that name a profile or are `hardened`."""

import pytest

from tests import hosts
from tests.simulation.conftest import clear_profile as clear_profile  # noqa: PLC0414 -- a fixture


@pytest.fixture(autouse=True)
def clear_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("hardened") is None:
        monkeypatch.setitem(hosts.SMALL_TASK, "profile", "clear")
