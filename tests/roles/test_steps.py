"""Steps of several tasks, and for how long one has been due."""

import threading
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import Cancelled, Forbidden, RoundNotOpen, ServiceUnavailable
from crowdfl.roles.sp.operator import retry_round
from crowdfl.services.background.workers import StepThreads
from tests.hosts import HARDENED, Desk, raising


def closed_round(folder: Path, **settings: Any) -> Desk:
    desk = Desk.funded(folder, 3, **settings)
    desk.upload()
    return desk


def test_a_step_that_keeps_failing_grows_old(tmp_path, monkeypatch):
    """However often it is tried; once it is taken, or the task is paused, nothing is old."""
    desk = closed_round(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(desk.csp, "answer", raising(ServiceUnavailable("CSP is away")))
        for _ in range(3):
            with pytest.raises(ServiceUnavailable):
                desk.run()
            desk.clock.time += 20.0
        assert desk.sp.oldest_step() == 60.0
        desk.requester.order(desk.task, "pause")
        desk.run()
        assert desk.sp.oldest_step() == 0.0
        desk.requester.order(desk.task, "resume")
        with pytest.raises(ServiceUnavailable):
            desk.run()
        desk.clock.time += 20.0
        assert desk.sp.oldest_step() == 20.0
    desk.run()
    assert desk.sp.oldest_step() == 0.0


def test_whoever_waits_for_a_peer_leaves_its_place_to_others():
    """Ten steps wait at once, where four compute; none of them has a place before it goes on."""
    steps, all_wait, answered = StepThreads(0.0), threading.Barrier(11), threading.Event()

    def step():
        with steps.waiting():
            all_wait.wait(60)
            answered.wait(60)
        return True

    begun = [steps.begin(step) for _ in range(10)]
    all_wait.wait(60)
    assert steps.begin(lambda: "computed").result(60) == "computed"
    answered.set()
    assert all(future.result(60) for future in begun)


def test_few_steps_are_computed_at_a_time():
    steps, lock, go, most = StepThreads(0.0), threading.Lock(), threading.Semaphore(0), [0, 0]

    def step():
        with lock:
            most[0] += 1
            most[1] = max(most)
        go.acquire()
        with lock:
            most[0] -= 1

    begun = [steps.begin(step) for _ in range(10)]
    for _ in begun:
        go.release()
    for future in begun:
        future.result(60)
    assert most[1] <= 4


def test_after_the_end_no_step_asks_a_peer():
    steps = StepThreads(0.0)
    steps.stop()
    with pytest.raises(Cancelled), steps.waiting():
        pass


SHARES = {"lanes": 256, "max_norm": 2.0, "cohort": 2}
PROFILES = [HARDENED, SHARES]


def void(desk: Desk, number: int = 1) -> None:
    retry_round(desk.sp.ports, desk.task, number, desk.options.lease_seconds, void=True)


def states(desk: Desk) -> list[str]:
    return [str(one.state) for one in desk.sp.store.rounds(desk.task)]


class Cut:
    """CSP, until so many answers have come; later ones are lost."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.asked: list[bytes] = []
        answer = desk.csp.answer

        def cut(task, request, *rest):
            self.asked.append(request)
            reply = answer(task, request, *rest)
            if len(self.asked) > after:
                raise ServiceUnavailable("the answer was lost")
            return reply

        monkeypatch.setattr(desk.csp, "answer", cut)


@pytest.mark.parametrize("settings", PROFILES, ids=["hardened", "shares"])
def test_a_void_round_returns_its_money_and_the_next_one_goes_on(tmp_path, monkeypatch, settings):
    """CSP has begun with it; what was dealt for it serves no other round."""
    desk = closed_round(tmp_path, **settings)
    with monkeypatch.context() as patched:
        Cut(desk, patched, after=1)
        with pytest.raises(ServiceUnavailable):
            desk.run()
    void(desk)
    desk.later(desk.options.lease_seconds)
    assert states(desk) == ["aborted", "open"]
    assert desk.sp.store.sp_record(desk.task, 1).round == b""
    desk.play()
    assert states(desk) == ["aborted", "rewarded"]


def test_a_round_whose_sum_csp_has_opened_is_not_made_up_for_by_another(tmp_path, monkeypatch):
    """The task ends before its next round, as if CSP had stayed away: no model follows from a sum that SP never saw."""
    desk = closed_round(tmp_path, **SHARES)
    with monkeypatch.context() as patched:
        line = Cut(desk, patched, after=10**6)
        desk.run()
        whole = len(line.asked)
    other = closed_round(tmp_path / "other", **SHARES)
    with monkeypatch.context() as patched:
        Cut(other, patched, after=whole - 1)
        with pytest.raises(ServiceUnavailable):
            other.run()
    void(other)
    other.later(other.options.lease_seconds)
    other.play()
    assert other.sp.tasks.status(other.task)["ended"]["why"] == "cancelled"
    assert other.state == "settled"  # nothing is owed to anybody
    assert states(other) == ["aborted"]


@pytest.mark.parametrize("settings", PROFILES, ids=["hardened", "shares"])
def test_a_round_that_is_retried_sends_the_same_bytes(tmp_path, monkeypatch, settings):
    """By another process, once the lease of the one that waits is gone; the one that waits stops."""
    desk = closed_round(tmp_path, **settings)
    with monkeypatch.context() as patched:
        line = Cut(desk, patched, after=2)
        with pytest.raises(ServiceUnavailable):
            desk.run()
    lost = line.asked[-1]
    assert desk.sp.store.lease(desk.task, "a process that waits", desk.clock.now(), desk.options.lease_seconds)
    retry_round(desk.sp.ports, desk.task, 1, desk.options.lease_seconds)
    assert not desk.sp.store.lease(desk.task, "a process that waits", desk.clock.now(), desk.options.lease_seconds)
    desk.clock.time += desk.options.lease_seconds
    line = Cut(desk, monkeypatch, after=10**6)
    desk.run()
    assert line.asked[0] == lost
    assert states(desk)[0] == "rewarded"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_is_not_under_way_cannot_be_voided(tmp_path, number):
    desk = closed_round(tmp_path)
    desk.run()
    if number == 2:
        number = 3
    with pytest.raises(RoundNotOpen, match="is not under way"):
        void(desk, number)


def test_a_step_that_waits_ends_when_its_round_is_voided(tmp_path, monkeypatch):
    """In the process that waits for CSP: its next look at its lease ends it, and nothing of it counts."""
    desk = closed_round(tmp_path)
    desk.options.runner = steps = StepThreads(0.01)
    desk.options.lease_seconds = 0.3
    asked, over, answer = threading.Event(), threading.Event(), desk.csp.answer

    def hang(*request):
        asked.set()
        assert over.wait(60)
        return answer(*request)

    monkeypatch.setattr(desk.csp, "answer", hang)
    while not asked.is_set():
        desk.sp.tick()
    void(desk)
    with pytest.raises(Forbidden):
        desk.run()
    over.set()
    steps.stop()
    assert states(desk) == ["aborted"]
