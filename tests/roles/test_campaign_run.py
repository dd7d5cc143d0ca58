"""A requester's campaign: from the task to the model and the bill, with the real roles and no waiting."""

from types import SimpleNamespace

import numpy as np
import pytest

from crowdfl.errors import NotReady, SettingsError
from crowdfl.roles.campaign import Campaign
from tests.roles.desk import Desk

PEOPLE = 3


class Crowd:
    """Participants who join when invited, and do what is due whenever the requester waits."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.saved = desk, []

    def invite(self, task, count):
        assert task == self.desk.task
        self.desk.join(count)
        return "a folder"

    def save(self, definition, arrays):
        self.saved.append((definition.task, arrays))
        return "a file"

    def wait(self, _seconds):
        self.desk.clock.time += 10.0
        self.desk.run()
        for person in self.desk.people:
            person.step(lambda arrays, _settings, number: ([array + number for array in arrays], 5))
            if person.state == "finished":
                person.claim()
        self.desk.run()


def run(desk, crowd, wait):
    """A campaign for the desk's own task; what it told."""
    told = []
    campaign = Campaign(desk.requester, wait, lambda what, details: told.append((what, details)))
    definition = desk.requester.definition(desk.task)
    task = campaign.run(definition, desk.initial, PEOPLE, invite=crowd.invite, save=crowd.save)
    assert task == desk.task
    return told


def test_a_campaign_runs_from_the_task_to_the_model_and_the_bill(tmp_path):
    """Each step once, in order; the money covers every round, and the books are balanced at the end."""
    desk = Desk(tmp_path)
    crowd = Crowd(desk)
    told = run(desk, crowd, crowd.wait)
    steps = [what for what, _ in told if what != "status"]
    assert steps == ["created", "invited", "funded", "fetched", "report"]
    facts = dict(told)
    assert facts["created"] == {"task": desk.task, "parameters": 8}
    assert facts["invited"] == {"people": PEOPLE, "folder": "a folder"}
    assert facts["funded"] == {"amount": "72"}
    assert facts["fetched"] == {"model": "a file"}
    bill = facts["report"]
    assert bill["paid_in"] == bill["rewards"] + bill["returned"] == 72_000_000
    ((task, arrays),) = crowd.saved
    assert task == desk.task
    assert all(np.allclose(array, 2.0, atol=0.01) for array in arrays)  # 1 more, then 2 more, clipped at 2


def test_a_task_that_is_cancelled_before_a_round_has_no_model(tmp_path):
    """The requester is told why, and all of the money comes back."""
    desk = Desk(tmp_path)
    crowd = Crowd(desk)

    def cancel(_seconds):
        if desk.platform.status(desk.task)["state"] == "running":
            desk.requester.order(desk.task, "cancel")
        desk.clock.time += 100.0
        desk.run()

    told = run(desk, crowd, cancel)
    facts = dict(told)
    assert "there is no model" in facts["no model"]["why"]
    assert crowd.saved == []
    assert facts["report"]["returned"] == facts["report"]["paid_in"] == 72_000_000


def test_a_task_that_is_cancelled_before_everyone_joined_is_reported_too(tmp_path):
    """It is not funded any more."""
    desk = Desk(tmp_path)
    crowd = Crowd(desk)
    crowd.invite = lambda _task, _count: "a folder"

    def cancel(_seconds):
        if desk.platform.status(desk.task)["state"] == "running":
            desk.requester.order(desk.task, "cancel")
        desk.clock.time += 100.0
        desk.run()

    steps = [what for what, _ in run(desk, crowd, cancel) if what != "status"]
    assert steps == ["created", "invited", "no model", "report"]


def test_more_people_than_the_task_takes_are_refused_before_anything_is_made():
    """KGC and SP are not asked."""
    definition = SimpleNamespace(settings=SimpleNamespace(max_participants=5))
    campaign = Campaign(None, None)
    with pytest.raises(SettingsError, match="max_participants = 5"):
        campaign.run(definition, [], 6, invite=None, save=None)


class Sp:
    """A platform whose task goes through these states."""

    def __init__(self, *states):
        self._states = list(states)

    def status(self, _task):
        return {"state": self._states.pop(0) if len(self._states) > 1 else self._states[0], "enrolled": 0}


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (["running", "running", "paused", "finished"], ["running", "paused", "finished"]),
        (["running", "settled"], ["running", "settled"]),
    ],
)
def test_watching_tells_each_change_once_until_the_task_is_as_wanted(states, told):
    """A settled task changes no more, so nothing else can be waited for."""
    heard, waits = [], []
    requester = SimpleNamespace(sp=Sp(*states))
    campaign = Campaign(requester, waits.append, lambda _what, status: heard.append(status["state"]), poll_seconds=2.0)
    campaign.watch("task", lambda status: status["state"] == "finished")
    assert heard == told
    assert waits == [2.0] * (len(states) - 1)


def test_a_task_without_a_budget_is_not_funded():
    """And one that ended before everyone joined is still reported."""
    heard = []

    def refuse(_task):
        raise NotReady("there is no model")

    requester = SimpleNamespace(
        sp=Sp("settled"),
        create=lambda _definition, _initial: "task",
        close_enrolment=lambda _task: None,
        definition=lambda _task: None,
        model=refuse,
        report=lambda _task: {"paid_in": 0},
    )
    settings = SimpleNamespace(max_participants=5, rounds=2, budget=None)
    definition = SimpleNamespace(settings=settings, about=SimpleNamespace(parameters=8))
    campaign = Campaign(requester, None, lambda what, _details: heard.append(what))
    campaign.run(definition, [], 3, invite=lambda *_: "here", save=lambda *_: "there")
    assert heard == ["created", "invited", *["status"] * 2, "no model", "status", "report"]
