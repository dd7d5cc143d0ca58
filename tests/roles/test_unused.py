"""Uploads that come after a round's goal: who is owed for one, once, and never counted after all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.errors import (
    AlreadyCounted,
    CrowdFLError,
    Replaced,
    RoundNotOpen,
    SettingsError,
    TaskNotRunning,
)
from crowdfl.protocols.shares.round.sp import SharesSp
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.records import TaskState
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.uploads import PendingUpload, UploadOutcome
from crowdfl.roles.waiting import waits_for
from crowdfl.settings import PlanSettings, TaskSettings
from tests.hosts import Desk, unchanged
from tests.roles.test_plan import planned
from tests.roles.test_study import replacement

PLAN = {"closes": "deadline", "goal": 3, "unused_pay": "0.20"}
EACH = 200_000


def desk_of(folder: Path, rounds: int = 2, people: int = 5, **settings: Any) -> Desk:
    """With the first round open, and money for all."""
    desk = planned(folder, people, PLAN, **{"budget": "36.00", "pay": "equal", "rounds": rounds} | settings)
    desk.requester.fund(desk.task, rounds * desk.requester.definition(desk.task).plan.round_cost(desk.settings), "all")
    desk.run()
    return desk


def made(person: Participant, number: int = 1) -> PendingUpload:
    person.encrypt(number, *unchanged(person.model(), {}, number))
    return PendingUpload.of(person.keys.who, person.blobs.get(f"rounds/{number}/upload"))


def sent(desk: Desk, arrival: PendingUpload, number: int = 1) -> UploadOutcome:
    (outcome,) = desk.sp.uploads.receive(desk.task, number, [arrival])
    return outcome


def reach_goal(desk: Desk, number: int = 1) -> None:
    assert [sent(desk, made(person, number), number)[1] for person in desk.crowd[:3]] == ["new"] * 3  # type: ignore[index]


def owed(desk: Desk, person: Participant) -> int:
    return desk.ledger.balance(f"owed {person.keys.who}")


def test_an_upload_beyond_the_goal_is_paid_as_the_plan_says_and_the_books_balance(tmp_path):
    """Once, in time alone, while there is money for it; what is not needed returns."""
    plan = {"closes": "deadline", "goal": 3, "unused_pay": "0.20"}
    desk = planned(tmp_path, 5, plan, budget="36.00", pay="equal", rounds=1)
    cost = 36_000_000 + 2 * 200_000
    waits = waits_for(
        desk.requester.definition(desk.task), desk.sp.tasks.status(desk.task), desk.requester.report(desk.task)
    )
    assert waits == ["money: 36.40 EUR more for the next round; no payment is announced"]
    desk.requester.fund(desk.task, cost, "all")
    desk.run()
    for person in desk.crowd:
        person.encrypt(1, *unchanged(person.model(), {}, 1))
    arrivals = [PendingUpload.of(one.keys.who, one.blobs.get("rounds/1/upload")) for one in desk.crowd]
    assert [one[1] for one in desk.sp.uploads.receive(desk.task, 1, arrivals)] == ["new"] * 3 + ["unused"] * 2
    again = desk.sp.uploads.receive(desk.task, 1, arrivals)
    assert [one[1] for one in again] == ["again"] * 3 + ["unused"] * 2
    assert not any(desk.sp.blobs.has(upload_name(desk.task, 1, one.digest)) for one in arrivals[3:])
    for person in desk.crowd[:3]:
        person.send(1)
    desk.run()
    unused, shown = desk.crowd[3], desk.requester.report(desk.task)["movements"]
    assert not any(unused.keys.who in json.dumps(one) for one in shown)
    unused.blobs.put("rounds/1/unused", b"a receipt")
    assert unused.rewards() == {1: 200_000}
    assert (unused.claim(), desk.crowd[0].claim()) == (200_000, 12_000_000)
    assert desk.ledger.balance(f"owed {desk.crowd[4].keys.who}") == 200_000
    desk.after_claims()
    assert desk.state == "settled"
    assert desk.ledger.returned() == cost - 12_200_000
    report = desk.requester.report(desk.task)
    assert (report["offered"], report["earned"]) == (cost, 12_200_000)
    assert {account: held for account, held in desk.ledger.balances().items() if held > 0} == {
        f"participant {one.keys.who}": paid for one, paid in ((unused, 200_000), (desk.crowd[0], 12_000_000))
    }


@pytest.mark.parametrize("case", ["too late", "no goal reached", "left", "not drawn", "no money left"])
def test_an_upload_that_is_refused_otherwise_earns_nothing(tmp_path, case):
    plan = {"closes": "deadline", "goal": 3, "unused_pay": "0.20"}
    desk = planned(tmp_path, 5, plan, budget="36.00", pay="equal", rounds=1, per_round=4 if case == "not drawn" else 5)
    desk.requester.fund(desk.task, 36_400_000, "all")
    desk.run()
    drawn = [one for one in desk.crowd if desk.sp.uploads.is_drawn(desk.task, 1, one.keys.who)]
    last = next(one for one in desk.crowd if one not in drawn) if case == "not drawn" else drawn[3]
    for person in desk.crowd:
        person.encrypt(1, *unchanged(person.model(), {}, 1))
    for person in drawn[: 2 if case == "no goal reached" else 3]:
        person.send(1)
    if case == "left":
        last.leave()
    if case == "no money left":
        desk.sp.store.post(desk.task, Ledger.owe_unused("others", 1, 400_000))
    desk.clock.time += 101.0 if case in ("too late", "no goal reached") else 0.0
    arrival = PendingUpload.of(last.keys.who, last.blobs.get("rounds/1/upload"))
    (outcome,) = desk.sp.uploads.receive(desk.task, 1, [arrival])
    assert isinstance(outcome, CrowdFLError) or (case == "no goal reached" and outcome[1] == "new")
    assert desk.ledger.balance(f"owed {arrival.who}") == 0


@pytest.mark.parametrize("plan", [{"unused_pay": "0.20"}, {"unused_pay": "0.20", "goal": 3}])
def test_pay_for_unused_uploads_needs_a_goal_and_a_budget(tmp_path, plan):
    with pytest.raises(SettingsError, match="set `goal` and `budget`"):
        PlanSettings(**plan).require(TaskSettings.of(budget=None if "goal" in plan else "1.00"))


# In time, and with bytes that are an upload.


def test_who_comes_in_time_is_owed_however_early_the_round_has_closed(tmp_path):
    """Round 1 is computed, and round 2 as well: its last call has not come."""
    desk = desk_of(tmp_path, rounds=3)
    slow, slower = made(desk.crowd[3]), made(desk.crowd[4])
    reach_goal(desk)
    desk.run()
    assert desk.states() == ["rewarded", "open"]
    assert sent(desk, slow)[1] == "unused"
    for person in desk.crowd[:3]:
        person.step(unchanged)
    desk.run()
    assert desk.states() == ["rewarded", "rewarded", "open"]
    assert sent(desk, slower)[1] == "unused"
    assert [owed(desk, person) for person in desk.crowd] == [0, 0, 0, EACH, EACH]


def test_what_a_round_began_with_is_kept_until_its_last_call(tmp_path):
    desk = desk_of(tmp_path, rounds=4)
    reach_goal(desk)
    desk.run()
    left = desk.result(1, "left_over")
    desk.play(1)
    assert desk.states()[:2] == ["rewarded", "rewarded"]
    assert desk.sp.blobs.has(left)
    desk.clock.time = desk.sp.store.round(desk.task, 2).last_call(desk.settings) + 1
    desk.play(1)
    assert not desk.sp.blobs.has(left)


def test_after_its_last_call_nobody_is_owed(tmp_path):
    desk = desk_of(tmp_path)
    late = made(desk.crowd[3])
    reach_goal(desk)
    desk.later(desk.settings.window + desk.settings.late + 1)
    assert desk.states()[0] == "rewarded"
    assert isinstance(sent(desk, late), RoundNotOpen)
    assert owed(desk, desk.crowd[3]) == 0


def test_after_the_end_of_the_task_nobody_is_owed(tmp_path):
    """The last round has been computed, within its window."""
    desk = desk_of(tmp_path, rounds=1)
    late = made(desk.crowd[3])
    reach_goal(desk)
    desk.run()
    assert desk.state == "finished"
    assert isinstance(sent(desk, late), TaskNotRunning)
    assert owed(desk, desk.crowd[3]) == 0


def cancel(desk: Desk) -> None:
    desk.sp.store.change_task(desk.task, state=TaskState.CANCELLED)


def give_up(desk: Desk) -> None:
    with desk.sp.store.transaction():
        desk.sp.steps.abort(desk.task, desk.sp.store.round(desk.task, 1))


@pytest.mark.parametrize("ends", [cancel, give_up])
def test_what_ends_while_the_bytes_are_checked_owes_nobody(tmp_path, monkeypatch, ends: Callable[[Desk], None]):
    desk = desk_of(tmp_path)
    late = made(desk.crowd[3])
    reach_goal(desk)
    refusals = SharesSp.refusals

    def slowly(side: SharesSp, uploads: Any, *, heads: bool) -> Any:
        ends(desk)
        return refusals(side, uploads, heads=heads)

    monkeypatch.setattr(SharesSp, "refusals", slowly)
    assert isinstance(sent(desk, late), RoundNotOpen)
    assert owed(desk, desk.crowd[3]) == 0


@pytest.mark.parametrize("state", ["open", "closed", "rewarded"])
@pytest.mark.parametrize("bytes_", ["one byte", "another's", "of another round"])
def test_bytes_that_are_no_upload_earn_nothing(tmp_path, state, bytes_):
    desk = desk_of(tmp_path)
    lazy, other = desk.crowd[3:]
    found = {"one byte": b"x", "another's": made(other).upload}
    found["of another round"] = lazy.side.encrypt_update(lazy.definition.shape.flat(lazy.model()), 5, 2)
    reach_goal(desk)
    if state != "open":
        desk.sp.tick()
    if state == "rewarded":
        desk.run()
    assert desk.states()[0] == state
    refused = sent(desk, PendingUpload.of(lazy.keys.who, found[bytes_]))
    assert isinstance(refused, CrowdFLError)
    assert owed(desk, lazy) == 0


# Once, and the same answer for ever.


def withdrawn(desk: Desk) -> None:
    """There is room again in the round."""
    desk.crowd[1].leave(withdraw=True)
    assert desk.sp.store.turnout(desk.task, 1)[0] == 2


def given_up(desk: Desk) -> None:
    give_up(desk)
    desk.run()


def over(desk: Desk) -> None:
    desk.later(desk.settings.window + desk.settings.late + 1)


def finished(desk: Desk) -> None:
    desk.run()
    desk.upload(desk.crowd[:3])
    desk.run()
    assert desk.state == "finished"


def cancelled(desk: Desk) -> None:
    desk.run()
    desk.requester.order(desk.task, "cancel")
    desk.run()


def gone(desk: Desk) -> None:
    desk.sp.people.leave(desk.task, desk.crowd[3].keys.who)


@pytest.mark.parametrize("then", [withdrawn, given_up, over, finished, cancelled, gone])
def test_whoever_is_owed_for_a_round_hears_it_again(tmp_path, then: Callable[[Desk], None]):
    desk = desk_of(tmp_path)
    late = made(desk.crowd[3])
    reach_goal(desk)
    assert sent(desk, late)[1] == "unused"
    then(desk)
    assert sent(desk, late)[1] == "unused"
    assert owed(desk, desk.crowd[3]) == EACH
    assert late.who not in {one.who for one in desk.sp.store.uploads(desk.task, 1)}


def test_of_two_requests_at_once_none_is_counted_once_the_other_is_owed(tmp_path, monkeypatch):
    """While the bytes of the second are checked, the first is answered, and room is made."""
    desk = desk_of(tmp_path)
    late = made(desk.crowd[3])
    reach_goal(desk)
    refusals = SharesSp.refusals

    def slowly(side: SharesSp, uploads: Any, *, heads: bool) -> Any:
        monkeypatch.undo()
        assert sent(desk, late)[1] == "unused"
        withdrawn(desk)
        return refusals(side, uploads, heads=heads)

    monkeypatch.setattr(SharesSp, "refusals", slowly)
    assert sent(desk, late)[1] == "unused"
    assert desk.sp.store.upload(desk.task, 1, late.who) is None
    assert not desk.sp.blobs.has(upload_name(desk.task, 1, late.digest))


def test_whoever_was_counted_is_not_owed_for_other_bytes(tmp_path):
    desk = desk_of(tmp_path)
    again = PendingUpload.of(desk.crowd[0].keys.who, desk.crowd[0].side.encrypt_update(np.zeros(8), 5, 1))
    reach_goal(desk)
    assert isinstance(sent(desk, again), AlreadyCounted)
    desk.run()
    assert isinstance(sent(desk, again), AlreadyCounted)
    assert owed(desk, desk.crowd[0]) == 0


# A chain of devices is one person.


def test_a_new_device_is_not_owed_for_a_round_that_the_old_one_was_counted_in(tmp_path):
    desk = desk_of(tmp_path)
    reach_goal(desk)
    desk.run()
    new = replacement(desk, desk.crowd[0])
    assert isinstance(sent(desk, made(new)), AlreadyCounted)
    assert owed(desk, new) == 0


@pytest.mark.parametrize("room", [False, True])
def test_a_new_device_is_neither_owed_nor_counted_where_the_old_one_is_owed(tmp_path, room):
    desk = desk_of(tmp_path)
    reach_goal(desk)
    old = desk.crowd[3]
    late = made(old)
    assert sent(desk, late)[1] == "unused"
    new = replacement(desk, replacement(desk, old, "second"), "third")
    if room:
        withdrawn(desk)
    assert isinstance(sent(desk, made(new)), AlreadyCounted)
    assert (owed(desk, old), owed(desk, new)) == (EACH, 0)
    assert sent(desk, late)[1] == "unused"


def test_a_new_device_takes_the_place_of_what_the_old_one_had_sent(tmp_path):
    """Nobody has begun to add it up: the old one's upload is gone, and the new one's counts, or is owed for, as anyone's."""
    desk = desk_of(tmp_path)
    reach_goal(desk)
    first = PendingUpload.of(desk.crowd[0].keys.who, desk.crowd[0].blobs.get("rounds/1/upload"))
    new = replacement(desk, desk.crowd[0])
    assert sent(desk, made(desk.crowd[3]))[1] == "new"
    assert sent(desk, made(new))[1] == "unused"
    assert isinstance(sent(desk, first), Replaced)
    assert (owed(desk, desk.crowd[0]), owed(desk, new)) == (0, EACH)
