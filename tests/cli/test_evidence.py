"""`crowdfl participant evidence`: what each server said, in words and as a file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdfl.cli import participant
from crowdfl.roles.participant.participant import Participant
from crowdfl.settings import AskerSettings
from tests.attacks.test_words import denied, finish


def said(monkeypatch: pytest.MonkeyPatch, person: Participant, *options: object) -> str:
    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[Participant]:
        yield person

    monkeypatch.setattr(participant, "open_participant", opened)
    found = CliRunner().invoke(participant.app, ["evidence", "invitation.json", *map(str, options)])
    assert found.exit_code == 0, found.output
    return found.output


def test_what_differs_is_shown_and_saved_with_whom_to_send_it_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = AskerSettings(name="Ada", contact="study@hospital.example")
    desk, person, _ = denied(tmp_path / "desk", "too late", rounds=1, study={"who": asker})
    assert said(monkeypatch, person).strip() == "the platform's word and the signed records agree"
    finish(desk)
    desk.upload()
    file = tmp_path / "evidence.json"
    shown = said(monkeypatch, person, "--out", file)
    assert "round 1: the platform said that it has not taken your upload" in shown
    assert "send it to: study@hospital.example" in shown
    kept = json.loads(file.read_text(encoding="utf-8"))
    assert kept == json.loads(said(monkeypatch, person, "--json"))
    assert kept["rounds"][0]["csp"]["code"] == "accepted"
