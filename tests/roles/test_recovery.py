"""What servers remember: SP the replies it had, CSP that it has stopped, both what was paid and told."""

import contextlib
from pathlib import Path

import pytest
import structlog.testing

from crowdfl.errors import NotReady, ProtocolError, RoundEnded, ServiceUnavailable
from crowdfl.protocols.messages import Message
from crowdfl.protocols.shares.round.csp import CspRound
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.services.background.workers import FailureBackoff
from tests.hosts import Desk, raising


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Four people, paid for, round one open and everyone's upload in."""
    desk = Desk.funded(tmp_path, 4)
    desk.upload()
    return desk


def ended_round(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """CSP fails at a step after the first, once."""
    with monkeypatch.context() as patch:
        patch.setattr(
            CspRound, "answer", lambda _self, _payload: 1 // 0
        )  # whatever it is, it is one and the same error
        desk.run()


def test_a_round_that_csp_has_ended_is_given_up_at_once(desk: Desk, monkeypatch):
    """Nothing is retried, its money is back in escrow, nobody gets its average, and the next round opens."""
    ended_round(desk, monkeypatch)
    status = desk.sp.tasks.status(desk.task)
    assert [entry["state"] for entry in status["rounds"]] == ["aborted", "open"]
    assert desk.ledger.balance("round 1") == 0
    for who in (None, desk.crowd[0].keys.who):
        with pytest.raises(NotReady):
            desk.sp.publication(desk.task, 1, who)


def test_a_round_that_has_ended_stays_so_after_a_restart(desk: Desk, monkeypatch):
    """Else every restart would be worth one more bit to an SP that deviates."""
    asked: list[bytes] = []
    whole = desk.csp.answer
    monkeypatch.setattr(
        desk.csp, "answer", lambda task, request, _longest=0: asked.append(request) or whole(task, request)
    )
    ended_round(desk, monkeypatch)
    desk.restart()
    steps = [request for request in asked if Message.kind_of(request) == StepRequest.kind]
    with pytest.raises(RoundEnded, match="round 1"):
        desk.csp.answer(desk.task, steps[-1])
    assert desk.csp.answer(desk.task, steps[0])  # what was answered before is answered the same


def test_a_model_that_cannot_be_delivered_keeps_no_money(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """Once nobody can wait any longer the task ends without it."""
    monkeypatch.setattr(desk.sp.settlement, "deliver", raising(ProtocolError("stopped")))
    for _ in range(4):
        with contextlib.suppress(ProtocolError):
            desk.run()
        desk.upload()
    assert desk.state == "running"
    desk.clock.time += 2 * desk.sp.options.csp_patience
    with contextlib.suppress(ProtocolError):
        desk.run()
    assert desk.state == "finished"
    assert desk.crowd[0].claim() > 0


def test_a_task_in_trouble_rests_and_the_others_go_on(desk: Desk):
    """A service does not raise: it logs which task failed, waits longer each time, and forgets that when it is over."""
    with structlog.testing.capture_logs() as logged:
        now = [0.0]
        rests = FailureBackoff(structlog.get_logger(), interval=1000.0, clock=lambda: now[0])
        desk.sp.options.failures = rests
        steps: list[str] = []
        step, broken = desk.sp.steps.step, [True]

        def breaking(task: str) -> bool:
            steps.append(task)
            if broken[0]:
                raise ServiceUnavailable("CSP is away")
            return step(task)

        desk.sp.steps.step = breaking  # type: ignore[method-assign]
        assert desk.sp.tick() is False
        assert desk.sp.tick() is False
    assert steps == [desk.task]
    assert [(entry["task"], entry["error"], entry["failures"]) for entry in logged] == [
        (desk.task, "ServiceUnavailable", 1)
    ]
    assert not rests.is_backing_off("another task")
    assert rests.is_backing_off(desk.task)
    now[0], broken[0] = 31.0, False
    desk.sp.tick()
    with structlog.testing.capture_logs() as later:
        rests.record_failure(desk.task, ServiceUnavailable("again"))
    assert later[0]["failures"] == 1
