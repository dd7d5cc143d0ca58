"""A task's plan: who can join until when, when rounds open, when they close."""

import datetime
from dataclasses import replace
from typing import Any

import pytest

from crowdfl.documents.signed import Definition
from crowdfl.documents.task_summary import plan_lines
from crowdfl.errors import (
    DocumentError,
    EnrolmentOver,
    RoundNotOpen,
    SettingsError,
    TaskFull,
    TaskNotRunning,
)
from crowdfl.roles.defining import invitation_warning
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.roles.sp.uploads import PendingUpload
from crowdfl.roles.waiting import operator_waits_for, waits_for
from crowdfl.settings import PlanSettings
from tests.hosts import Desk, small_definition, unchanged

DAY = 86400.0
ROUND = {"budget": None, "decimals": 6, "clip": 16.0, "rounds": 2}


def at(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def planned(folder, people: int = 3, /, plan: dict[str, Any] | None = None, **settings: Any) -> Desk:
    desk = Desk(folder, plan, **ROUND | settings)
    desk.invite(people)
    desk.run()
    return desk


def newcomer(desk: Desk) -> tuple[Participant, str]:
    """Somebody with an invitation from before, who has not joined yet."""
    invitation = desk.requester.invite(desk.task, 1, 10 * DAY)[0]
    person = desk.new_participant(desk.task, "newcomer")
    return person, invitation


def test_the_first_round_waits_for_as_many_people_as_the_plan_says(tmp_path):
    desk = planned(tmp_path, 3, {"start_with": 5})
    assert desk.states() == []
    requester = desk.requester
    waits = waits_for(requester.definition(desk.task), desk.sp.tasks.status(desk.task), requester.report(desk.task))
    assert waits == ["2 more participants (3 of 5 have joined): invite people"]
    assert operator_waits_for(desk.sp.store, desk.sp.store.task(desk.task)) == ["2 more participants"]
    desk.invite(2)
    desk.run()
    assert desk.states() == ["open"]


def test_enrolment_that_is_over_starts_with_those_who_joined(tmp_path):
    desk = planned(tmp_path, 3, {"start_with": 5, "enrol_until": at(2000)})
    assert desk.states() == []
    desk.clock.time = 2001.0
    desk.run()
    assert desk.states() == ["open"]


def test_a_task_that_too_few_joined_in_time_ends_by_itself_and_returns_its_money(tmp_path):
    desk = Desk(tmp_path, {"enrol_until": at(2000)})
    desk.invite(2)
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    assert desk.state == "running"
    desk.clock.time = 2001.0
    desk.run()
    assert desk.sp.tasks.status(desk.task)["ended"] == {
        "why": "cancelled",
        "by": "plan",
        "reason": "2 had joined when enrolment ended, and 3 are needed",
    }
    assert desk.ledger.returned() == 72_000_000


def test_nobody_joins_after_enrolment_and_the_invitation_is_not_used_up(tmp_path):
    desk = planned(tmp_path, 3, {"enrol_until": at(2000), "start_at": at(5000)})
    person, invitation = newcomer(desk)
    assert desk.sp.tasks.status(desk.task)["enrolment"] == "open"
    desk.clock.time = 2001.0
    assert desk.sp.tasks.status(desk.task)["enrolment"] == "over"
    with pytest.raises(EnrolmentOver, match="not used up"):
        person.join(invitation)
    with pytest.raises(TaskNotRunning, match="nobody is invited"):
        desk.requester.invite(desk.task, 1, DAY)
    desk.clock.time = 1999.0
    assert person.join(invitation)  # it still serves


def test_a_platform_that_hides_the_end_of_enrolment_gets_nobody_certified(tmp_path):
    """KGC looks at its own clock, and at what the requester signed."""
    desk = planned(tmp_path, 3, {"enrol_until": at(2000), "start_at": at(5000)})
    person, invitation = newcomer(desk)
    desk.clock.time = 2001.0
    person._require_room = lambda **_: None
    with pytest.raises(EnrolmentOver):
        person.join(invitation)
    desk.clock.time = 1999.0
    assert person.join(invitation)


def test_who_joined_in_time_may_come_back_later(tmp_path):
    desk = planned(tmp_path, 4, {"enrol_until": at(2000), "start_at": at(5000)})
    desk.crowd[0].leave()
    desk.clock.time = 3000.0
    desk.crowd[0].join("")
    desk.run()
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 4


@pytest.mark.parametrize(("full", "error"), [(True, TaskFull), (False, TaskNotRunning)])
def test_a_task_that_is_full_or_over_says_so_before_an_invitation_is_used(tmp_path, full, error):
    desk = Desk(tmp_path, **ROUND)
    person, invitation = newcomer(desk)
    desk.invite(5 if full else 3)
    desk.run()
    if not full:
        desk.play(3)
        assert desk.state == "settled"
    with pytest.raises(error):
        person.join(invitation)
    assert not person.blobs.has("keys")  # KGC was not asked


def test_rounds_open_at_their_pace(tmp_path):
    desk = planned(tmp_path, 3, {"every": 1000.0})
    desk.play()
    assert desk.states() == ["rewarded"]
    assert desk.sp.tasks.status(desk.task)["next_round"] == 2000.0
    desk.clock.time = 1999.0
    desk.run()
    assert desk.states() == ["rewarded"]
    desk.clock.time = 2000.0
    desk.run()
    assert desk.states() == ["rewarded", "open"]
    assert desk.sp.tasks.status(desk.task)["next_round"] is None


def test_no_round_opens_before_the_plan_starts_whoever_has_joined(tmp_path):
    desk = planned(tmp_path, 5, {"start_at": at(5000)})
    assert desk.states() == []
    assert desk.sp.tasks.status(desk.task)["next_round"] == 5000.0
    desk.restart()
    desk.clock.time = 5000.0
    desk.run()
    assert desk.states() == ["open"]


def test_a_daily_round_waits_for_its_time_of_day_and_a_late_one_for_the_next(tmp_path):
    """18:00 of the first of January 1970 is 64,800 s."""
    desk = planned(tmp_path, 3, {"every": "day at 18:00 UTC"}, window=2 * DAY)
    assert desk.sp.tasks.status(desk.task)["next_round"] == 64_800.0
    desk.clock.time = 64_800.0
    desk.run()
    assert desk.states() == ["open"]
    desk.clock.time += DAY + 3600  # the last upload comes an hour after the second day's time
    desk.play()
    assert desk.states() == ["rewarded"]
    assert desk.sp.tasks.status(desk.task)["next_round"] == 64_800.0 + 2 * DAY


def test_the_time_of_day_follows_the_clocks_of_its_zone():
    """In Berlin summer time ended on 25 October 2026."""
    plan = PlanSettings(every="day at 18:00 Europe/Berlin")
    saturday = datetime.datetime(2026, 10, 24, 16, tzinfo=datetime.UTC).timestamp()
    assert plan.opening(saturday, None) == saturday
    assert plan.opening(saturday + 1, None) == saturday + DAY + 3600


def test_a_round_that_closes_by_its_deadline_waits_though_everyone_has_sent(tmp_path):
    desk = planned(tmp_path, 3, {"closes": "deadline"})
    desk.play()
    assert desk.states() == ["open"]
    desk.later(101.0)
    assert desk.states() == ["rewarded", "open"]


def test_a_round_takes_its_goal_and_who_comes_later_is_asked_in_the_next(tmp_path):
    """However many come at once: of the others no byte stays, and they are not in the average."""
    desk = planned(tmp_path, 5, {"closes": "deadline", "goal": 3})
    for person in desk.crowd:
        person.encrypt(1, *unchanged(person.model(), {}, 1))
    arrivals = [PendingUpload.of(one.keys.who, one.blobs.get("rounds/1/upload")) for one in desk.crowd]
    outcomes = desk.sp.uploads.receive(desk.task, 1, arrivals)
    assert [type(one) for one in outcomes] == [tuple] * 3 + [RoundNotOpen] * 2
    kept = [desk.sp.blobs.has(upload_name(desk.task, 1, one.digest)) for one in arrivals]
    assert kept == [True] * 3 + [False] * 2
    desk.run()
    assert desk.states() == ["rewarded", "open"]
    desk.upload(desk.crowd[3:])
    assert desk.sp.store.turnout(desk.task, 1)[0] == 3
    assert desk.sp.store.turnout(desk.task, 2)[0] == 2


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"enrol_until": "2026-12-01"}, "offset"),
        ({"enrol_until": "2026-12-01T18:00:00"}, "offset"),
        ({"start_at": "9999-12-31T23:00:00+00:00", "every": "day at 18:00"}, "offset"),
        ({"every": "day at 25:00 UTC"}, "day at 18:00 Europe/Berlin"),
        ({"every": "day at 18:00 Europe/Atlantis"}, "day at 18:00 Europe/Berlin"),
        ({"every": "day at 18:00 ../../etc/passwd"}, "day at 18:00 Europe/Berlin"),
        ({"starts_with": 5}, "did you mean `start_with`"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_in_words(plan, words):
    with pytest.raises(SettingsError, match=words):
        PlanSettings(**plan)


@pytest.mark.parametrize("plan", [{"start_with": 6}, {"goal": 6}])
def test_a_plan_for_more_people_than_the_task_takes_is_refused_by_everyone(tmp_path, plan):
    desk = Desk(tmp_path)
    with pytest.raises(DocumentError, match="max_participants"):
        Definition.open(_signed(desk, PlanSettings(**plan)))


def _signed(desk: Desk, plan: PlanSettings) -> str:
    definition = small_definition(desk.settings)
    own = desk.requester.signing
    return replace(definition, requester=own.public, plan=plan).dated(desk.clock.now()).sign(own)


def test_who_invites_many_to_a_trial_is_warned_that_it_waits_for_nobody(tmp_path):
    trial, planned_ = small_definition(Desk(tmp_path).settings), PlanSettings(start_with=4)
    assert "as soon as 3 people have joined" in invitation_warning(trial, 4)
    assert invitation_warning(trial, 3) == invitation_warning(replace(trial, plan=planned_), 4) == ""


def test_the_plan_is_told_in_the_order_in_which_things_happen(tmp_path):
    desk = Desk(
        tmp_path,
        {"enrol_until": at(2000), "start_with": 4, "every": "day at 18:00 Europe/Berlin", "closes": "deadline"},
    )
    assert plan_lines(desk.requester.definition(desk.task)) == [
        "Joining: until 1970-01-01T00:33:20+00:00, at most 5 people",
        "First round: once 4 people have joined, or enrolment is over",
        "Rounds: 2, at 18:00 Europe/Berlin; each takes uploads for 100 s",
        "The last round is over by 1970-02-02 17:03 UTC",
    ]
