"""Client sampling: `per_round` people are drawn for each round; the others wait, and are neither refused nor missed."""

import pytest

from crowdfl.errors import NotDrawn, RoundNotOpen, SettingsError
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import Round, RoundState
from crowdfl.roles.sp.core import draw_at_random
from crowdfl.roles.waiting import waits_for
from crowdfl.settings import TaskSettings
from tests.hosts import Desk, heard, moved_by, unchanged
from tests.roles.test_reminders import AUTH, BROWSER, ENDPOINT, HOSTS

DRAWN = {"per_round": 4, "max_participants": 12}


def drawn(desk: Desk, number: int) -> set[str]:
    return set(desk.sp.store.drawn(desk.task, number))


def test_a_round_closes_once_all_who_were_drawn_have_sent_and_pays_them_alone(tmp_path):
    desk = Desk.funded(tmp_path, people=9, **DRAWN)
    chosen, told = drawn(desk, 1), {person.keys.who: heard(person) for person in desk.crowd}
    assert len(chosen) == 4
    assert chosen < set(told)
    for person in desk.crowd:
        person.step(unchanged)
        person.step(unchanged)  # who is not in it asks once
    assert desk.clock.time == 1000.0
    desk.run()
    assert desk.sp.store.round(desk.task, 1).state is RoundState.REWARDED  # nobody waited for the other five
    for person in desk.crowd:
        person.step(unchanged)
    for who, events in told.items():
        happened = [what for what, details in events if details.get("round") == 1]
        assert ("uploaded" in happened) == ("rewarded" in happened) == (who in chosen)
        assert happened.count("not drawn") == (who not in chosen)
        assert "read" in happened  # averages are for all


def test_who_was_drawn_stays_so_when_sp_restarts_and_is_drawn_anew_in_the_next_round(tmp_path, monkeypatch):
    desk = Desk.funded(tmp_path, people=9, **DRAWN)
    first = drawn(desk, 1)
    desk.restart()
    desk.run()
    assert drawn(desk, 1) == first
    monkeypatch.setattr(
        desk.options, "draw", lambda number, people, count: [w for w in people if w not in first][:count]
    )
    desk.restart()
    for person in desk.crowd:
        person.step(unchanged)
    desk.run()
    assert len(drawn(desk, 2)) == 4
    assert not drawn(desk, 2) & first


def test_an_upload_of_somebody_else_is_refused_by_name(tmp_path):
    """Also of one who was told otherwise: by a platform that was set back and drew again, say."""
    desk = Desk.funded(tmp_path, people=9, **DRAWN)
    other = next(person for person in desk.crowd if person.keys.who not in drawn(desk, 1))
    other.encrypt(1, *moved_by(0.5)(other.model(), {}, 1))
    upload = other.blobs.get("rounds/1/upload")
    with pytest.raises(NotDrawn, match="you may be drawn later"):
        desk.sp.uploads.one(desk.task, 1, other.keys.who, upload)
    assert desk.sp.store.uploads(desk.task, 1) == []
    events = heard(other)
    assert other.send(1)
    assert [what for what, _ in events] == ["refused"]


def test_who_comes_later_fills_a_round_that_was_drawn_of_fewer(tmp_path):
    desk = Desk.funded(tmp_path, people=3, **DRAWN)
    assert len(drawn(desk, 1)) == 3
    fourth, fifth = desk.invite(2)[-2:]
    assert drawn(desk, 1) == {person.keys.who for person in desk.crowd} - {fifth.keys.who}
    assert desk.sp.uploads.is_drawn(desk.task, 1, fourth.keys.who)
    assert desk.sp.store.turnout(desk.task, 1) == (0, 4)


