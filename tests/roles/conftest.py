"""What tests of roles share: nothing waits for the disk, and what KGC is asked for can be seen."""

import os
from collections.abc import Iterator

import pytest

from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.profile import SharesProfile


@pytest.fixture(autouse=True, scope="module")
def no_waiting() -> Iterator[None]:
    """What dies here are objects, never the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Role and number of the files that KGC was asked for."""
    made, deal = list[tuple[str, int]](), SharesProfile.dealt

    def noted(self: SharesProfile, spec: TaskSpec, source: bytes, role: str, number: int) -> Iterator[bytes]:
        made.append((role, number))
        return deal(self, spec, source, role, number)

    monkeypatch.setattr(SharesProfile, "dealt", noted)
    return made
