"""When a device takes no further part in a task by itself, and when it must not."""

from pathlib import Path

import pytest

from crowdfl.errors import RoundEnded, UploadRejected
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.protocols.shares.round.steps import shown_in
from crowdfl.roles.participant.agent import Agent
from tests.hosts import BUDGET, Desk, heard
from tests.roles.test_chain import TASK, moved_by, play_round


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk.funded(tmp_path, 4, **TASK | {"rounds": 8})


def void_round(desk: Desk, monkeypatch: pytest.MonkeyPatch, *, waits: bool = False) -> None:
    """It fails after CSP has shown who is within the bounds. `waits`: until the round's end, for whoever has not sent."""
    answer, shown = desk.csp.answer, shown_in(desk.crowd[0].side._shape)

    def failing(task: str, request: bytes, longest: int = 0) -> bytes:
        reply = answer(task, request, longest)
        is_step = Message.kind_of(request) == StepRequest.kind
        if is_step and StepRequest.from_bytes(request, Limits.plain(len(request))).step == shown:
            raise RoundEnded("something went wrong")
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(desk.csp, "answer", failing)
        play_round(desk)
        if waits:
            desk.later(desk.settings.window + desk.settings.late + 1)


def unused_round(desk: Desk) -> None:
    """Too few came: SP gives it up without CSP."""
    desk.run()
    for person in desk.crowd[:2]:
        person.step(moved_by(0.5))
    desk.later(3 * desk.settings.window + desk.settings.late)


def test_a_device_that_is_rejected_stays_away_and_still_claims(desk: Desk) -> None:
    """Also in its next process; an invitation does not bring it back."""
    person = desk.crowd[0]
    play_round(desk)
    play_round(desk, cheater=person)
    person.step(moved_by(0.5))
    desk.run()
    assert person.blobs.get("stopped").startswith(b"your upload of round 2 kept the task's bounds")
    for _ in range(2):
        person.step(moved_by(0.5))
    assert person.state == "left"
    assert not person.blobs.has("rounds/3/upload")
    with pytest.raises(UploadRejected, match="no further part"):
        person.join("an invitation")
    assert Agent(person, lambda _: None).person.has_left
    desk.requester.order(desk.task, "cancel")
    desk.run()
    assert person.claim() == BUDGET // 4


def test_a_device_stops_after_three_rounds_that_no_record_shows(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after three that came to nothing before the servers looked at an upload, nor for good rounds in between."""
    person = desk.crowd[0]
    said = heard(person)
    for _ in range(3):
        unused_round(desk)
    play_round(desk)
    for _ in range(2):
        void_round(desk, monkeypatch)
    play_round(desk)
    person.step(moved_by(0.5))
    assert "stopped" not in [what for what, _ in said]
    void_round(desk, monkeypatch)
    person.step(moved_by(0.5))
    assert [why["why"] for what, why in said if what == "stopped"] == [
        "3 rounds that you uploaded to came to nothing, and no signed record says why"
    ]
    assert person.has_left


def test_rounds_that_a_device_did_not_upload_to_do_not_count(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    late = desk.crowd[3]
    said = heard(late)
    monkeypatch.setattr(late, "_take_part", lambda *_: False)
    for _ in range(3):
        void_round(desk, monkeypatch)
        late.step(moved_by(0.5))
    assert not late.has_left
    assert "given up" not in [what for what, _ in said]
