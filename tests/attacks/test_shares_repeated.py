"""The same bytes get the same answer, also from a CSP that was still computing it when SP asked again."""

from pathlib import Path

import pytest

from tests.attacks.test_shares_restored import SHARES, play
from tests.hosts import Desk


def test_a_request_that_was_answered_while_its_repetition_waited_gets_that_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request comes twice, and the second one looks for an answer a moment before the first has one."""
    desk = Desk(tmp_path / "desk", **(SHARES | {"rounds": 1}))
    desk.invite(3)
    desk.requester.fund(desk.task, 36_000_000, "all")
    desk.run()
    answer, answered = desk.csp.answer, desk.csp.store.answered
    too_early: list[str] = []

    def look(task: str, name: str) -> str | None:
        if too_early:
            return too_early.clear()
        return answered(task, name)

    def twice(task: str, request: bytes) -> bytes:
        first = answer(task, request)
        too_early.append("one look")
        second = answer(task, request)
        assert first == second
        return second

    monkeypatch.setattr(desk.csp.store, "answered", look)
    desk.csp.answer = twice  # type: ignore[method-assign]
    play(desk)
    assert [entry["state"] for entry in desk.sp.status(desk.task)["rounds"]] == ["rewarded"]
