"""Who could have sent in each round: nobody is missed who could not have, and what does not count is counted by its reason."""

import contextlib

import pytest

from crowdfl.errors import CrowdFLError
from crowdfl.reasons import Void
from crowdfl.roles.sp.turnout import compliance
from tests.hosts import Desk, unchanged


@pytest.fixture
def desk(tmp_path):
    return Desk.funded(tmp_path, 5, max_participants=6)


def seen(desk: Desk) -> dict[str, list[dict]]:
    return compliance(desk.sp.store, desk.sp.blobs, desk.task)


def rounds_of(desk: Desk, name: str) -> list[list[int]]:
    return [one[name] for one in seen(desk)["people"]]


def send(desk: Desk, *people: int) -> None:
    for number in people:
        with contextlib.suppress(CrowdFLError):
            desk.crowd[number].step(unchanged)


def test_who_could_not_have_sent_is_not_missed(desk):
    """One withdraws what it sent, one leaves, one is silent; a newcomer of the second round is not asked for the first."""
    send(desk, 0, 1, 2, 3)
    desk.sp.people.withdraw(desk.task, desk.crowd[3].keys.who)
    desk.later(10_000)
    desk.run()
    (first,) = seen(desk)["rounds"][:1]
    assert (first["asked"], first["sent"], first["missing"], first["left_out"]) == (5, 4, 1, {"withdrawn": 1})
    assert rounds_of(desk, "missing") == [[2], [2], [2], [], [1, 2]]  # the second is open
    assert rounds_of(desk, "taken_back")[3] == [1]


def test_a_void_round_says_why(desk):
    send(desk, 0)
    for _ in range(3):
        desk.later(10_000)
        desk.run()
    first = seen(desk)["rounds"][0]
    assert (first["state"], first["void"], first["sent"], first["missing"]) == ("aborted", Void.TOO_FEW, 1, 4)


def test_a_round_that_ends_with_its_task_says_so(desk):
    desk.requester.order(desk.task, "cancel")
    assert seen(desk)["rounds"][0]["void"] == Void.CANCELLED


def test_who_joins_after_a_round_has_closed_is_not_asked_for_it(desk):
    """Everyone who was there has sent, so that the round closes before its last call."""
    send(desk, *range(5))
    desk.run()
    first = desk.sp.store.round(desk.task, 1)
    assert first.closed_at is not None
    assert first.closed_at < first.last_call(desk.settings)
    desk.clock.time += 1
    desk.join(desk.task, "late")
    assert rounds_of(desk, "missing")[-1] == [2]
    assert seen(desk)["rounds"][0]["asked"] == 5


def test_of_two_devices_of_a_person_the_one_that_could_send_is_asked(desk):
    """The old one's upload is taken back as the new one joins, which has its place in the round."""
    send(desk, 0, 1)
    old = desk.crowd[1]
    new = desk.new_participant(desk.task, "new phone")
    new.join(desk.requester.invite(desk.task, 1, 1000.0, replaces=old.keys.who)[0])
    assert (rounds_of(desk, "taken_back")[1], rounds_of(desk, "missing")[1]) == ([1], [])
    assert rounds_of(desk, "missing")[-1] == [1]
    first = seen(desk)["rounds"][0]
    assert (first["asked"], first["sent"], first["left_out"]) == (5, 1, {})
    new.step(unchanged)
    assert rounds_of(desk, "sent")[-1] == [1]


def test_who_is_not_drawn_is_not_asked(tmp_path):
    desk = Desk.funded(tmp_path, 6, max_participants=6, per_round=4, min_participants=3, window=100.0)
    first = seen(desk)["rounds"][0]
    assert (first["asked"], first["missing"]) == (4, 4)
    assert sum(drawn == [1] for drawn in rounds_of(desk, "drawn")) == 4
    assert rounds_of(desk, "drawn") == rounds_of(desk, "missing")


def test_a_damaged_upload_was_sent_and_is_left_out_unless_it_came_again(desk):
    """While the round is open its owner is waited for."""
    send(desk, 0, 1, 2, 3, 4)
    uploads = {one.who: one for one in desk.sp.store.uploads(desk.task, 1)}
    lost = [desk.crowd[number].keys.who for number in (0, 1)]
    desk.sp.store.drop_uploads(desk.task, 1, [uploads[who] for who in lost], damaged=True)
    assert rounds_of(desk, "missing")[:2] == [[1], [1]]
    assert seen(desk)["rounds"][0]["left_out"] == {}
    desk.later(10_000)
    first = seen(desk)["rounds"][0]
    assert (first["state"], first["asked"], first["sent"], first["left_out"]) == ("rewarded", 5, 5, {"damaged": 2})
    assert rounds_of(desk, "missing")[:2] == [[2], [2]]