def test_others_are_drawn_for_who_stays_away_and_all_may_send_until_the_round_is_full(tmp_path):
    """At half of the window, durably, once; at most as many uploads as the round was planned for."""
    desk = Desk.funded(tmp_path, people=9, plan={"closes": "deadline"}, **DRAWN)
    first = drawn(desk, 1)
    inside = [person for person in desk.crowd if person.keys.who in first]
    for person in [inside[0], *(one for one in desk.crowd if one not in inside)]:
        person.step(unchanged)
    desk.later(desk.settings.window / 2 - 1)
    assert drawn(desk, 1) == first
    desk.later(1)
    desk.restart()
    desk.run()
    more = drawn(desk, 1) - first
    assert (len(more), first < drawn(desk, 1), desk.sp.store.turnout(desk.task, 1)) == (3, True, (1, 6))
    assert waits_for(desk.requester.definition(desk.task), desk.sp.tasks.status(desk.task), {}) == [
        "uploads to round 1: 1 of 4 have come"
    ]
    added = [person for person in desk.crowd if person.keys.who in more]
    told = heard(added[0])
    for person in (added[0], inside[1], added[1]):
        person.step(unchanged)
    assert [what for what, _ in told] == ["trained", "uploaded"]
    (late,), last = [person for person in added if person not in added[:2]], heard(inside[2])
    late.encrypt(1, *unchanged(late.model(), {}, 1))
    with pytest.raises(RoundNotOpen, match="all the uploads that it takes"):
        desk.sp.uploads.one(desk.task, 1, late.keys.who, late.blobs.get("rounds/1/upload"))
    inside[2].step(unchanged)
    assert [what for what, _ in last] == ["trained", "refused"]
    desk.run()
    assert desk.sp.store.round(desk.task, 1).state is RoundState.REWARDED
    assert len(desk.sp.store.uploads(desk.task, 1)) == 4


def test_a_round_that_is_extended_draws_once_more_and_those_are_reminded(tmp_path):
    desk = Desk.funded(tmp_path, people=9, **DRAWN)
    desk.sp.options.push_hosts = HOSTS
    for person in desk.crowd:
        desk.sp.reminders.subscribe(desk.task, person.keys.who, ENDPOINT, BROWSER.public, AUTH)
    first = drawn(desk, 1)
    desk.sp.reminders.due()
    desk.later(desk.settings.window / 2)
    second = drawn(desk, 1) - first
    reminded = desk.sp.reminders.due()
    assert ({one.subscription.who for one in reminded}, {one.message for one in reminded}) == (second, {"opened"})
    desk.later(desk.settings.window / 2)
    assert desk.sp.store.round(desk.task, 1).extended
    assert drawn(desk, 1) == {person.keys.who for person in desk.crowd}
    assert {one.subscription.who for one in desk.sp.reminders.due()} == drawn(desk, 1) - first - second
    for person in desk.crowd:
        person.step(unchanged)
    desk.run()
    assert len(desk.sp.store.uploads(desk.task, 1)) == 4


def test_nobody_waits_for_one_who_was_drawn_and_has_left(tmp_path):
    desk = Desk.funded(tmp_path, people=9, **DRAWN)
    inside = [person for person in desk.crowd if person.keys.who in drawn(desk, 1)]
    inside[0].leave()
    for person in inside[1:]:
        person.step(unchanged)
    desk.run()
    assert desk.sp.store.round(desk.task, 1).state is RoundState.REWARDED


def test_nobody_is_drawn_who_would_come_late():
    settings = TaskSettings.of(**DRAWN, window=100.0, late=50.0)
    found = {
        now: Round(1, 0.0).decide(settings, now, uploads=3, enrolled=4).redrawn for now in (49.0, 50.0, 99.0, 101.0)
    }
    assert found == {49.0: 0, 50.0: 1, 99.0: 1, 101.0: 0}


def test_a_draw_is_of_everyone_alike():
    """Each of nine is in a draw of three with one chance in three: 9000 draws hold 3000 of each, give or take seven sigmas."""
    counts = dict.fromkeys("abcdefghi", 0)
    for _ in range(9000):
        for who in draw_at_random(1, list(counts), 3):
            counts[who] += 1
    assert sum(counts.values()) == 27000
    assert all(2680 < count < 3320 for count in counts.values())


@pytest.mark.parametrize("wrong", [{"per_round": 2}, {"per_round": 37}, {"per_round": 4, "min_participants": 5}])
def test_more_than_the_least_and_fewer_than_the_most_can_be_drawn(wrong):
    with pytest.raises(SettingsError, match="per_round"):
        TaskSettings.of(**wrong)


def test_widths_follow_how_many_are_in_a_round():
    """A crowd of 4096 of which 8 are drawn needs no more room than a crowd of 8."""
    few = {"max_norm": 5.0, "weighting": "equal"}
    sampled = TaskSettings.of(max_participants=4096, per_round=8, **few)
    whole = TaskSettings.of(max_participants=8, **few)
    profile = profile_named("shares")
    assert profile.explain(sampled, 100) == profile.explain(whole, 100)
