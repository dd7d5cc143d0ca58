"""Nothing waits for the disk: what dies in these tests are objects."""

import os
from collections.abc import Iterator
from functools import cache

import pytest

from crowdfl.documents.signed import Definition


@pytest.fixture(autouse=True, scope="module")
def swift() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(Definition, "open", staticmethod(cache(Definition.open)))  # thousands of times the same text
        yield
