"""What a task with noise costs a person: its whole epsilon at the first upload, whatever becomes of the rounds.

And that a server which dies and comes back adds the same noise: from two draws for one sum, their mean would have less.
"""

import hashlib
import json
import os
from collections import defaultdict

import pytest
from sqlalchemy import Engine, event

from crowdfl.documents.task_summary import task_summary
from crowdfl.errors import RoundEnded, SettingsError
from crowdfl.protocols.shares.round import average
from crowdfl.roles.csp import Csp
from crowdfl.roles.participant.participant import Participant
from crowdfl.services.client.opening import invited
from crowdfl.settings import ParticipantSettings
from tests import hosts
from tests.hosts import Desk, moved_by, raising

NOISY = {"check": "none", "budget": None, "min_participants": 3, "rounds": 4}
NOISY |= {"weighting": "equal", "max_norm": 2.0, "epsilon": 8.0, "noise": "any"}
STEP = {"server_step": "fedavgm", "server_rate": 0.5}


def play_round(desk, number, people):
    """With these, who look at what came of it, and send to the next one."""
    desk.run()
    for person in people:
        person.step(moved_by(0.1))
    while not desk.sp.store.round(desk.task, number).is_over:
        desk.later(100.0)
    for person in people:
        person.step(moved_by(0.1))


@pytest.fixture
def desk(request, tmp_path, monkeypatch):
    monkeypatch.delitem(hosts.SMALL_TASK, "decimals", raising=False)
    return Desk.funded(tmp_path, 4, **NOISY | getattr(request, "param", {}))


@pytest.mark.parametrize("desk", [{}, STEP], ids=["average", "server step"], indirect=True)
def test_a_task_is_charged_whole_at_the_first_upload_and_opened_rounds_spend_of_it(desk):
    """A server step is made of what was opened, and costs nothing. Who comes later is charged as much, and has spent less."""
    first, *_, late = desk.crowd
    assert first.epsilon() == {"charged": 0.0, "spent": 0.0, "others": 0.0}
    play_round(desk, 1, desk.crowd[:3])
    assert late.epsilon()["charged"] == 0
    play_round(desk, 2, desk.crowd)
    settings = desk.settings
    assert first.epsilon() == {"charged": 8.0, "spent": settings.epsilon_spent(2), "others": 0.0}
    assert late.epsilon() == {"charged": 8.0, "spent": settings.epsilon_spent(1), "others": 0.0}
    assert 0 < settings.epsilon_spent(1) < settings.epsilon_spent(2) < 8


def test_a_void_round_is_charged_and_has_spent_nothing(desk, monkeypatch):
    """What has left a device does not come back."""
    with monkeypatch.context() as patch:
        patch.setattr(desk.csp, "answer", raising(RoundEnded("something went wrong")))
        play_round(desk, 1, desk.crowd[:3])
    assert [person.epsilon()["charged"] for person in desk.crowd] == [8.0, 8.0, 8.0, 0.0]
    assert [person.epsilon()["spent"] for person in desk.crowd] == 4 * [0.0]


def test_a_cancelled_task_stays_charged(desk):
    play_round(desk, 1, desk.crowd[:3])
    desk.requester.order(desk.task, "cancel")
    desk.run()
    for person in desk.crowd:
        person.step(moved_by(0.1))
    assert desk.sp.tasks.status(desk.task)["ended"]["why"] == "cancelled"
    assert desk.crowd[0].state == "settled"  # nothing is owed to anybody
    assert [person.epsilon()["charged"] for person in desk.crowd] == [8.0, 8.0, 8.0, 0.0]
    assert desk.crowd[0].epsilon()["spent"] == desk.settings.epsilon_spent(1)


def test_the_charge_is_durable_before_the_upload_and_made_once(desk, monkeypatch):
    desk.run()
    person, order = desk.crowd[0], []
    put = person.blobs.put
    monkeypatch.setattr(person.blobs, "put", lambda name, data: (order.append(name), put(name, data)))
    person.step(moved_by(0.1))
    assert order.index("charged.json") < order.index("rounds/1/upload")
    play_round(desk, 1, desk.crowd[1:])
    play_round(desk, 2, desk.crowd)
    assert order.count("charged.json") == 1


