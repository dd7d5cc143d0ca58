"""Steps of several tasks, and for how long one has been due."""

import threading

import pytest

from crowdfl.errors import Cancelled, ServiceUnavailable
from crowdfl.services.background.workers import StepThreads
from tests.hosts import Desk


def closed_round(desk: Desk) -> None:
    desk.invite(3)
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    desk.upload(desk.crowd)


def test_a_step_that_keeps_failing_grows_old(tmp_path, monkeypatch):
    """However often it is tried; once it is taken, or the task is paused, nothing is old."""
    desk = Desk(tmp_path)
    closed_round(desk)

    def away(*_asked):
        raise ServiceUnavailable("CSP is away")

    with monkeypatch.context() as patched:
        patched.setattr(desk.csp, "answer", away)
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
