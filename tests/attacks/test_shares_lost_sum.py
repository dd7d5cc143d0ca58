"""A sum that CSP has opened and SP never got: every later model would follow from it, so that no phone trains for nothing."""

from pathlib import Path

import pytest

from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.round.transcript import StepRequest
from tests.attacks.test_shares_restored import SHARES, play
from tests.hosts import Desk

_LAST = 13  # step of a round that pays by `gate`


def test_a_task_whose_opened_sum_is_lost_ends_with_the_next_manifest(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "desk", **SHARES)
    desk.invite(4)
    desk.requester.fund(desk.task, 3 * 36_000_000, "all")
    desk.run()
    answer = desk.csp.answer

    def losing(task: str, request: bytes) -> bytes:
        reply = answer(task, request)
        if StepRequest.from_bytes(request, Limits.plain(1 << 24)).step == _LAST:
            raise ConnectionError
        return reply

    desk.csp.answer = losing  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        play(desk)
    desk.clock.time += 2 * desk.options.csp_patience
    desk.run()
    desk.csp.answer = answer  # type: ignore[method-assign]
    play(desk)
    status = desk.sp.status(desk.task)
    assert [entry["state"] for entry in status["rounds"]] == ["aborted", "aborted"]
    assert status["state"] == "cancelled"
    assert desk.sp.ledger(desk.task).balance("requester") == 0
