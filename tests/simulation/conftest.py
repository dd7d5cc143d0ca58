"""The clear profile is there for these tests alone, and nothing waits for the disk: what dies here are objects."""

import os
from collections.abc import Iterator
from functools import cache

import pytest

from crowdfl.documents.signed import Definition
from crowdfl.protocols.registry import PROFILES
from tests.clear import ClearProfile


@pytest.fixture(autouse=True, scope="module")
def clear_profile() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, ClearProfile.name, ClearProfile())
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(Definition, "open", staticmethod(cache(Definition.open)))  # thousands of times the same text
        yield