def test_epsilons_of_a_person_s_tasks_are_added_up_before_joining(desk, tmp_path):
    """By the homes beside each other. Those of the same task are other people's."""
    given = {"task": desk.task, "invitation": "x", "kgc": "https://kgc.test", "sp": "https://sp.test", "ca": None}
    settings = ParticipantSettings(**given, kgc_key="11" * 32, sp_key="22" * 32, insecure_test_key=False)
    for place, (task, epsilon) in enumerate([("one", 2.0), ("two", 1.5), (desk.task, 8.0)]):
        (tmp_path / f"{place}.home").mkdir()
        (tmp_path / f"{place}.home/charged.json").write_text(
            json.dumps({"task": task, "epsilon": epsilon, "delta": 1e-5})
        )
    with invited(settings, tmp_path / "mine.home", Participant, reads=True) as person:
        told = task_summary(desk.crowd[0].look(), 5, person.charged_elsewhere)
    assert "epsilon 8, delta 1e-05 for your updates over all rounds; with your other tasks epsilon 11.5." in told
    (tmp_path / "0.home/charged.json").write_text("{")
    with pytest.raises(SettingsError, match=r"0\.home/charged\.json"), invited(settings, tmp_path / "x", Participant):
        pass


class Death(BaseException):
    """Nothing catches it."""


class Steps:
    """Commits and new files, counted down; the process dies before the last of them, once."""

    left = None

    def take(self, *_) -> None:
        if self.left is not None:
            self.left -= 1
            if not self.left:
                raise Death

    def wrapped(self, act):
        return lambda *given, **named: (self.take(), act(*given, **named))[1]


class Leaving:
    """The noise that is drawn, by sum, once it leaves its server or is bound to."""

    def __init__(self, steps: Steps) -> None:
        self.drawn, self.inside, self._steps = defaultdict(set), [], steps
        self._draw, self._answer = average.discrete_gaussian, Csp.answer

    def draw(self, seed, context, sigma, count):
        found = self._draw(seed, context, sigma, count)
        self.inside.append((context, (seed, found.tobytes())))
        return found

    def leave(self):
        for context, noise in self.inside:
            self.drawn[context].add(noise)
        self.inside.clear()

    def answer(self, csp, task, request, *rest):
        self.leave()
        try:
            reply = self._answer(csp, task, request, *rest)
        except Death:
            self._steps.left = None
            if csp.store.answered(task, hashlib.sha256(request).hexdigest()) is not None:
                self.leave()  # it was decided, and leaves when SP asks again
            raise
        self.leave()
        return reply


@pytest.mark.second
def test_a_server_that_dies_at_any_durable_step_draws_the_same_noise_again(desk, tmp_path, monkeypatch):
    """One seed for each server and sum in all that leaves it, whenever both die between the last upload and the average."""
    steps = Steps()
    leaving = Leaving(steps)
    drawn, inside = leaving.drawn, leaving.inside

    def answer(csp, *given):
        return leaving.answer(csp, *given)

    monkeypatch.setattr(Csp, "answer", answer)
    monkeypatch.setattr(average, "discrete_gaussian", leaving.draw)
    monkeypatch.setattr(os, "replace", steps.wrapped(os.replace))
    monkeypatch.setattr(os, "link", steps.wrapped(os.link))
    event.listen(Engine, "commit", steps.take)
    try:
        for death in range(1, 1000):
            one = Desk(tmp_path / str(death), **NOISY)
            one.invite(3)
            one.run()
            one.upload(train=moved_by(0.1))
            one.clock.time += 100.0
            drawn.clear()
            inside.clear()
            steps.left, died = death, False
            while True:
                try:
                    one.run()
                    if one.sp.store.round(one.task, 1).is_over:
                        break
                except Death:
                    steps.left, died = None, True
                    inside.clear()
                    one.restart()
                    one.clock.time += 1000.0  # leases of the dead end
            steps.left = None
            assert one.sp.store.round(one.task, 1).state == "rewarded"
            assert [len(seeds) for seeds in drawn.values()] == [2], f"before step {death}"
            if not died:
                break
    finally:
        event.remove(Engine, "commit", steps.take)
    assert death > 20  # there were as many
