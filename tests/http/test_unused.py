"""Uploads that are not used, over HTTP: a phone that loses a reply agrees with SP all the same, and is paid once."""

from dataclasses import replace
from typing import Any

import pytest

from crowdfl.documents.signed import Receipt
from crowdfl.errors import CrowdFLError, Truncated
from crowdfl.roles.participant.participant import Participant
from crowdfl.settings import PlanSettings
from tests.hosts import INITIAL_MODEL, heard, unchanged
from tests.http.test_study import person_in
from tests.http.world import World, task_definition

PLAN = PlanSettings(closes="deadline", goal=3, unused_pay="0.25")
EACH = 250_000
ANSWERS = ("unused", "refused", "uploaded")


class Loses:
    """A link whose next reply to an upload is lost, once it has arrived."""

    def __init__(self, sp: Any) -> None:
        self._sp, self.loses = sp, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sp, name)

    def send(self, *given: Any) -> str:
        receipt: str = self._sp.send(*given)
        if self.loses:
            self.loses = False
            raise ConnectionError("the reply was lost")
        return receipt


def opened(world: World, people: int, rounds: int) -> tuple[str, list[Participant]]:
    definition = replace(task_definition(budget="3.00", pay="equal", rounds=rounds, decimals=6, clip=16.0), plan=PLAN)
    task = world.create(definition, INITIAL_MODEL)
    crowd = [person_in(world, task, str(number)) for number in range(people)]
    world.requester.fund(task, rounds * PLAN.round_cost(definition.settings), "all")
    world.confirm_deposits(task)
    world.run()
    return task, crowd


def over(world: World, task: str, _crowd: list[Participant]) -> None:
    settings = world.sp.core.definition(task).settings
    world.clock.time += settings.window + settings.late + 1


def room(_world: World, _task: str, crowd: list[Participant]) -> None:
    crowd[1].leave(withdraw=True)


def computed(world: World, _task: str, _crowd: list[Participant]) -> None:
    world.run()


def cancelled(world: World, task: str, _crowd: list[Participant]) -> None:
    world.run()
    world.requester.order(task, "cancel")
    world.run()


def test_who_comes_when_a_round_has_enough_gets_a_receipt_and_is_paid_for_it(world):
    _, people = opened(world, 4, rounds=1)
    told = heard(people[3])
    for person in people:
        person.step(unchanged)
    assert [said for what, said in told if what == "unused"] == [{"round": 1, "millionths": EACH, "currency": "EUR"}]
    receipt = Receipt.open(people[3].blobs.get("rounds/1/unused").decode(), world.receipts.public)
    assert (receipt.who, receipt.unused) == (people[3].keys.who, True)
    people[3].step(unchanged)
    world.run()
    assert [person.claim() for person in people] == [1_000_000] * 3 + [EACH]


@pytest.mark.parametrize("then", [over, room, computed, cancelled])
def test_who_loses_the_reply_hears_it_again_and_is_paid_once(world, then):
    task, crowd = opened(world, 5, rounds=2)
    ann, events = crowd[0], heard(crowd[0])
    ann.sp = Loses(ann.sp)
    for person in crowd[1:4]:
        person.step(unchanged)
    with pytest.raises(ConnectionError):
        ann.step(unchanged)
    assert world.sp.core.ledger(task).unused(ann.keys.who) == {1: EACH}
    then(world, task, crowd)
    ann.step(unchanged)
    assert [what for what, told in events if what in ANSWERS and told["round"] == 1] == ["unused"]
    receipt = Receipt.open(ann.blobs.get("rounds/1/unused").decode(), world.receipts.public)
    assert (receipt.who, receipt.round, receipt.unused) == (ann.keys.who, 1, True)
    assert world.sp.core.ledger(task).unused(ann.keys.who) == {1: EACH}
    assert world.sp.store.upload(task, 1, ann.keys.who) is None
    if then is room:  # whoever comes now is counted
        crowd[4].step(unchanged)
    world.run()
    for person in (ann, crowd[2], crowd[3]):
        person.step(unchanged)
    world.run()
    if world.sp.tasks.status(task)["state"] == "running":
        world.requester.order(task, "cancel")
        world.run()
    paid, expected = ann.claim(), ann.rewards()
    assert expected[1] == EACH
    assert paid == sum(expected.values())
    ledger, who = world.sp.core.ledger(task), ann.keys.who
    assert ledger.paid().get(who, {}) | ledger.paid_unused()[who] == expected


@pytest.mark.parametrize("state", ["open", "rewarded"])
def test_one_byte_gets_no_receipt(world, state):
    task, crowd = opened(world, 4, rounds=2)
    for person in crowd[:3]:
        person.step(unchanged)
    if state == "rewarded":
        world.run()
    lazy = crowd[3]
    assert lazy.sp.status(task)["rounds"][0]["state"] == state
    with pytest.raises(CrowdFLError) as refusal:
        lazy.sp.send(task, 1, lazy.keys, b"x")
    assert isinstance(refusal.value, Truncated)
    assert world.sp.core.ledger(task).unused(lazy.keys.who) == {}
