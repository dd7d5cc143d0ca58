"""Whom CSP was told of: once each, in order; a round asks for nobody whom CSP knows."""

import contextlib

import pytest

from crowdfl.errors import ServiceUnavailable, TaskFull
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.csp_link import CspEnrolment
from tests.hosts import BUDGET, Desk, FileDisk, moved_by

TASK = {"rounds": 3}


class Wire:
    """CSP as SP reaches it: what is asked is noted, and some of it is lost or refused."""

    def __init__(self, csp) -> None:
        self.csp, self.enrolled, self.lost, self.full = csp, [], 0, set()

    def prepare(self, task):
        self.csp.prepare(task)

    def enrol(self, task, certificate):
        """Unless it is lost on the way, or CSP has no place."""
        self.enrolled.append(certificate)
        if self.lost:
            self.lost -= 1
            raise ServiceUnavailable("lost")
        if certificate in self.full:
            raise TaskFull("no place at CSP")
        self.csp.enrol(task, certificate)

    def answer(self, task, request, _longest=0):
        return self.csp.answer(task, request)


class WiredDesk(Desk):
    """A desk whose SP reaches CSP over a wire that the test holds."""

    def new_sp(self, options: SpOptions | None = None, disk: FileDisk | None = None):
        sp = super().new_sp(options, disk)
        self.wire = sp.ports.csp = Wire(sp.ports.csp)
        return sp


@pytest.fixture
def desk(tmp_path) -> WiredDesk:
    """Three people, whom CSP has not heard of yet."""
    desk = WiredDesk(tmp_path, **TASK)
    desk.invite(3)
    desk.requester.fund(desk.task, 3 * BUDGET)
    return desk


def play_round(desk):
    """Everyone uploads, and the round goes on as far as it can."""
    desk.run()
    desk.play(train=moved_by(0.1, 3))


def test_a_round_of_people_whom_csp_knows_asks_for_none_of_them(desk):
    """Each was told of once, when it joined."""
    play_round(desk)
    assert len(desk.wire.enrolled) == 3
    desk.wire.enrolled.clear()
    play_round(desk)
    play_round(desk)
    assert desk.sp.store.round(desk.task, 3).state == "rewarded"
    assert desk.wire.enrolled == []


def test_a_process_that_was_restarted_asks_for_nobody_again(desk):
    """How far CSP was told is on disk."""
    play_round(desk)
    desk.restart()
    play_round(desk)
    assert desk.wire.enrolled == []
    assert desk.sp.store.round(desk.task, 2).state == "rewarded"


def test_a_newcomer_is_told_of_before_the_round_that_it_is_in(desk):
    """And nobody else with it."""
    play_round(desk)
    desk.wire.enrolled.clear()
    desk.invite(1)
    play_round(desk)
    assert len(desk.wire.enrolled) == 1
    assert desk.sp.store.round(desk.task, 2).state == "rewarded"


def test_a_lost_message_is_sent_again_before_the_round_is_computed(desk, monkeypatch):
    """CSP refuses a round of strangers: whoever is in it is told of first, even if the worker never came to it."""
    monkeypatch.setattr(CspEnrolment, "due", lambda *_: False)
    desk.wire.lost = 2
    for _ in range(3):
        with contextlib.suppress(ServiceUnavailable):
            play_round(desk)
    assert len(desk.wire.enrolled) == 5
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"


def test_one_whom_csp_refuses_voids_each_round_that_it_is_in(desk):
    """Also after a restart; without it, rounds go on; if CSP takes it in the end, so does the round."""
    refused = desk.crowd[0]
    certificate = refused.blobs.get("certificate").decode()
    desk.wire.full.add(certificate)
    play_round(desk)
    assert desk.sp.store.round(desk.task, 1).state == "aborted"
    desk.restart()
    desk.wire.full.add(certificate)
    play_round(desk)
    assert desk.sp.store.round(desk.task, 2).state == "aborted"
    assert desk.wire.enrolled == [certificate]
    desk.wire.full.clear()
    play_round(desk)
    assert desk.sp.store.round(desk.task, 3).state == "rewarded"
