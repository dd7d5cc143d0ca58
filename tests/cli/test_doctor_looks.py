"""`crowdfl doctor` says when idle phones look too rarely for the windows of tasks under way."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from crowdfl.cli.doctor import looks
from tests.hosts import Desk


@pytest.mark.parametrize(
    ("active", "rate", "state"), [(1_000, 50.0, "ok"), (100_000, 50.0, "warn"), (100_000, 5e3, "ok")]
)
def test_half_a_window_must_be_enough_for_everyone_to_hear(tmp_path, monkeypatch, active, rate, state):
    desk = Desk(tmp_path)
    store, whole = desk.sp.store, desk.sp.store.status
    monkeypatch.setattr(store, "status", lambda task: replace(whole(task), active=active))
    monkeypatch.setattr(looks, "SqlStore", lambda _url: store)
    monkeypatch.setattr(looks, "closing", nullcontext)
    settings: Any = SimpleNamespace(database="postgresql:", database_url="", looks_per_second=rate)
    (found,) = looks.looks_checks(settings)
    assert found.verdict == state
    if state == "warn":
        assert "looks_per_second` to 3000" in found.advice
        assert "open for" in found.found
