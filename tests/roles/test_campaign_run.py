"""A requester's campaign: from the task to the model and the bill, with the real roles and no waiting."""

from types import SimpleNamespace

import numpy as np
import pytest

from crowdfl.errors import NotReady, SettingsError
from crowdfl.roles.dealt import dealt_words
from crowdfl.roles.following import Following
from crowdfl.settings import TaskSettings
from tests.hosts import Desk, raising, small_definition

PEOPLE = 3


class Crowd:
    """People who join when invited, and do what is due whenever the requester waits."""

    def __init__(self, folder, *, joins=True) -> None:
        self.desk, self.joins, self.saved = Desk(folder), joins, []

    def run(self, wait):
        """What a campaign for the desk's task told, but for the status."""
        told = []
        campaign = Following(self.desk.requester, wait, lambda what, details: told.append((what, details)))
        definition = self.desk.requester.definition(self.desk.task)
        campaign.run(definition, self.desk.initial, PEOPLE, invite=self.invite, save=self.save)
        return {what: details for what, details in told if what != "status"}

    def invite(self, task, count):
        assert task == self.desk.task
        running = self.desk.sp.tasks.status(task)["state"] == "running"
        self.desk.invite(count if self.joins and running else 0)
        return "a folder"

    def save(self, definition, arrays):
        self.saved.append((definition.task, arrays))
        return "a file"

    def take_part(self, _seconds):
        """The people's work while the requester waits."""
        self.desk.later(10.0)
        for person in self.desk.crowd:
            person.step(lambda arrays, _settings, number: ([array + number for array in arrays], 5))
            if person.state == "finished":
                person.claim()
        self.desk.run()

    def cancel(self, _seconds):
        """The requester changes its mind, and time passes."""
        if self.desk.sp.tasks.status(self.desk.task)["state"] == "running":
            self.desk.requester.order(self.desk.task, "cancel")
        self.desk.later(100.0)


def test_a_campaign_runs_from_the_task_to_the_model_and_the_bill(tmp_path):
    """Each step once, in order; the money covers every round, and the books are balanced at the end."""
    crowd = Crowd(tmp_path)
    facts = crowd.run(crowd.take_part)
    assert list(facts) == ["created", "invited", "funded", "fetched", "report"]
    definition = crowd.desk.sp.core.definition(crowd.desk.task)
    assert facts["created"] == {"task": crowd.desk.task, "parameters": 8, "dealt": dealt_words(definition)}
    assert facts["invited"] == {"people": PEOPLE, "folder": "a folder"}
    assert facts["funded"] == {"amount": "72", "currency": "EUR", "deposit": "all-rounds"}
    assert facts["fetched"] == {"model": "a file"}
    bill = facts["report"]
    assert bill["paid_in"] == bill["earned"] + bill["returned"] == 72_000_000
    ((task, arrays),) = crowd.saved
    assert task == crowd.desk.task
    for array, start in zip(arrays, crowd.desk.initial, strict=True):
        assert np.allclose(array, start + 3.0)  # 1 more, then 2 more
    # Run again after its end: the task cannot be made again, but its model can be fetched, and nothing is paid twice.
    again = crowd.run(crowd.take_part)
    assert list(again) == ["created", "invited", "fetched", "report"]
    assert (again["created"], again["report"]) == (facts["created"], bill)
    assert len(crowd.saved) == 2


def test_a_task_that_is_cancelled_before_a_round_has_no_model(tmp_path):
    crowd = Crowd(tmp_path)
    facts = crowd.run(crowd.cancel)
    assert "there is no model" in facts["no model"]["why"]
    assert crowd.saved == []
    assert facts["report"]["returned"] == facts["report"]["paid_in"] == 72_000_000


def test_repro_a_task_that_is_cancelled_before_everyone_joined_is_reported(tmp_path):
    """It is not funded any more: SP takes no money for a task that has ended."""
    crowd = Crowd(tmp_path, joins=False)
    assert list(crowd.run(crowd.cancel)) == ["created", "invited", "no model", "report"]


@pytest.mark.parametrize(("people", "why"), [(6, "max_participants = 5"), (3, "min_participants = 4: no round")])
def test_more_or_fewer_people_than_the_task_takes_are_refused_before_anything_is_made(people, why):
    definition = SimpleNamespace(settings=SimpleNamespace(max_participants=5, min_participants=4))
    campaign = Following(None, None)
    with pytest.raises(SettingsError, match=why):
        campaign.run(definition, [], people, invite=None, save=None)


class Sp:
    """A platform whose task goes through these states."""

    def __init__(self, *states):
        self._states = list(states)

    def status(self, _task):
        return {"state": self._states.pop(0) if len(self._states) > 1 else self._states[0], "enrolled": 0, "rounds": []}


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
    definition = small_definition(TaskSettings.of(max_participants=5, min_participants=3))
    requester = SimpleNamespace(sp=Sp(*states), definition=lambda _task: definition)
    campaign = Following(requester, waits.append, lambda _what, status: heard.append(status["state"]), poll_seconds=2.0)
    campaign.watch("task", lambda status: status["state"] == "finished")
    assert heard == told
    assert waits == [2.0] * (len(states) - 1)


def test_a_task_without_a_budget_is_not_funded():
    heard = []
    requester = SimpleNamespace(
        sp=Sp("settled"),
        create=lambda _definition, _initial: "task",
        close_enrolment=lambda _task: None,
        definition=lambda _task: None,
        model=raising(NotReady("there is no model")),
        report=lambda _task: {"paid_in": 0},
    )
    settings = TaskSettings.of(profile="hardened", max_participants=5, min_participants=3, rounds=2, budget=None)
    definition = SimpleNamespace(settings=settings, spec=SimpleNamespace(parameters=8))
    campaign = Following(requester, None, lambda what, _details: heard.append(what))
    campaign.run(definition, [], 3, invite=lambda *_: "here", save=lambda *_: "there")
    assert heard == ["created", "invited", *["status"] * 2, "no model", "status", "report"]
