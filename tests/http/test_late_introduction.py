"""People join while CSP is away: SP answers them, takes their uploads, and tells CSP when it is back."""

import pytest

from crowdfl.errors import ServiceUnavailable, TaskFull
from crowdfl.roles.sp.csp_enrolment import CspEnrolment
from tests.hosts import SMALL_TASK
from tests.simulation.faults import Crash


async def away(scope, receive, send):
    """A proxy whose server is gone."""
    del scope, receive
    await send({"type": "http.response.start", "status": 502, "headers": []})
    await send({"type": "http.response.body", "body": b"Bad Gateway"})


def told(world, task):
    """Whom CSP knows, in the order in which it was told."""
    return [one.identity.who for one in world.csp.store.participants(task)]


def run(world):
    """Until SP comes to rest, or to CSP."""
    try:
        world.run()
    except ServiceUnavailable:
        return False
    return True


def test_a_round_of_people_whom_csp_never_heard_of_goes_on_when_csp_is_back(world):
    """Nobody waits for CSP but the round itself."""
    task = world.post(**SMALL_TASK | {"rounds": 1})
    world.apps["csp"] = away
    people = [world.add_person(task) for _ in range(3)]
    while not world.sp.status(task)["rounds"]:
        run(world)
    for person in people:
        assert person.sp.upload(task, 1, person.update())
    assert not run(world)
    assert (world.sp.status(task)["rounds"][0]["state"], told(world, task)) == ("closed", [])
    world.start_csp()
    assert run(world)
    assert told(world, task) == [person.who for person in people]
    assert world.sp.status(task)["rounds"][0]["state"] == "rewarded"
    assert people[0].sp.reward(task, 1)


def test_csp_is_told_once_in_order_and_again_after_a_crash(world, monkeypatch):
    """How far it was told is durable; who was told twice is known once."""
    task = world.post()
    sent = []
    enrol = world.csp.enrol

    def noted(name, certificate):
        sent.append(certificate)
        enrol(name, certificate)
        if len(sent) == 2:
            raise Crash

    people = [world.add_person(task) for _ in range(4)]
    monkeypatch.setattr(world.sp.ports, "csp", world.csp)
    monkeypatch.setattr(world.csp, "enrol", noted)
    introductions = CspEnrolment(world.sp._core, world.sp.steps.end_with_csp)
    with pytest.raises(Crash):
        introductions.step(task)
    again = CspEnrolment(world.sp._core, world.sp.steps.end_with_csp)
    stored = world.sp.store.task(task)
    assert again.due(stored)
    assert again.step(task)
    assert told(world, task) == [person.who for person in people]
    assert len(sent) == 5  # the second one twice
    assert not again.due(stored)
    assert not CspEnrolment(world.sp._core, world.sp.steps.end_with_csp).due(stored)


def test_somebody_whom_csp_refuses_keeps_nobody_waiting(world, monkeypatch):
    """It is an alert; the next ones are told."""
    task, alerts, enrol = world.post(), [], world.csp.enrol
    people = [world.add_person(task) for _ in range(3)]

    def full_once(name, certificate):
        if not alerts:
            raise TaskFull("no place")
        enrol(name, certificate)

    world.options.events = lambda event, **fields: alerts.append((event, fields.get("error")))
    monkeypatch.setattr(world.csp, "enrol", full_once)
    world.run()
    assert alerts == [("participant refused by CSP", "TaskFull")]
    assert told(world, task) == [person.who for person in people[1:]]
