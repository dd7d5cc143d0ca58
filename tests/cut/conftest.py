"""Thousands of times the same definition is opened: its signature is checked once."""

from functools import cache

import pytest

from crowdfl.documents.signed import Definition


@pytest.fixture(autouse=True)
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Definition, "open", staticmethod(cache(Definition.open)))
