"""`crowdfl participant export`: all that a device holds of a task, but for its secrets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crowdfl.cli import participant
from crowdfl.roles.participant.export import SECRET
from crowdfl.roles.participant.participant import Participant
from tests.hosts import Desk


def test_receipts_records_consent_and_pay_are_written_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk.funded(tmp_path / "desk", 4, rounds=1)
    desk.play()
    person = desk.crowd[0]
    person.claim()

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[Participant]:
        yield person

    monkeypatch.setattr(participant, "open_participant", opened)
    file = tmp_path / "mine.json"
    said = CliRunner().invoke(participant.app, ["export", "invitation.json", str(file)])
    assert said.exit_code == 0, said.output
    assert file.stat().st_mode & 0o077 == 0, "for its owner alone"
    found = json.loads(file.read_text(encoding="utf-8"))
    held = set(person.blobs.listing())
    assert set(found["held"]) == held - set(SECRET)
    assert found["left out, as it is secret"] == ["bundle", "keys"]
    for wanted in ("definition", "certificate", "rounds/1/receipt", "rounds/1/reward", "claim"):
        assert wanted in found["held"], wanted
    secrets = [person.blobs.get("keys").decode(), *json.loads(person.blobs.get("keys"))]
    assert not [one for one in secrets if one in file.read_text(encoding="utf-8")]
